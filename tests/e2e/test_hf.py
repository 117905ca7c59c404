"""Hugging Face Accelerate and Transformers on two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate", reason="the extra [hf] is not installed")
pytest.importorskip("transformers", reason="the extra [hf] is not installed")

SCRIPT = Path(__file__).parent / "hf_script.py"
LIMIT_S = 170.0
# Residuals on every rank; replicas that differ when the checkpoint is written (a round in 5 steps).
METHODS = [("threshold", True), ({"local-sgd": {"period": 5}}, False)]


def run(method: Any, folder: Path, case: str, *, ranks: int = 2, **environment: str) -> list[dict[str, Any]]:
    """What the ranks report, by rank; one starts without torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = command if ranks > 1 else [sys.executable]
    done = subprocess.run(
        [*command, str(SCRIPT), json.dumps(method), str(folder), case],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    return sorted(reports, key=lambda report: report["rank"])


@pytest.mark.parametrize(("method", "equal"), METHODS)
def test_the_trainer_evaluates_deals_data_out_and_resumes_bit_exactly(method: Any, equal: bool, tmp_path: Path) -> None:
    reports = run(method, tmp_path, "resume")
    for report in reports:
        assert report["steps"] == 24
        assert report["resumed"] == report["replica"]
        assert 0 < report["loss"] < 0.5
        assert len(report["seen"]) == 4 * 48  # half of the data in each of four epochs
    assert sorted(set(reports[0]["seen"] + reports[1]["seen"])) == list(range(96))
    assert (reports[0]["replica"] == reports[1]["replica"]) == equal


def test_the_trainer_trains_again_together(tmp_path: Path) -> None:
    reports = run("ring", tmp_path, "again")
    assert reports[0]["replica"] == reports[1]["replica"]


def test_the_trainer_accumulates(tmp_path: Path) -> None:
    reports = run("ring", tmp_path, "accumulate")
    assert [report["steps"] for report in reports] == [2, 2]  # four batches, and the two that are left
    assert reports[0]["replica"] == reports[1]["replica"]


@pytest.mark.parametrize(("method", "equal"), METHODS)
def test_a_loop_around_accelerate_saves_and_goes_on_bit_exactly(method: Any, equal: bool, tmp_path: Path) -> None:
    reports = run(method, tmp_path, "loop")
    for report in reports:
        assert report["steps"] == 18
        assert report["resumed"] == report["whole"]
    assert (reports[0]["whole"] == reports[1]["whole"]) == equal
    assert sorted(reports[0]["seen"] + reports[1]["seen"]) == list(range(96))


@pytest.mark.parametrize("case", ["loop", "again"])
def test_one_process_trains_alone(case: str, tmp_path: Path) -> None:
    (report,) = run("ring", tmp_path, case, ranks=1)
    assert report["steps"] == (36 if case == "loop" else 24)
    assert report.get("resumed") == report.get("whole")


def test_a_loop_around_accelerate_accumulates(tmp_path: Path) -> None:
    reports = run("ring", tmp_path, "loop accumulating")
    assert [report["steps"] for report in reports] == [6, 6]
    assert reports[0]["whole"] == reports[1]["whole"] == reports[0]["resumed"]


@pytest.mark.parametrize(
    ("method", "environment", "message"),
    [
        ("rin", {}, "unknown algorithm 'rin'. Did you mean 'ring'"),
        ("ddp", {}, r"write Accelerator\(\)"),
        ("ring", {"ACCELERATE_USE_FSDP": "true"}, "told FSDP: .*HYBRID_SHARD"),
    ],
)
def test_mistakes_are_said(method: str, environment: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        run(method, tmp_path, "loop", **environment)
