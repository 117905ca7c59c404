"""The search for learning rates that ``bwbench tune`` carries out: what would run, the trials, the table."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError
from bwbench.cli.needed_here import check_needed, data_problems, device_problems
from bwbench.cli.options import TuneOptions, retried
from bwbench.cli.output import new_table, print_json, seconds, stderr, stdout
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.tuned_table import TunedEntry, named
from bwbench.experiment.plan import CellEstimate, Forecast, estimate_cells
from bwbench.records.files import full_disk_said
from bwbench.running.sweep.account import TimeLeft
from bwbench.running.this_machine import ThisMachine
from bwbench.running.tuning.search import (
    Search,
    SearchProgress,
    most_seeds,
    planned,
    progress,
    searches_of,
    waiting,
    widening,
    with_common_grids,
)
from bwbench.running.tuning.search import tune as run_searches
from bwbench.running.tuning.table import entry_of, given, merged, read_rows, settled, shown, write_table
from bwbench.running.tuning.trainings import GROWTH, Training

_RETRY = ("failed", "timeout", "invalid")
_HINTS = {"diverged": "; a rate at which the training diverges has been judged"}


@dataclass(frozen=True)
class _Tuning:
    """The searches of an experiment.

    Attributes:
        table: file that gets the rates.
        estimates: of a training of each search; the rate changes nothing about the time.
    """

    experiment: Experiment
    table: Path
    searches: Sequence[Search]
    estimates: Sequence[CellEstimate]
    results: Path
    seed: int
    retry: tuple[str, ...]

    def forecast(self) -> Forecast:
        """How long trainings take, with start-up."""
        pairs = zip(self.searches, self.estimates, strict=True)
        return Forecast(
            {
                search.cell(Training(rate, number=number)).id: estimate
                for search, estimate in pairs
                for rate in search.grid
                for number in range(most_seeds(search))
            }
        )


def tune_rates(file: Path, options: TuneOptions) -> int:
    """Search the rates of an experiment's arms, or only show what would run. Returns the exit status."""
    retry = tuple(retried(options.retry, _RETRY, _HINTS))
    experiment = load_experiment(file, options.set_ or [], tuning=True)
    if options.output is None and len(experiment.tables) > 1:
        names = ", ".join(map(str, experiment.tables))
        raise ConfigError(f"{experiment.file} names several tables ({names}); say with --output which to write")
    by_default = [*experiment.tables, Path("experiments/tuning") / f"{experiment.name}.yaml"]
    path = options.output or by_default[0]
    old = read_rows(path, options.seed, _plugins(experiment))
    searches = searches_of(
        experiment, options.seed, max(options.widen, 0 if experiment.tune.rates else widening(old)), old
    )
    for warning in (*experiment.warnings, *(note for search in searches for note in search.notes)):
        stderr().print(f"note: {warning}")
    searches = with_common_grids(searches, options.results)
    first = [search.cell(Training(search.grid[0])) for search in searches]
    estimates = estimate_cells(first)
    of_searches = [estimates[cell.id] for cell in first]
    tuning = _Tuning(experiment, path, searches, of_searches, options.results, options.seed, retry)
    if not options.dry_run:
        return _search(tuning, as_json=options.json_)
    _print_plan(tuning, as_json=options.json_)
    return EXIT_OK


def _search(tuning: _Tuning, *, as_json: bool) -> int:
    experiment, path, searches = tuning.experiment, tuning.table, tuning.searches
    check_needed(search.cell(Training(search.grid[0])) for search in searches)
    found_for: dict[str, TunedEntry] = {}  # by the configuration of a search's trainings

    def ended(search: Search, found: SearchProgress) -> None:
        rows = read_rows(path, tuning.seed, _plugins(experiment))  # anew: others may fill the table too
        found_for[search.config.model_dump_json()] = settled(rows, entry_of(search, found))
        write_table(path, experiment.name, tuning.seed, merged(rows, [*found_for.values()]))

    predicted_s = [estimate.predicted_s for estimate in tuning.estimates]
    todo = [item for search in searches for item in waiting(search, tuning.results, tuning.retry)]
    show = LiveProgress if sys.stderr.isatty() else PlainProgress
    left, here = TimeLeft(tuning.forecast(), todo), contextlib.closing(ThisMachine())
    with full_disk_said(path.parent), show(left, len(todo)) as observer, here as executor:
        run_searches(searches, tuning.results, predicted_s, observer, ended, executor, tuning.retry)
    entries = [*found_for.values()]
    if as_json:
        content = {"experiment": experiment.name, "file": str(path), "seed": tuning.seed}
        print_json({**content, "rows": [shown(entry) for entry in entries]})
    else:
        _print_table(entries)
    _say(experiment, path, entries)
    return EXIT_OK if all(entry.lr is not None for entry in entries) else EXIT_CELLS_FAILED


