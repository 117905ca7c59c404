"""Searches that run, end badly, grow, and go on; no network and no training."""

from __future__ import annotations

import math

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.tuned_table import Made, RateTrial, TunedEntry, setting_of
from bwbench.records import write_json_atomic
from bwbench.records.cell_identity import identity
from bwbench.running.tuning.search import progress, searches_of, tune, waiting
from bwbench.running.tuning.table import entry_of, merged, read_rows, settled, write_table
from bwbench.running.tuning.trainings import Training
from tests.unit.running.tuning.tables import BASE, Quiet, Trainer, load, on

TWO_ARMS = BASE + "matrix: {algorithm: [ring, qadam]}\n"
KIN = BASE + "matrix: {algorithm: [ring, top-k, ddp, ring-fp16]}\n"
GRID = [0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4]


def valley(best):
    """The farther from the best rate, the more samples."""
    return lambda lr: {"samples": 100 * round(2 + math.log2(lr / best) ** 2)}


def entries_after(tmp_path, outcome, text=BASE, retry=()):
    trainer, entries = Trainer(outcome), {}
    searches = searches_of(load(tmp_path, text, tuning=True), seed=1000)

    def ended(search, found):
        entries[search.arm] = entry_of(search, found)

    tune(searches, tmp_path, [1.0] * len(searches), Quiet(), ended, on(trainer), retry)
    return [*entries.values()], trainer


def test_every_rate_trains_once_and_the_best_on_three_seeds(tmp_path):
    (entry,), trainer = entries_after(tmp_path, valley(0.05))
    assert entry.lr == pytest.approx(0.05, rel=0.1) and not entry.on_edge and entry.fitted
    assert (entry.seeds, len(entry.trials), entry.arms) == (3, 17, ("ring",))
    assert [lr for _, lr in trainer.ran[:7]] == GRID and set(trainer.seeds[:7]) == {1000}
    assert sorted(trainer.seeds[7:]) == [1001] * 5 + [1002] * 5
    assert entry.expected == (entry.samples_to_target, None) and entry.samples_to_target == pytest.approx(200, rel=0.2)
    again, trainer = entries_after(tmp_path, valley(0.4))
    assert not trainer.ran and again[0].trials == entry.trials
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name != ".tuning"]


def test_kin_are_trained_once_and_all_of_them_use_the_rate(tmp_path):
    entries, trainer = entries_after(tmp_path, valley(0.05), KIN)
    assert [(entry.arm, entry.arms) for entry in entries] == [("ring", ("ring", "ddp", "ring-fp16")), ("top-k",) * 2][
        :1
    ] + [("top-k", ("top-k",))]
    assert [len(entry.trials) for entry in entries] == [17, 17] and len(trainer.ran) == 34
    write_table(tmp_path / "rates.yaml", "study", 1000, entries)
    text = KIN.replace("top-k,", "parameter-server, no-communication,")
    points = load(tmp_path, text).points
    assert {point.config.optimizer.options.lr for point in points} == {entries[0].lr}, "kin that were never named, too"


def test_losses_decide_where_no_rate_reaches_the_target(tmp_path):
    (entry,), _ = entries_after(tmp_path, lambda lr: {"loss": 0.2 + math.log2(lr / 0.025) ** 2})
    assert entry.lr == pytest.approx(0.025, rel=0.2)
    assert entry.samples_to_target is None and entry.loss > 0


