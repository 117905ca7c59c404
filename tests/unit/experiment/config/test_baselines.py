"""What others are compared with: the presets that most people run, the most usual one first."""

from __future__ import annotations

from bwbench.experiment.config.method_names import BASELINES, PRESETS


def test_the_most_usual_way_comes_first() -> None:
    assert [*BASELINES] == ["ddp", "ring", "parameter-server"]


def test_each_is_a_preset_that_is_named_once() -> None:
    assert len(set(BASELINES)) == len(BASELINES)
    assert set(BASELINES) <= PRESETS.keys()
