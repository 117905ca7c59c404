"""Searches that run, end badly, and go on; no network and no training."""

from __future__ import annotations

import math

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.tuned_table import RateTrial
from bwbench.records import write_json_atomic
from bwbench.running.tuning.search import cost_of, progress, searches_of, tune
from bwbench.running.tuning.table import entry_of, merged, read_rows, settled, write_table
from tests.unit.running.tuning.tables import BASE, Quiet, Trainer, load

TWO_ARMS = BASE + "matrix: {algorithm: [ring, qadam]}\n"


def valley(best):
    """The farther from the best rate, the more samples."""
    return lambda lr: {"samples": 100 + round(100 * abs(math.log2(lr / best)))}


def entries_after(tmp_path, outcome, text=BASE, retry=()):
    trainer, entries = Trainer(outcome), []
    searches = searches_of(load(tmp_path, text, tuning=True), seed=1000)
    predicted_s = [1.0] * len(searches)
    tune(searches, tmp_path, predicted_s, Quiet(), lambda *found: entries.append(entry_of(*found)), retry, trainer)
    return entries, trainer


def test_the_rate_of_fewest_samples_is_chosen_and_nothing_trained_twice(tmp_path):
    (entry,), trainer = entries_after(tmp_path, valley(0.1))
    assert entry.lr == 0.1 and not entry.on_edge and entry.chosen.samples_to_target == 100
    assert [trial.lr for trial in entry.trials] == [0.025, 0.05, 0.1, 0.2] and len(trainer.ran) == 4
    again, trainer = entries_after(tmp_path, valley(0.4))
    assert not trainer.ran and again[0].trials == entry.trials
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name != ".tuning"]


def test_losses_decide_where_samples_do_not(tmp_path):
    (entry,), _ = entries_after(tmp_path, lambda lr: {"samples": 640, "loss": abs(lr - 0.05)})
    assert entry.lr == 0.05


def test_losses_decide_where_no_rate_reaches_the_target(tmp_path):
    (entry,), _ = entries_after(tmp_path, lambda lr: {"loss": abs(lr - 0.0125)})
    assert entry.lr == 0.0125 and entry.chosen.samples_to_target is None


def test_a_trial_that_reaches_the_target_beats_any_that_does_not():
    def trial(**told):
        return RateTrial(**{"lr": 0.1, "status": "done", "id": "x", "loss": 1.0, **told})

    order = [
        trial(samples_to_target=10, loss=3.0),
        trial(samples_to_target=20, loss=1.0),
        trial(samples_to_target=20, loss=2.0),
        trial(loss=0.1),
        trial(loss=0.2),
        trial(loss=None),
    ]
    assert [cost_of(one) for one in order] == sorted(cost_of(one) for one in order)
    assert cost_of(trial(status="diverged", samples_to_target=1)) == cost_of(order[-1])


def test_a_rate_on_the_edge_is_marked(tmp_path):
    (entry,), _ = entries_after(tmp_path, valley(8.0))
    assert entry.lr == 0.4 and entry.on_edge


def test_where_everything_diverges_there_is_no_rate(tmp_path):
    (entry,), trainer = entries_after(tmp_path, lambda lr: {"status": "diverged", "loss": math.nan})
    assert entry.lr is None and "diverges" in entry.problem
    assert (0.00625 in {lr for _, lr in trainer.ran}) and 0.4 not in {lr for _, lr in trainer.ran}


def test_a_trial_that_failed_stops_its_search_alone_and_goes_on_when_asked(tmp_path):
    def bad_machine(lr):
        return {"status": "failed"} if lr == 0.05 else valley(0.002)(lr)

    (ring, qadam), trainer = entries_after(tmp_path, bad_machine, TWO_ARMS)
    assert ring.lr is None and "0.05 (failed" in ring.problem and "--retry failed" in ring.problem
    assert qadam.lr == 0.002 and qadam.grid != ring.grid
    (ring, _), trainer = entries_after(tmp_path, valley(0.05), TWO_ARMS)
    assert ring.lr is None and not trainer.ran
    (ring, _), trainer = entries_after(tmp_path, bad_machine, TWO_ARMS, ("failed",))
    assert ring.lr is None and trainer.ran == [("ring", 0.05)], "once, not for ever"
    (ring, _), trainer = entries_after(tmp_path, valley(0.05), TWO_ARMS, ("failed",))
    assert ring.lr == 0.05 and ring.problem is None and trainer.ran == [("ring", 0.05)]


def test_an_interrupted_search_goes_on_where_it_was(tmp_path):
    class Stopped(Exception):
        pass

    def stops(lr):
        if lr == 0.1:
            raise Stopped
        return valley(0.05)(lr)

    with pytest.raises(Stopped):
        entries_after(tmp_path, stops)
    (entry,), trainer = entries_after(tmp_path, valley(0.05))
    assert entry.lr == 0.05 and trainer.ran == [("ring", 0.1)]