def test_kin_of_what_a_table_holds_train_nothing_and_join_its_entry(tmp_path):
    """A search of their own would come to another rate, under which the other experiments of the table train anew."""
    table, ring = tmp_path / "rates.yaml", BASE + "algorithm: ring-fp16\n"
    (tmp_path / "first").mkdir()
    ((entry,), _) = entries_after(tmp_path / "first", valley(0.05), BASE + "algorithm: ddp\n")
    entry = entry.model_copy(update={"made": Made(date="2026-01-01T00:00:00Z", bwbench="0.0.1", host="elsewhere")})
    write_table(table, "study", 1000, [entry])
    rows, trainer, found = read_rows(table, 1000, ()), Trainer(valley(0.4)), []
    searches = searches_of(load(tmp_path, ring, tuning=True), seed=1000, rows=rows)
    tune(searches, tmp_path, [1.0], Quiet(), lambda *one: found.append(settled(rows, entry_of(*one))), on(trainer))
    assert not trainer.ran and merged(rows, found) == [entry.model_copy(update={"arms": ("ddp", "ring-fp16")})]
    longer = ring.replace("samples: 4000", "samples: 8000")
    (search,) = searches_of(load(tmp_path, longer, tuning=True), seed=1000, rows=rows)
    assert len(waiting(search, tmp_path)) > 0, "a training to another limit is another training"
    write_table(table, "study", 1000, [entry.model_copy(update={"lr": None, "problem": "it did not end"})])
    (search,) = searches_of(load(tmp_path, ring, tuning=True), seed=1000, rows=read_rows(table, 1000, ()))
    assert search.arm == "ring-fp16", "what found no rate may be the method's own fault"


def test_a_grid_grows_for_all_arms_until_the_best_lies_inside(tmp_path):
    text = BASE + "matrix: {algorithm: [ring, top-k]}\n"
    trainer, entries = Trainer(lambda lr: valley(0.8)(lr)), []

    def outcome(lr):
        arm = trainer.ran[-1][0]
        return valley(0.8 if arm == "top-k" else 0.05)(lr)

    trainer._outcome = outcome
    searches = searches_of(load(tmp_path, text, tuning=True), seed=1000)
    tune(searches, tmp_path, [1.0, 1.0], Quiet(), lambda *one: entries.append(entry_of(*one)), on(trainer))
    assert [entry.grid for entry in entries] == [(*GRID, 0.8, 1.6)] * 2
    assert [len(entry.trials) for entry in entries] == [19, 19], "as many trainings for both"
    assert entries[0].lr == pytest.approx(0.05, rel=0.1) and entries[1].lr == pytest.approx(0.8, rel=0.1)
    assert not any(entry.on_edge for entry in entries)


def test_what_lies_on_an_edge_after_all_is_no_result(tmp_path):
    (entry,), _ = entries_after(tmp_path, lambda lr: {"samples": round(100 * (12 - math.log2(lr)))})
    assert len(entry.grid) == 11 and entry.grid[-1] == 6.4
    assert entry.on_edge and entry.lr is None
    assert "6.4, lies on the edge of the grid, 0.00625 to 6.4" in entry.problem and "--widen" in entry.problem
    write_table(tmp_path / "rates.yaml", "study", 1000, [entry])
    with pytest.raises(ConfigError, match="found no rate: the best rate, 6.4, lies on the edge"):
        load(tmp_path, BASE)


def test_a_grid_grows_when_several_seeds_put_the_best_at_its_end(tmp_path):
    """By one seed the last but one is best; the others say it is farther out."""
    trainer, entries = Trainer(valley(0.2)), {}
    trainer._outcome = lambda lr: valley(0.2 if trainer.seeds[-1] == 1000 else 2.0)(lr)
    searches = searches_of(load(tmp_path, tuning=True), seed=1000)
    tune(searches, tmp_path, [1.0], Quiet(), lambda *one: entries.update({0: entry_of(*one)}), on(trainer))
    assert entries[0].grid[-1] >= 0.8 and len(entries[0].trials) == len(entries[0].grid) + 10
    assert 0.4 < entries[0].lr < entries[0].grid[-1]


def test_where_everything_diverges_there_is_no_rate(tmp_path):
    (entry,), trainer = entries_after(tmp_path, lambda lr: {"status": "diverged", "loss": math.nan})
    assert entry.lr is None and "diverges" in entry.problem and not entry.on_edge
    assert sorted(lr for _, lr in trainer.ran) == GRID, "nothing more is spent on it"


