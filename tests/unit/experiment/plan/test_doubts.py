"""What is said before a run about links that it will not survive."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.plan.assess import PlannedCell, doubts
from bwbench.experiment.plan.cell import Cell


@pytest.mark.parametrize(("duration", "runs", "expected"), [("10 s", True, 0), ("60 s", True, 1), ("60 s", False, 0)])
def test_outages_that_end_a_cell_are_told(tmp_path: Path, duration: str, runs: bool, expected: int) -> None:
    link = {"bandwidth": "10 Mbit/s", "outages": [{"at": "5 s", "duration": duration}]}
    asked = {"nodes": 2, "link": link, "model": "logistic", "limit": {"samples": 100}, "algorithm": "ring"}
    config = resolve(asked, (), tmp_path).config
    assert config is not None
    cell = Cell("0" * 10, "ring", "study", "ring", 0, config)
    found = doubts([PlannedCell(cell, tmp_path, "missing", runs, "")] * 2)
    assert len(found) == expected and all("60 s" in text or "1 min" in text for text in found)


@pytest.mark.parametrize(
    ("algorithm", "momentum", "warned"),
    [
        ("random-k", 0.9, True),
        ("random-k", 0.0, False),
        ("ef-signsgd", 0.9, True),
        ("cocktail-sgd", 0.9, True),
        ("top-k", 0.9, False),
    ],
)
def test_a_momentum_that_keeps_a_method_from_training_is_told(
    tmp_path: Path, algorithm: str, momentum: float, warned: bool
) -> None:
    asked = {"nodes": 2, "link": "unshaped", "model": "logistic", "limit": {"samples": 100}, "algorithm": algorithm}
    config = resolve({**asked, "optimizer": {"sgd": {"lr": 0.1, "momentum": momentum}}}, (), tmp_path).config
    assert config is not None
    cell = Cell("0" * 10, algorithm, "study", algorithm, 0, config)
    found = doubts([PlannedCell(cell, tmp_path, "missing", True, "")])
    assert [("momentum: 0" in text) for text in found] == [True] * warned


@pytest.mark.parametrize(("dilation", "said"), [(1, "16 Gbit/s"), ("auto", None), (64, None), (0.5, "32 Gbit/s")])
def test_what_the_relay_hardly_carries_is_told_of_the_link_as_it_is_made(
    tmp_path: Path, dilation: object, said: str | None
) -> None:
    link = {"bandwidth": "1 Gbit/s", "backend": "relay"}
    asked = {"nodes": 16, "link": link, "model": "logistic", "algorithm": "ring", "compute": {"step_time": "200 ms"}}
    config = resolve({**asked, "dilation": dilation}, (), tmp_path).config
    assert config is not None
    cell = Cell("0" * 10, "ring", "study", "ring", 0, config)
    found = doubts([PlannedCell(cell, tmp_path, "missing", True, "")])
    assert len(found) == (said is not None) and all(f"may send {said}" in text for text in found)