def _print_table(entries: Sequence[TunedEntry]) -> None:
    numbers = ("nodes", "batch", "lr", "samples to target", "loss", "trainings", "seeds")
    table = new_table(
        "arms", "model", "data", *numbers[:2], "optimizer", *numbers[2:], "grid", "options", right=numbers
    )
    for entry in entries:
        batch = f"{entry.batch_size}" + (f"x{entry.accumulate}" if entry.accumulate > 1 else "")
        samples, loss = entry.expected if entry.lr is not None else (None, None)
        lr = "-" if entry.lr is None else f"{entry.lr:g}"
        found = (lr, str(samples or "-"), "-" if loss is None else f"{loss:.4g}")
        grid = f"{entry.grid[0]:g} to {entry.grid[-1]:g}{', on its edge' if entry.on_edge else ''}"
        names = (", ".join(entry.arms) or entry.arm, named(entry.model), named(entry.dataset), str(entry.nodes), batch)
        table.add_row(
            *names, next(iter(entry.optimizer)), *found, str(len(entry.trials)), str(entry.seeds), grid, _options(entry)
        )
    stdout().print(table)


def _options(entry: TunedEntry) -> str:
    """What was found beside the rate, and what is only what the experiment gives."""
    own = given(entry)
    words = (f"{name} {value}{' (default)' if own.get(name) == value else ''}" for name, value in entry.chosen.items())
    return ", ".join(words) or "defaults"


def _say(experiment: Experiment, path: Path, entries: Sequence[TunedEntry]) -> None:
    """What is to be known about the rates, and how to use them."""
    for entry in entries:
        arm = f"{entry.arm} ({entry.workload}, {entry.nodes} node(s))"
        if entry.lr is None:
            stderr().print(f"{arm}: no rate: {entry.problem}")
        elif entry.target is not None and entry.expected[0] is None:
            stderr().print(f"{arm}: no rate reached the target within {entry.limit_samples} samples; chosen by loss")
    if path.resolve() not in experiment.tables:
        folder = experiment.file.parent if experiment.file is not None else Path()
        relative = os.path.relpath(path.resolve(), folder.resolve())
        stderr().print(f"{path} is written; {experiment.file} uses it with 'optimizer: {{tuned: {relative}}}'")
    else:
        stderr().print(f"{path} is written")


@dataclass(frozen=True)
class _Planned:
    """What would run of a search, as ``--json`` has it."""

    arms: tuple[str, ...]
    model: str
    dataset: str
    nodes: int
    optimizer: str
    grid: tuple[float, ...]
    budget: int
    trainings_done: int
    trainings_to_run: int
    at_most_trainings: int
    rates_to_run: list[float]
    predicted_s: float


def _planned(tuning: _Tuning, search: Search, forecast: Forecast) -> _Planned:
    found, first = progress(search, tuning.results), planned(search, Training(search.grid[0]), tuning.results)
    rates = {search.cell(training).id: training.rate for training in found.state.missing}
    now = waiting(search, tuning.results, tuning.retry)
    sound = len(found.trials) - len(found.failed)
    left = max(0, search.budget - sound) if found.state.missing else 0
    grows = 2 * GROWTH if any(training.number == 0 for training in found.state.missing) else 0
    return _Planned(
        arms=search.arms,
        model=search.config.model.name,
        dataset=search.config.dataset.source.name,
        nodes=search.config.nodes,
        optimizer=search.config.optimizer.name,
        grid=search.grid,
        budget=search.budget,
        trainings_done=sound,
        trainings_to_run=left,
        at_most_trainings=left + grows,
        rates_to_run=[rates[item.cell.id] for item in now],
        predicted_s=forecast.predict(first).total_s,
    )


def _print_plan(tuning: _Tuning, *, as_json: bool) -> None:
    """What would run: how many trainings is known beforehand, but for grids that grow; which ones follows from them."""
    forecast = tuning.forecast()
    rows = [_planned(tuning, search, forecast) for search in tuning.searches]
    count = sum(row.trainings_to_run for row in rows)
    all_s = sum(row.trainings_to_run * row.predicted_s for row in rows)
    most_s = sum(row.at_most_trainings * row.predicted_s for row in rows)
    if as_json:
        content = {"rows": [vars(row) for row in rows], "trainings_to_run": count}
        print_json({**content, "predicted_s": all_s, "at_most_s": most_s})
        return
    numbers = ("nodes", "done", "to run", "a training")
    columns = ("arms", "model", "data", "nodes", "optimizer", "done", "to run", "first rates", "a training")
    table = new_table(*columns, right=numbers)
    for row in rows:
        rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(row.rates_to_run)) or "-"
        texts = (", ".join(row.arms), row.model, row.dataset, str(row.nodes), row.optimizer, str(row.trainings_done))
        table.add_row(*texts, str(row.trainings_to_run), rates, seconds(row.predicted_s))
    stdout().print(table)
    text = f"{len(rows)} searches, {count} trainings to run, each to the limit: {seconds(all_s)} one after another"
    stderr().print(f"{text}; at most {seconds(most_s)}, if grids grow as far as they may")
    cells = [search.cell(Training(search.grid[0])) for search in tuning.searches]
    for problem in (*device_problems(cells), *data_problems(cells)):
        stderr().print(f"note: not ready to run here: {problem}")


def _plugins(experiment: Experiment) -> tuple[str, ...]:
    return tuple(str(plugin) for plugin in experiment.plugins)