def test_a_trial_that_failed_stops_its_search_alone_and_goes_on_when_asked(tmp_path):
    def bad_machine(lr):
        return {"status": "failed"} if lr == 0.1 else valley(0.004)(lr)

    (ring, qadam), trainer = entries_after(tmp_path, bad_machine, TWO_ARMS)
    assert ring.lr is None and "0.1 (failed" in ring.problem and "--retry failed" in ring.problem
    assert qadam.lr == pytest.approx(0.004, rel=0.1) and qadam.grid != ring.grid
    (ring, _), trainer = entries_after(tmp_path, valley(0.05), TWO_ARMS)
    assert ring.lr is None and not trainer.ran
    (ring, _), trainer = entries_after(tmp_path, bad_machine, TWO_ARMS, ("failed",))
    assert ring.lr is None and trainer.ran == [("ring", 0.1)], "once, not for ever"
    (ring, _), trainer = entries_after(tmp_path, lambda lr: valley(0.004)(lr), TWO_ARMS, ("failed",))
    assert ring.problem is None or "edge" in ring.problem
    assert trainer.ran[0] == ("ring", 0.1) and len(trainer.ran) > 1


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
    assert trainer.ran[0] == ("ring", 0.1) and len(trainer.ran) == 17 - 4 and len(entry.trials) == 17


def test_how_many_trainings_there_are_is_said_from_the_begin(tmp_path):
    searches = searches_of(load(tmp_path, tuning=True), seed=1000)
    observer = Quiet()
    tune(searches, tmp_path, [1.0], observer, lambda *_: None, on(Trainer(valley(0.1))))
    assert observer.told == [(number, 17) for number in range(1, 18)]
    assert progress(searches[0], tmp_path).state.best.rate == pytest.approx(0.1, rel=0.1)


def test_several_trainings_run_at_once_where_nodes_are_virtual(tmp_path):
    """What the table says does not depend on how many; ``async`` needs workers, and has the machine to itself."""
    text = BASE + "matrix: {algorithm: [ring, top-k, async]}\n"
    (tmp_path / "alone").mkdir()
    alone, _ = entries_after(tmp_path / "alone", valley(0.1), text)
    searches = searches_of(load(tmp_path, text, tuning=True), seed=1000)
    at_once, entries, seen = set(), {}, Quiet()

    class Counting(Quiet):
        def cell_started(self, item, number, total):
            seen.told.append((number, total))
            at_once.add(item.cell.id)
            assert len(at_once) <= 4 and (item.cell.config.compute.virtual or len(at_once) == 1)

        def cell_finished(self, item, status):
            at_once.discard(item.cell.id)

    executor = on(Trainer(valley(0.1)), num_processors=4)
    tune(searches, tmp_path / "four", [1.0] * 3, Counting(), lambda *one: entries.update({one[0].arm: one}), executor)
    assert [search.config.compute.virtual for search in searches] == [True, True, False]
    assert [entry_of(*entries[one.arm]).trials for one in alone] == [one.trials for one in alone]
    assert len(seen.told) == 3 * 17 and max(seen.told) == (3 * 17, 3 * 17)


TUNE = BASE + "matrix: {algorithm: [ring, local-sgd]}\ntune: {period: [2, 8], rate: [0.025, 0.05, 0.1, 0.2]}\n"


