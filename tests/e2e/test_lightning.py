"""The real Lightning on two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "lightning_script.py"
LIMIT_S = 170.0


def run(method: Any, folder: Path, case: str) -> list[dict[str, Any]]:
    """What the two ranks report, by rank."""
    command = [sys.executable, str(SCRIPT), json.dumps(method), str(folder), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(reports, key=lambda report: report["rank"])


# Residuals on every rank; replicas that differ when the checkpoint is written (a round in 5 steps, saved after 12).
@pytest.mark.parametrize(("method", "equal"), [("threshold", True), ({"local-sgd": {"period": 5}}, False)])
def test_fit_validates_deals_data_out_and_resumes_bit_exactly(method: Any, equal: bool, tmp_path: Path) -> None:
    reports = run(method, tmp_path, "resume")
    for report in reports:
        assert report["steps"] == 24
        assert report["resumed"] == report["whole"]
        assert 0 < report["loss"] < 0.5
        assert len(report["seen"]) == 4 * 48  # half of the data in each of four epochs
    assert sorted(set(reports[0]["seen"] + reports[1]["seen"])) == list(range(96))
    assert (reports[0]["whole"] == reports[1]["whole"]) == equal
    assert reports[0]["loss"] == pytest.approx(reports[1]["loss"])


def test_fit_may_be_called_again_and_saved_afterwards(tmp_path: Path) -> None:
    reports = run("ring-fp16", tmp_path, "twice")
    for report in reports:
        assert report["steps"] == 24
        assert report["resumed"] == report["whole"] == reports[0]["whole"]
        assert not report["left"]  # to an interpreter that shuts down
        assert 0 < report["loss"] < 0.5


def test_gradients_are_accumulated(tmp_path: Path) -> None:
    reports = run("ring", tmp_path, "accumulate")
    assert [report["steps"] for report in reports] == [2, 2]  # four batches, and the two that are left
    assert reports[0]["whole"] == reports[1]["whole"]


@pytest.mark.parametrize(
    ("method", "message"), [("rin", "unknown algorithm 'rin'. Did you mean 'ring'"), ("ddp", "strategy='ddp'")]
)
def test_mistakes_are_said(method: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        run(method, tmp_path, "accumulate")
