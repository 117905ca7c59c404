"""A cell that is interrupted in the middle goes on from its checkpoint, over a real (emulated) link."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bwbench.records import read_events
from tests.e2e.program import TINY, family, run, start, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.timeout(400)]

STEPS, CUT, STEP_S = 200, 60, 0.02  # cut off with almost three seconds to go
LONG = TINY.replace("limit: {samples: 1280}", f"limit: {{samples: {64 * STEPS}}}") + "compute: {step_time: 20 ms}\n"


def cell_of(folder: Path) -> Path:
    (cell,) = (folder / "results" / "tiny").glob("*-s0-*")
    return cell


def recorded(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Of the last attempt."""
    last = sorted(cell_of(folder).glob("attempt-*"))[-1]
    return [event.to_json() for event in read_events(last / f"rank{rank}.jsonl")]


def checkpoint_after(folder: Path, step: int) -> bool:
    return any(int(path.name.rpartition("-")[2]) >= step for path in folder.rglob("checkpoint-*"))


@pytest.mark.parametrize(
    ("method", "how"),
    [("top-k", signal.SIGKILL), ("ddp-powersgd", signal.SIGINT)],
    ids=["our exchange, kill -9", "torch's exchange, Ctrl-C"],
)
def test_an_interrupted_cell_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, method: str, how: signal.Signals
) -> None:
    folders = whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in folders:
        folder.mkdir()
        (folder / "tiny.yaml").write_text(LONG + f"algorithm: {method}\n")
    assert run("run", "tiny.yaml", cwd=whole, timeout_s=180).returncode == 0
    assert not list(whole.rglob("checkpoint-*")), "it ran for less than ten minutes"

    first = start("run", "tiny.yaml", cwd=cut, BWBENCH_CHECKPOINT_INTERVAL_S="0.5")
    wait_for(lambda: checkpoint_after(cut, CUT), 120, "a checkpoint")
    first.send_signal(how)
    assert first.wait(60) == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    wait_for(lambda: not family(cut), 60, "the end of its processes")
    status = cell_of(cut) / "status.json"
    assert how == signal.SIGKILL or json.loads(status.read_text())["status"] == "interrupted"
    assert checkpoint_after(cut, CUT)

    result = run("run", "tiny.yaml", cwd=cut, timeout_s=180)
    assert result.returncode == 0, result.stderr
    done, undisturbed = (json.loads((cell_of(folder) / "status.json").read_text()) for folder in (cut, whole))
    assert done["resume_refused"] is None
    assert done["resumed_from"]["attempt"] == 1 and CUT <= done["resumed_from"]["step"] < STEPS
    for key in ("status", "reason", "steps", "samples", "final_metric", "test_metric", "payload_bytes"):
        assert done[key] == undisturbed[key], key
    # Without those of the first attempt it would be 70 % at most.
    assert done["wire_bytes"] == pytest.approx(undisturbed["wire_bytes"], rel=0.1)
    assert done["training_clock_s"] >= STEPS * STEP_S
    assert done["overhead_s"] > 0 and done["replicas_identical"] is True
    for rank in (0, 1):
        losses = [[e["loss"] for e in recorded(folder, rank) if e["event"] == "step"] for folder in folders]
        assert losses[0] == losses[1]
        ends = [recorded(folder, rank)[-1]["replica_sha256"] for folder in folders]
        assert ends[0] == ends[1]
    assert not list(cut.rglob("*checkpoint*"))