def tuned_together(tmp_path, better):
    """A table of an experiment whose periods are tuned, where a period needs so many times as many samples."""
    trainer, entries = Trainer(valley(0.08)), {}

    class Periods(Trainer):
        def __call__(self, item, wall_limit_s, observer):
            options = item.cell.config.algorithm.to_json()
            self._outcome = lambda lr: {
                "samples": round(better.get(options.get("period"), 1) * valley(0.08)(lr)["samples"])
            }
            return super().__call__(item, wall_limit_s, observer)

    trainer = Periods(valley(0.08))
    searches = searches_of(load(tmp_path, TUNE, tuning=True), seed=1000)
    tune(searches, tmp_path, [1.0] * 2, Quiet(), lambda *one: entries.update({one[0].arm: entry_of(*one)}), on(trainer))
    write_table(tmp_path / "rates.yaml", "study", 1000, [*entries.values()])
    return entries["ring"], entries["local-sgd"]


def test_options_of_a_method_are_tuned_within_the_same_budget(tmp_path):
    ring, local = tuned_together(tmp_path, {2: 0.5})
    assert len(ring.trials) == len(local.trials) == 4 + 3 * 2 + 4 * 2, "two more variants of three rates each, for all"
    assert (ring.options, ring.chosen) == ({}, {}) and max(trial.seed for trial in ring.trials) == 1004
    assert (local.options, local.chosen) == ({"period": [2, 8]}, {"period": 2})
    assert local.lr == pytest.approx(0.08, rel=0.2) and local.samples_to_target < 0.6 * ring.samples_to_target
    assert [trial.options for trial in local.trials[:5]] == [{}] * 4 + [{"period": 2}]
    ring_cell, local_cell = (point.config for point in load(tmp_path, TUNE).points)
    assert local_cell.algorithm.to_json()["period"] == 2 and local_cell.optimizer.options.lr == local.lr
    assert ring_cell.optimizer.options.lr == ring.lr
    plain = TUNE.replace("period: [2, 8], ", "")
    with pytest.raises(
        ConfigError, match=r"'local-sgd' with .*period.* tuned beside the rate, not nothing; .* adds it"
    ):
        load(tmp_path, plain)
    assert load(tmp_path, plain, "algorithm=ring")


def test_options_that_are_best_as_they_are_stay(tmp_path):
    _, local = tuned_together(tmp_path, {2: 2, 8: 3})
    assert local.chosen == {
        "period": load(tmp_path, BASE, "algorithm=local-sgd", tuning=True)
        .points[0]
        .config.algorithm.to_json()["period"]
    }
    assert "period" in (tmp_path / "rates.yaml").read_text()


def one_seed(tmp_path, text, lr):
    """A table as it was made when one seed decided, with an entry for every arm."""
    found = {}
    for point in load(tmp_path, text, tuning=True).points:
        config = point.config
        options = {key: value for key, value in config.optimizer.to_json().items() if key not in ("name", "lr")}
        arm = config.algorithm.name + config.collective.name + config.compression[0].name
        found[arm] = TunedEntry(
            arm=arm,
            **setting_of(config),
            optimizer={config.optimizer.name: options},
            lr=lr * 2 ** len(found),
            every_samples=100,
            limit_samples=4000,
            grid=GRID,
            trials=(RateTrial(lr=lr * 2 ** len(found), status="done", samples_to_target=9, loss=1.0, id="x"),),
            made=Made(date="then", bwbench="0", host="h"),
        )
    return list(found.values())


def test_tables_of_one_seed_are_read_and_marked_and_replaced_by_a_search(tmp_path):
    table = tmp_path / "rates.yaml"
    write_table(table, "study", 1000, one_seed(tmp_path, KIN, 0.0125))
    table.write_text(table.read_text().replace("schema: 2", "schema: 1"))
    study = load(tmp_path, KIN)
    assert [point.config.optimizer.options.lr for point in study.points] == [0.0125, 0.025, 0.05, 0.1], "each its own"
    assert sum("one seed decided" in note for note in study.notes) == 1
    rows = read_rows(table, 1000, ())
    assert all(row.one_seed for row in rows)
    entries, trainer = entries_after(tmp_path, valley(0.05), KIN)
    assert len(trainer.ran) == 34, "nothing of one seed is taken over"
    assert merged(rows, entries[:1]) == [rows[1].entry, entries[0]], "what was kin goes, other arms stay"
    write_table(table, "study", 1000, merged(rows, entries))
    assert len({point.config.optimizer.options.lr for point in load(tmp_path, KIN).points}) <= 2
    undone = entries[0].model_copy(update={"lr": None, "problem": "failed"})
    assert [row.entry for row in rows] == merged(rows, [undone])[:-1], "as long as nothing is found they stay"


