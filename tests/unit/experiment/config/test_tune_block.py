"""``tune:`` of an experiment: what it takes, what is refused and where, and which variants an arm gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import Experiment, load_experiment
from bwbench.experiment.config.tune_block import tuned_options, variants_of, with_options

BASE = """\
name: study
nodes: 2
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: logistic
target: {accuracy: 0.9}
optimizer: {tuned: rates.yaml}
matrix: {algorithm: [ring, top-k, diloco]}
"""


def load(folder: Path, tune: str, *overrides: str) -> Experiment:
    path = folder / "study.yaml"
    path.write_text(f"{BASE}tune: {tune}\n")
    return load_experiment(path, overrides, tuning=True)


def test_options_belong_to_the_arms_that_have_them(tmp_path: Path) -> None:
    study = load(tmp_path, "{period: [4, 16], outer_lr: [0.5, 0.7], ratio: [0.1], rate: [0.1, 0.2, 0.4]}")
    ring, top_k, diloco = (point.config for point in study.points)
    assert study.tune.rates == (0.1, 0.2, 0.4)
    assert tuned_options(study.tune, ring) == {} and variants_of(study.tune, ring) == [{}]
    assert tuned_options(study.tune, top_k) == {"ratio": [0.1]}
    assert variants_of(study.tune, top_k) == [{}, {"ratio": 0.1}]
    first, *others = variants_of(study.tune, diloco)
    assert first == {} and all(set(one) == {"period", "outer_lr"} for one in others)
    own = diloco.algorithm.to_json()
    given = (own["period"] in (4, 16)) and own["outer_lr"] in (0.5, 0.7)
    assert len(others) == 4 - given, "what the experiment gives is not tried twice"
    changed = with_options(diloco, {"period": 4, "outer_lr": 0.5}).algorithm.to_json()
    assert (changed["period"], changed["outer_lr"]) == (4, 0.5) and with_options(diloco, {}) is diloco


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ("{perod: [4, 16]}", ["no arm here learns otherwise with it", "'perod'", "Did you mean 'period'?"]),
        ("{slots: [1]}", ["no arm here learns otherwise with it: unknown key 'slots'"]),
        ("{period: 4}", ["tune.period: 4 is not a list of values", "write 'tune: {period: [4, 16, 64]}'"]),
        ("{period: []}", ["is not a list of values"]),
        ("{period: [4, 4]}", ["has a value twice"]),
        ("{period: [4, -1]}", ["tune.period: arm 'diloco': -1 is out of range"]),
        ("{ratio: [0.1, 2]}", ["tune.ratio: arm 'top-k'"]),
        ("{period: [4, often]}", ["tune.period: arm 'diloco'"]),
        ("[4, 16]", ["tune: [4, 16] is not a mapping"]),
        ("{rate: [0.1, 0.2]}", ["tune.rate: ", "3 or more positive numbers, rising"]),
        ("{rate: [0.4, 0.2, 0.1]}", ["rising"]),
        ("{rate: [0, 0.2, 0.4]}", ["positive"]),
    ],
)
def test_a_bad_block_is_one_clear_error_at_its_line(tmp_path: Path, tune: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, tune)
    (problem,) = caught.value.problems
    assert problem.line == 8 and all(word in str(problem) for word in words), str(problem)


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    numbers = ", ".join(map(str, range(1, 40)))
    with pytest.raises(ConfigError, match=r"combinations for arm 'diloco'; at most 64"):
        load(tmp_path, f"{{period: [{numbers}], outer_lr: [0.5, 0.6]}}")


def test_set_changes_a_key_inside_and_no_table_is_said(tmp_path: Path) -> None:
    study = load(tmp_path, "{period: [4, 16]}", "tune.period=[8]", "optimizer={sgd: {lr: 0.1}}")
    assert study.tune.options == (("period", (8,)),)
    assert any("'tune' is for 'bwbench tune' alone" in warning for warning in study.warnings)
