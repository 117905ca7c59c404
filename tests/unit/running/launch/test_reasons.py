"""Why a cell failed, with the log of the rank that did: nothing is said twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.running.launch.attempt import with_log

REASON = "rank 0 exited with status 2: data set 'x': /data/x.gz is damaged: cut short. Delete it"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", REASON),
        ("error: data set 'x': /data/x.gz is damaged: cut short. Delete it\n", REASON),
        ("a warning\nerror: data set 'x': /data/x.gz is damaged\n", None),
        ("Traceback\nboom\n", None),
    ],
)
def test_a_log_that_says_the_reason_again_is_left_out(tmp_path: Path, log: str, expected: str | None) -> None:
    (tmp_path / "rank0.log").write_text(log)
    assert with_log(REASON, tmp_path, 0) == (expected or f"{REASON}\nlast lines of rank0.log:\n{log.strip()}")
