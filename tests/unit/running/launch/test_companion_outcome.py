"""What a companion makes of a worker's last words."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bwbench.records.schema import End, Environment
from bwbench.running.launch.companion import Companion
from tests.unit.running.cells import planned_cells

SIGNAL = {"event": "signal", "signal": "SIGINT"}
RECORDED = {"event": "phase", "phase": "recorded"}
ERROR = {"event": "error", "type": "RuntimeError", "message": "Connection closed by peer"}


@pytest.fixture
def companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Companion]:
    """Of rank 0 of two."""
    for name in ("BWBENCH_CELL_ID", "BWBENCH_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "cell.json"
    file.write_text(json.dumps(planned_cells(tmp_path / "results", 1)[0].cell.to_json()))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Companion(theirs, file, 0, psutil.Process(os.getpid()))
        made._hosts = [Environment(host="anna"), Environment(host="ben")]
        yield made


def ends() -> dict[int, End]:
    return {rank: End(status="done", reason="target", step=3, samples=96, clock_s=1.0) for rank in range(2)}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ([RECORDED], "done"),
        ([RECORDED, SIGNAL], "done"),  # it was through when somebody ended what came next
        ([SIGNAL, RECORDED], "interrupted"),  # it got to its end all the same, disturbed
        ([SIGNAL], "interrupted"),
        ([ERROR, SIGNAL], "interrupted"),  # its peer was ended a moment before
        ([ERROR], "failed"),
        ([ERROR, {"event": "signal", "signal": "SIGTERM"}], "failed"),  # torchrun's, where another rank has failed
        ([{"event": "signal", "signal": "SIGTERM"}], "interrupted"),
    ],
)
def test_who_was_told_to_end_is_not_done(companion: Companion, said: list[dict[str, str]], status: str) -> None:
    for message in said:
        companion._note(0, dict(message))
    outcome = companion._outcome(ends(), [])
    assert outcome.status == status
    assert "failed" not in outcome.reason or SIGNAL not in said, "it was the user who ended it"
