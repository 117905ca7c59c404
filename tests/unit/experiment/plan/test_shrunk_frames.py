"""What a plan says of frames that take longer on a shrunk link."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import assess, build_plan, estimate_cells
from bwbench.experiment.plan.shrunk_frames import too_long_by_frames

EXPERIMENT = """\
name: study
nodes: 8
link: {bandwidth: 200 Mbit/s}
model: {shapes: resnet50}
compute: {step_time: 7.6 s}
limit: {steps: 4}
shrink: SHRINK
matrix:
  algorithm: [{ring: {bucket: 25 MB}}, {ring: {bucket: 50 MB}}, bytegrad]
"""


@pytest.mark.parametrize(("shrink", "said"), [(1, False), (8, False), (96, True)])
def test_only_what_would_be_too_long_is_named_once_by_the_worst_cell(tmp_path: Path, shrink: int, said: bool) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(EXPERIMENT.replace("SHRINK", str(shrink)))
    plan = build_plan(load_experiment(path))
    planned = assess(plan.cells, tmp_path / "results")
    lines = too_long_by_frames(planned, estimate_cells(plan.cells))
    assert len(lines) == said
    for line in lines:
        assert "96 times as long" in line
        assert "steps of ring-bucket25MB" in line
        assert "ask for larger buckets" in line
