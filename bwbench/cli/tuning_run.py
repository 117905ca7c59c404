"""The search for learning rates that ``bwbench tune`` carries out: what would run, the trials, the table."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError
from bwbench.cli.carry_out import check_data
from bwbench.cli.options import TuneOptions, retried
from bwbench.cli.output import new_table, print_json, seconds, stderr, stdout
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.tuned_table import TunedEntry, named
from bwbench.experiment.plan import CellEstimate, Forecast, estimate_cells
from bwbench.records.files import full_disk_said
from bwbench.running.sweep.account import TimeLeft
from bwbench.running.tuning.search import Search, SearchProgress, planned, progress, searches_of, waiting, widening
from bwbench.running.tuning.search import tune as run_searches
from bwbench.running.tuning.table import entry_of, merged, read_rows, settled, shown, write_table

_RETRY = ("failed", "timeout", "invalid")
_HINTS = {"diverged": "; a rate at which the training diverges has been judged"}


@dataclass(frozen=True)
class _Tuning:
    """The searches of an experiment.

    Attributes:
        table: file that gets the rates.
        estimates: of a trial of each search; the rate changes nothing about the time.
    """

    experiment: Experiment
    table: Path
    searches: Sequence[Search]
    estimates: Sequence[CellEstimate]
    results: Path
    seed: int
    retry: tuple[str, ...]

    def forecast(self) -> Forecast:
        """How long the trials take, with start-up."""
        pairs = zip(self.searches, self.estimates, strict=True)
        return Forecast({search.cell(lr).id: estimate for search, estimate in pairs for lr in search.grid})


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
    searches = searches_of(experiment, options.seed, max(options.widen, widening(old)), old)
    for warning in (*experiment.warnings, *(note for search in searches for note in search.notes)):
        stderr().print(f"note: {warning}")
    first = [search.cell(search.grid[0]) for search in searches]
    estimates = estimate_cells(first)
    of_searches = [estimates[cell.id] for cell in first]
    tuning = _Tuning(experiment, path, searches, of_searches, options.results, options.seed, retry)
    if not options.dry_run:
        return _search(tuning, as_json=options.json_)
    _print_plan(tuning, as_json=options.json_)
    return EXIT_OK


def _search(tuning: _Tuning, *, as_json: bool) -> int:
    experiment, path, searches = tuning.experiment, tuning.table, tuning.searches
    check_data([search.cell(search.grid[0]) for search in searches])
    entries: list[TunedEntry] = []

    def ended(search: Search, found: SearchProgress) -> None:
        rows = read_rows(path, tuning.seed, _plugins(experiment))  # anew: others may fill the table too
        entries.append(settled(rows, entry_of(search, found)))
        write_table(path, experiment.name, tuning.seed, merged(rows, entries))

    predicted_s = [estimate.predicted_s for estimate in tuning.estimates]
    todo = [item for search in searches for item in waiting(search, tuning.results, tuning.retry)]
    show = LiveProgress if sys.stderr.isatty() else PlainProgress
    with full_disk_said(path.parent), show(TimeLeft(tuning.forecast(), todo), len(todo)) as observer:
        run_searches(searches, tuning.results, predicted_s, observer, ended, tuning.retry)
    if as_json:
        content = {"experiment": experiment.name, "file": str(path), "seed": tuning.seed}
        print_json({**content, "rows": [shown(entry) for entry in entries]})
    else:
        _print_table(entries)
    _say(experiment, path, entries)
    return EXIT_OK if all(entry.lr is not None for entry in entries) else EXIT_CELLS_FAILED


def _print_table(entries: Sequence[TunedEntry]) -> None:
    numbers = ("nodes", "batch", "lr", "samples to target", "loss", "trials")
    table = new_table("arm", "model", "data", *numbers[:2], "optimizer", *numbers[2:], "grid", right=numbers)
    for entry in entries:
        chosen = entry.chosen
        batch = f"{entry.batch_size}" + (f"x{entry.accumulate}" if entry.accumulate > 1 else "")
        found = ("-", "-", "-")
        if chosen is not None:
            samples, loss = chosen.samples_to_target, chosen.loss
            found = (f"{chosen.lr:g}", str(samples or "-"), "-" if loss is None else f"{loss:.4g}")
        grid = f"{entry.grid[0]:g} to {entry.grid[-1]:g}{', on its edge' if entry.on_edge else ''}"
        names = (entry.arm, named(entry.model), named(entry.dataset), str(entry.nodes), batch)
        table.add_row(*names, next(iter(entry.optimizer)), *found, str(len(entry.trials)), grid)
    stdout().print(table)


def _say(experiment: Experiment, path: Path, entries: Sequence[TunedEntry]) -> None:
    """What is to be known about the rates, and how to use them."""
    for entry in entries:
        arm = f"{entry.arm} ({entry.workload}, {entry.nodes} node(s))"
        if entry.lr is None:
            stderr().print(f"{arm}: no rate: {entry.problem}")
        elif entry.on_edge:
            grid = f"{entry.grid[0]:g} to {entry.grid[-1]:g}"
            stderr().print(f"{arm}: {entry.lr:g} lies on the edge of the grid, {grid}; --widen 2 looks beyond")
        if entry.chosen is not None and entry.target is not None and entry.chosen.samples_to_target is None:
            stderr().print(f"{arm}: no rate reached the target within {entry.limit_samples} samples; chosen by loss")
    if path.resolve() not in experiment.tables:
        relative = os.path.relpath(path.resolve(), experiment.file.parent.resolve())
        stderr().print(f"{path} is written; {experiment.file} uses it with 'optimizer: {{tuned: {relative}}}'")
    else:
        stderr().print(f"{path} is written")


@dataclass(frozen=True)
class _Planned:
    """What would run of a search, as ``--json`` has it."""

    arm: str
    model: str
    dataset: str
    nodes: int
    optimizer: str
    trials_done: int
    rates_to_run: list[float]
    at_most_trials: int
    predicted_s: float


def _planned(tuning: _Tuning, search: Search, forecast: Forecast) -> _Planned:
    found, first = progress(search, tuning.results), planned(search, search.grid[0], tuning.results)
    rates = {search.cell(lr).id: lr for lr in search.grid}
    to_run = waiting(search, tuning.results, tuning.retry)
    return _Planned(
        arm=search.arm,
        model=search.config.model.name,
        dataset=search.config.dataset.source.name,
        nodes=search.config.nodes,
        optimizer=search.config.optimizer.name,
        trials_done=len(found.trials),
        rates_to_run=[rates[item.cell.id] for item in to_run],
        at_most_trials=len(search.grid) - len(found.trials) if found.state.missing else 0,
        predicted_s=forecast.predict(first).total_s,
    )


def _print_plan(tuning: _Tuning, *, as_json: bool) -> None:
    """What would run now; what comes after that depends on what these trials come to."""
    forecast = tuning.forecast()
    rows = [_planned(tuning, search, forecast) for search in tuning.searches]
    count = sum(len(row.rates_to_run) for row in rows)
    least_s = sum(len(row.rates_to_run) * row.predicted_s for row in rows)
    most_s = sum(row.at_most_trials * row.predicted_s for row in rows)
    if as_json:
        print_json({"rows": [vars(row) for row in rows], "predicted_s": least_s, "at_most_s": most_s})
        return
    numbers = ("nodes", "done", "a trial")
    columns = ("arm", "model", "data", "nodes", "optimizer", "done", "to run now", "a trial")
    table = new_table(*columns, right=numbers)
    for row in rows:
        rates = ", ".join(f"{lr:g}" for lr in row.rates_to_run) or "-"
        texts = (row.arm, row.model, row.dataset, str(row.nodes), row.optimizer, str(row.trials_done))
        table.add_row(*texts, rates, seconds(row.predicted_s))
    stdout().print(table)
    text = f"{len(rows)} searches, {count} trials to run now: {seconds(least_s)} if they go to the limit"
    stderr().print(f"{text}; at most {seconds(most_s)}, if every search goes through its whole grid")


def _plugins(experiment: Experiment) -> tuple[str, ...]:
    return tuple(str(plugin) for plugin in experiment.plugins)
