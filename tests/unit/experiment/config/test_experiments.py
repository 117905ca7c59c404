"""The matrices of the paper: valid, and said what for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan

EXPERIMENTS = sorted((Path(__file__).parents[4] / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_it_is_valid_whatever_its_learning_rates_will_be(file: Path) -> None:
    experiment = load_experiment(file, tuning=True)
    assert experiment.name == file.stem and not experiment.warnings
    assert len(build_plan(experiment).cells) >= 9


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_it_says_its_question_its_figure_and_its_cost(file: Path) -> None:
    head = file.read_text().partition("\nname:")[0]
    assert "?" in head or "question" in head
    assert "Figure" in head and "Cost" in head


def test_every_one_is_in_the_list() -> None:
    listed = (EXPERIMENTS[0].parent / "README.md").read_text()
    assert EXPERIMENTS and all(f"`{file.stem}`" in listed for file in EXPERIMENTS)