def test_the_table_is_used_by_the_experiment_and_changed_in_place(tmp_path):
    table = tmp_path / "rates.yaml"
    entries, _ = entries_after(tmp_path, lambda lr: valley(0.05 if lr > 0.0124 else 0.004)(lr), TWO_ARMS)
    write_table(table, "study", 1000, entries)
    points = load(tmp_path, TWO_ARMS).points
    assert [(point.config.optimizer.name, point.config.optimizer.options.lr) for point in points] == [
        ("sgd", entries[0].lr),
        ("adam", entries[1].lr),
    ]
    rows = read_rows(table, 1000, ())
    assert tuple(row.entry for row in rows) == tuple(entries), "what is written is read again"
    better = entries[1].model_copy(update={"lr": 0.008})
    assert merged(rows, [better]) == [entries[0], better]
    undone = entries[1].model_copy(update={"lr": None, "problem": "failed"})
    assert merged(rows, [undone]) == entries, "an old rate is better than none"
    other, _ = entries_after(tmp_path, valley(0.1), TWO_ARMS.replace("nodes: 2", "nodes: 3"))
    assert merged(rows, other) == [*entries, *other]


@pytest.mark.parametrize("seed", [998, 1000, 1002])
def test_no_seed_that_was_tuned_with_is_reported(tmp_path, seed):
    entries, _ = entries_after(tmp_path, valley(0.05))
    write_table(tmp_path / "rates.yaml", "study", 1000, entries)
    with pytest.raises(ConfigError, match="is one that rates.yaml was tuned with"):
        load(tmp_path, BASE + f"seed: {seed}\nrepeats: 3\n")
    assert load(tmp_path, BASE + "seed: 1003\nrepeats: 3\n")


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
    assert not trainer.ran and entry.made.date == "1970-01-01T00:16:00Z"
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
        on(trainer),
    )
    assert found[0] == entry
    assert {arm for arm, _ in trainer.ran} == {"qadam"}


def test_nor_are_those_that_looked_at_the_test_split_oftener(tmp_path):
    (entry,), _ = entries_after(tmp_path, valley(0.1))
    (search,) = searches_of(load(tmp_path, BASE, tuning=True), seed=1000)

    def before(trial: RateTrial) -> RateTrial:
        config = search.cell(Training(trial.lr, number=trial.seed - 1000)).config
        return trial.model_copy(
            update={"id": identity(config.model_copy(update={"evaluate": config.evaluate.without_test_curve()}))}
        )

    trials = tuple(before(trial) for trial in entry.trials)
    assert not {trial.id for trial in trials} & {trial.id for trial in entry.trials}
    table = tmp_path / "table.yaml"
    write_table(table, "study", 1000, [entry.model_copy(update={"trials": trials})])
    searches = searches_of(load(tmp_path, BASE, tuning=True), seed=1000, rows=read_rows(table, 1000, ()))
    assert not progress(searches[0], tmp_path / "elsewhere").state.missing


def test_a_trial_beside_those_of_the_table_says_so(tmp_path):
    (entry,), _ = entries_after(tmp_path, valley(0.1))
    some = entry.model_copy(update={"trials": entry.trials[:16], "made": entry.made.model_copy(update={"host": "a"})})
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
        on(trainer),
    )
    assert [lr for _, lr in trainer.ran] == [entry.trials[16].lr] and found[0].lr == entry.lr
    assert found[0].trials == entry.trials
    assert found[0].made.host.split(", ")[0] == "a"