def test_the_number_of_trials_grows_with_what_is_found(tmp_path):
    searches = searches_of(load(tmp_path, tuning=True), seed=1000)
    observer = Quiet()
    tune(searches, tmp_path, [1.0], observer, lambda *_: None, (), Trainer(valley(0.2)))
    assert observer.told == [(1, 3), (2, 3), (3, 3), (4, 4), (5, 5)]
    assert progress(searches[0], tmp_path).best.lr == 0.2


def test_the_table_is_used_by_the_experiment_and_changed_in_place(tmp_path):
    table = tmp_path / "rates.yaml"
    entries, _ = entries_after(tmp_path, valley(0.1), TWO_ARMS)
    write_table(table, "study", 1000, entries)
    points = load(tmp_path, TWO_ARMS).points
    assert [(point.config.optimizer.name, point.config.optimizer.options.lr) for point in points] == [
        ("sgd", 0.1),
        ("adam", 0.016),
    ]
    rows = read_rows(table, 1000, ())
    assert tuple(row.entry for row in rows) == tuple(entries), "what is written is read again"
    better = entries[1].model_copy(update={"lr": 0.008})
    assert merged(rows, [better]) == [entries[0], better]
    undone = entries[1].model_copy(update={"lr": None, "problem": "failed"})
    assert merged(rows, [undone]) == entries, "an old rate is better than none"
    other, _ = entries_after(tmp_path, valley(0.1), TWO_ARMS.replace("nodes: 2", "nodes: 3"))
    assert merged(rows, other) == [*entries, *other]


def test_the_table_has_one_seed(tmp_path):
    table = tmp_path / "rates.yaml"
    write_table(table, "study", 1000, [])
    assert read_rows(table, 1000, ()) == () == read_rows(tmp_path / "other.yaml", 7, ())
    with pytest.raises(ConfigError, match="tuned with seed 1000.*--seed 1000"):
        read_rows(table, 7, ())


def test_a_file_that_is_no_table_is_not_overwritten(tmp_path):
    study = tmp_path / "study.yaml"
    load(tmp_path, tuning=True)
    with pytest.raises(ConfigError, match="not a table of tuned learning rates(.|\n)*--output"):
        read_rows(study, 1000, ())
    assert load_experiment(study, tuning=True).name == "study"


def test_an_entry_says_what_its_trials_ran_on_whenever_it_is_written(tmp_path):
    entries_after(tmp_path, valley(0.05))
    for number, attempt in enumerate(sorted(tmp_path.glob(".tuning/*/attempt-1"))):
        git = {"commit": "abc" if number else "def", "dirty": bool(number)}
        content = {"time_unix_s": 60.0 * number, "host": "h", "bwbench": "1.2", "git": git}
        write_json_atomic(attempt / "environment.json", content)
    (entry,), trainer = entries_after(tmp_path, valley(0.05))
    assert not trainer.ran and entry.made.date == "1970-01-01T00:02:00Z"
    assert (entry.made.commit, entry.made.host, entry.made.bwbench) == ("abc+, def", "h", "1.2")


def test_trials_of_the_table_are_not_trained_again_where_their_records_are_missing(tmp_path):
    (entry,), _ = entries_after(tmp_path, valley(0.1))
    entry = entry.model_copy(update={"made": entry.made.model_copy(update={"host": "elsewhere"})})
    table = tmp_path / "table.yaml"
    write_table(table, "study", 1000, [entry])
    rows, trainer, found = read_rows(table, 1000, ()), Trainer(valley(0.4)), []
    searches = searches_of(load(tmp_path, TWO_ARMS, tuning=True), seed=1000, rows=rows)
    tune(
        searches,
        tmp_path / "elsewhere",
        [1.0, 1.0],
        Quiet(),
        lambda *one: found.append(settled(rows, entry_of(*one))),
        (),
        trainer,
    )
    assert found[0] == entry
    assert {arm for arm, _ in trainer.ran} == {"qadam"}


def test_a_trial_beside_those_of_the_table_says_so(tmp_path):
    (entry,), _ = entries_after(tmp_path, valley(0.1))
    some = entry.model_copy(update={"trials": entry.trials[:3], "made": entry.made.model_copy(update={"host": "a"})})
    table = tmp_path / "table.yaml"
    write_table(table, "study", 1000, [some])
    rows, trainer, found = read_rows(table, 1000, ()), Trainer(valley(0.1)), []
    searches = searches_of(load(tmp_path, BASE, tuning=True), seed=1000, rows=rows)
    tune(
        searches,
        tmp_path / "elsewhere",
        [1.0],
        Quiet(),
        lambda *one: found.append(settled(rows, entry_of(*one))),
        (),
        trainer,
    )
    assert [lr for _, lr in trainer.ran] == [0.2] and found[0].trials == entry.trials and found[0].lr == 0.1
    assert found[0].made.host.split(", ")[0] == "a"
