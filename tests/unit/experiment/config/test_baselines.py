"""What others are compared with: the presets that most people run, the most usual one first."""

from __future__ import annotations

from bwbench.experiment.config.method_names import BASELINES, PRESETS


def test_the_most_usual_way_comes_first() -> None:
    assert [*BASELINES] == ["ddp", "ring", "parameter-server"]


def test_no_two_presets_have_one_place() -> None:
    places = [preset.baseline for preset in PRESETS.values() if preset.baseline is not None]
    assert len(set(places)) == len(places) == len([*BASELINES])
