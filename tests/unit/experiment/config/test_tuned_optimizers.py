"""``optimizer: {tuned: FILE}``: found for the right cell, and refused where there is nothing to be found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import Experiment, load_experiment
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.config.tuned_table import Made, RateTrial, TunedEntry, read_table, setting_of
from bwbench.experiment.plan import build_plan
from bwbench.running.tuning.table import write_table

BASE = """\
name: study
nodes: 2
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: logistic
target: {accuracy: 0.9}
optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
matrix:
  link.bandwidth: [1 Mbit/s, 10 Mbit/s]
  algorithm: [ring, top-k, single]
"""
TUNED = BASE.replace("{sgd: {lr: 0.1, momentum: 0.9}}", "{tuned: tuning/study.yaml}")


def load(folder: Path, text: str = TUNED, *overrides: str) -> Experiment:
    path = folder / "study.yaml"
    path.write_text(text)
    return load_experiment(path, overrides)


def entries(folder: Path, text: str = BASE, **changes: Any) -> list[TunedEntry]:
    found = {}
    for point in load(folder, text).points:
        options = {key: value for key, value in point.config.optimizer.to_json().items() if key not in ("name", "lr")}
        content: dict[str, Any] = {
            "arm": arm_name(point.config),
            **setting_of(point.config),
            "optimizer": {point.config.optimizer.name: options},
            "lr": point.config.optimizer.options.lr,
            "every_samples": 2000.0,
            "limit_samples": 4000,
            "grid": (0.05, 0.1, 0.2),
            "trials": (RateTrial(lr=point.config.optimizer.options.lr, status="done", samples_to_target=9, id="x"),),
            "made": Made(date="today", bwbench="0", host="h"),
        }
        found[content["arm"]] = TunedEntry(**{**content, **changes})
    return list(found.values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(tmp_path / "tuning" / "study.yaml", "study", 1000, entries(tmp_path))
    return tmp_path


def problem(folder: Path, *overrides: str, text: str = TUNED) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, *overrides)
    return str(caught.value)


def ids(experiment: Experiment) -> list[str]:
    return [cell.id for cell in build_plan(experiment).cells]


def test_a_cell_is_the_same_as_one_with_the_number_written_out(folder):
    tuned = load(folder)
    assert ids(tuned) == ids(load(folder, BASE))
    assert tuned.tables == (folder / "tuning" / "study.yaml",)
    said, marked = tuned.notes
    assert said == "learning rates from tuning/study.yaml" and not tuned.warnings
    assert marked.startswith("tuning/study.yaml has rates that one seed decided") and "bwbench tune" in marked


DECAYS = "{sgd: {lr: 0.1, momentum: 0.9, decay: linear}}"
LIMIT = "limit: {samples: 9000}\n"


def test_a_rate_belongs_to_the_decay_that_it_was_found_with(tmp_path: Path) -> None:
    """And to its length, which is that of the training."""
    base = (LIMIT + BASE).replace("{sgd: {lr: 0.1, momentum: 0.9}}", DECAYS)
    write_table(tmp_path / "decays.yaml", "study", 1000, entries(tmp_path, base))
    named = "{tuned: {file: decays.yaml, optimizer: {sgd: {momentum: 0.9, decay: linear}}}}"
    text = (LIMIT + BASE).replace("{sgd: {lr: 0.1, momentum: 0.9}}", named)
    assert ids(load(tmp_path, text)) == ids(load(tmp_path, base))
    assert {p.config.optimizer.options.decay_over for p in load(tmp_path, text).points} == {9000.0}
    assert "decay_over" in problem(tmp_path, "limit.samples=18000", text=text)
    assert "and not {'sgd': {'momentum': 0.9}}" in problem(
        tmp_path, text=text.replace(", decay: linear}}}}", "}}}}")
    ).replace('"', "'")
    # A table that is named without an optimizer brings its decay along, whatever the training's length is now.
    plain = (LIMIT + BASE).replace("{sgd: {lr: 0.1, momentum: 0.9}}", "{tuned: decays.yaml}")
    assert ids(load(tmp_path, plain)) == ids(load(tmp_path, base))
    assert "the rate is down after 9000 samples" in problem(tmp_path, "limit.samples=18000", text=plain)


def test_what_chooses_by_its_link_has_the_rate_of_the_setting_that_it_begins_with(tmp_path: Path) -> None:
    fixed = BASE.replace("[ring, top-k, single]", "[{deco-sgd: {ratio: 0.01, staleness: 1}}]")
    write_table(tmp_path / "tuning" / "study.yaml", "study", 1000, entries(tmp_path, fixed, lr=0.07))
    adapts = TUNED.replace("[ring, top-k, single]", "[deco-sgd, {deco-sgd: {staleness_cost: 1.0, window: 8}}]")
    assert {point.config.optimizer.options.lr for point in load(tmp_path, adapts).points} == {0.07}
    never_late = TUNED.replace("[ring, top-k, single]", "[{deco-sgd: {most_staleness: 0}}]")
    refused = problem(tmp_path, text=never_late)
    assert "no learning rate for arm" in refused and "deco-sgd(ratio=0.01,staleness=1)" in refused


def test_a_rate_belongs_to_the_average_that_it_was_judged_by(tmp_path: Path) -> None:
    averaged = BASE + "weight_average: {ema: 1000 samples}\n"
    write_table(tmp_path / "tuning" / "study.yaml", "study", 1000, entries(tmp_path, averaged))
    assert "weight_average" in (tmp_path / "tuning" / "study.yaml").read_text()
    text = TUNED + "weight_average: {ema: 1000 samples}\n"
    assert ids(load(tmp_path, text)) == ids(load(tmp_path, averaged))
    assert "weight_average" in problem(tmp_path, "link.bandwidth=1 Mbit/s")
    beside = TUNED + "weight_average: {ema: {horizon: 1000 samples, counts: trained}}\n"
    assert "weight_average" in problem(tmp_path, text=beside)
    write_table(tmp_path / "tuning" / "study.yaml", "study", 1000, entries(tmp_path))
    assert "weight_average" not in (tmp_path / "tuning" / "study.yaml").read_text()
    load(tmp_path, beside)  # judged by the weights themselves


@pytest.mark.parametrize("text", ["{tuned: {file: tuning/study.yaml}}", "{name: tuned, file: tuning/study.yaml}"])
def test_spellings(folder, text):
    assert ids(load(folder, BASE.replace("{sgd: {lr: 0.1, momentum: 0.9}}", text))) == ids(load(folder, BASE))


def test_tables_stand_in_the_matrix_and_after_set(folder):
    write_table(folder / "other.yaml", "study", 1000, entries(folder, BASE.replace("lr: 0.1", "lr: 0.2")))
    both = load(folder, TUNED, "algorithm=ring", "link.bandwidth=1 Mbit/s")
    assert [point.config.optimizer.options.lr for point in both.points] == [0.1]
    text = TUNED + "  optimizer: [{tuned: tuning/study.yaml}, {tuned: other.yaml}, {sgd: {lr: 0.3}}]\n"
    varied = load(folder, text, "algorithm=ring", "link.bandwidth=1 Mbit/s")
    assert [point.config.optimizer.options.lr for point in varied.points] == [0.1, 0.2, 0.3]
    for base, override in [(TUNED, "optimizer.tuned=other.yaml"), (BASE, "optimizer.tuned=other.yaml")]:
        assert {point.config.optimizer.options.lr for point in load(folder, base, override).points} == {0.2}
    assert {p.config.optimizer.options.lr for p in load(folder, TUNED, "optimizer={sgd: {lr: 0.3}}").points} == {0.3}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("algorithm=ddp", ["no learning rate for arm 'ddp'", "it has: ring, top-k, single"]),
        ("algorithm={top-k: {bucket: 1 MB}}", ["arm 'top-k(bucket=1 MB)'"]),
        ("model=mlp", ["tuned for model logistic and not mlp"]),
        ("dataset=mnist", ["tuned for dataset digits and not mnist"]),
        ("dataset.partition=iid-fixed", ["dataset.partition", "iid-reshuffled", "iid-fixed"]),
        ("batch_size=8", ["tuned for batch_size 32 and not 8"]),
        ("accumulate=2", ["tuned for accumulate 1 and not 2"]),
        ("target={accuracy: 0.8}", ["tuned for target.accuracy 0.9 and not 0.8"]),
        ("target={loss: 0.8}", ["tuned for target.accuracy 0.9 and not null, target.loss null and not 0.8"]),
    ],
)
def test_what_the_table_lacks_is_said_with_the_command_that_adds_it(folder, override, words):
    text = problem(folder, override, "link.bandwidth=1 Mbit/s")
    assert all(word in text for word in words), text
    assert f"'bwbench tune {folder / 'study.yaml'}' adds it" in text and "study.yaml:6: " in text


def test_nodes_are_part_of_what_was_tuned(folder):
    assert "tuned for nodes 2 and not 4" in problem(folder, "nodes=4")
    assert ids(load(folder, TUNED, "algorithm=single", "nodes=4")) == ids(load(folder, BASE, "algorithm=single"))


def test_a_seed_that_was_tuned_with_is_not_reported(folder):
    assert "seed 1000 is one that tuning/study.yaml was tuned with" in problem(folder, "seed=998", "repeats=3")
    assert load(folder, TUNED, "seed=997", "repeats=3")


def test_another_optimizer_than_the_one_tuned_is_refused(folder):
    asked = "optimizer={tuned: {file: tuning/study.yaml, optimizer: {sgd: {momentum: %s}}}}"
    text = problem(folder, asked % 0.5, "algorithm=ring")
    assert '{"sgd": {"momentum": 0.9}}' in text and 'not {"sgd": {"momentum": 0.5}}' in text
    assert load(folder, TUNED, asked % 0.9)


def test_of_several_optimizers_the_usual_one_is_taken_or_one_is_named(folder):
    def with_momentum(*values: float) -> None:
        bases = [BASE.replace("momentum: 0.9", f"momentum: {one}") for one in values]
        write_table(folder / "tuning" / "study.yaml", "study", 1000, [e for one in bases for e in entries(folder, one)])

    def momenta(*asked: str) -> set[float]:
        return {point.config.optimizer.options.momentum for point in load(folder, TUNED, *asked).points}

    with_momentum(0.5, 0.9)
    assert momenta() == {0.9}, "what a search of a bare table tunes"
    assert momenta("optimizer={tuned: {file: tuning/study.yaml, optimizer: {sgd: {momentum: 0.5}}}}") == {0.5}
    with_momentum(0.5, 0.7)
    assert "several optimizers for arm 'ring'" in problem(folder, "algorithm=ring")


def test_what_should_be_looked_at_is_a_note(folder):
    path = folder / "tuning" / "study.yaml"
    write_table(path, "study", 1000, entries(folder, on_edge=True))
    notes = load(folder).notes
    assert sum("edge of the grid, 0.05 to 0.2: no result" in note and "bwbench tune" in note for note in notes) == 3, (
        "one an arm"
    )
    trials = (RateTrial(lr=0.1, status="done", id="x"),)
    write_table(path, "study", 1000, entries(folder, trials=trials))
    assert sum("no learning rate reached the target" in note for note in load(folder).notes) == 3


def test_a_search_that_did_not_end_has_no_rate(folder):
    unfinished = entries(folder, lr=None, problem="trials ended badly at 0.1")
    write_table(folder / "tuning" / "study.yaml", "study", 1000, unfinished)
    assert "found no rate: trials ended badly at 0.1; 'bwbench tune" in problem(folder, "algorithm=ring")


BROKEN = [
    ("schema: 2", "schema: 3", ["study.yaml:6: ", "schema 3", "update bwbench"]),
    ("schema: 2", "", ["not a table of tuned learning rates"]),
    ("nodes: 2", "nodez: 2", ["unknown key 'nodez'", "Did you mean 'nodes'?", "'nodes' is missing"]),
    ("lr: 0.1", "lr: fast", ["entries.0.lr: 'fast' is not a number"]),
    ("lr: 0.1", "lr: -1", ["-1 is out of range"]),
    ("momentum: 0.9", "momentum: 2", ["optimizer: ", "2 is out of range"]),
    ("optimizer: {sgd:", "optimizer: {sdg:", ["unknown optimizer 'sdg'"]),
    ("optimizer: {sgd:", "optimizer: [sgd:", ["not valid YAML"]),
]


@pytest.mark.parametrize(("old", "new", "words"), BROKEN, ids=[row[1] or row[0] for row in BROKEN])
def test_a_malformed_table_is_said_with_its_line(folder, old, new, words):
    path = folder / "tuning" / "study.yaml"
    path.write_text(path.read_text().replace(old, new))
    text = problem(folder)
    assert all(word in text for word in words), text
    assert "study.yaml:6: optimizer.tuned: " in text and text.count("\n") < 8


def test_the_table_is_read_once_and_again_when_it_changes(folder):
    path = folder / "tuning" / "study.yaml"
    assert read_table(path) is read_table(path)
    before = read_table(path)
    write_table(path, "study", 1000, entries(folder, lr=0.05))
    assert read_table(path) != before
