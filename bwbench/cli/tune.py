"""``bwbench tune``: the same search over learning rates for every arm of an experiment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bwbench.experiment.config.experiment import Experiment
    from bwbench.experiment.config.tuned_table import Entry
    from bwbench.experiment.plan import CellEstimate
    from bwbench.running.sweep.time_left import TimeLeft
    from bwbench.running.tuning.searches import Search

TUNING_SEED = 1000
MAX_WIDEN = 10
_RETRY = ("failed", "timeout", "invalid")


def tune(
    file: Annotated[Path, typer.Argument(help="Experiment file (YAML).", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file; repeatable.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder for results; trials lie in .tuning in it.")] = Path("results"),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Table to write; by default the one that FILE names, or experiments/tuning/NAME.yaml.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of all trials; no seed that is reported.")] = (
        TUNING_SEED
    ),
    widen: Annotated[
        int, typer.Option(min=0, max=MAX_WIDEN, help="Powers of two to add at both ends of every grid.")
    ] = 0,
    retry: Annotated[
        list[str] | None, typer.Option(help="Run trials again that ended as failed, timeout or invalid; repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run, and for how long.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Find a learning rate for every arm: the same search for all, on an unshaped link.

    Each arm trains with the middle three rates of a grid of powers of two, then outwards while the best is outermost.
    Best is what needs the fewest samples to the target, then what has the lowest validation loss. The table that this
    writes is used by `optimizer: {tuned: FILE}`. Run the same command again after an interruption: it goes on.
    """
    from bwbench.base.errors import EXIT_OK
    from bwbench.cli.output import stderr
    from bwbench.experiment.config import load_experiment
    from bwbench.experiment.plan import estimate_cells
    from bwbench.running.tuning.searches import searches_of, widening
    from bwbench.running.tuning.table import read_rows

    wanted = _check_retry(retry)
    experiment = load_experiment(file, set_ or [], tuning=True)
    path = output or _default_output(experiment)
    old = read_rows(path, seed, tuple(str(plugin) for plugin in experiment.plugins))
    searches = searches_of(experiment, seed, max(widen, widening(old)), old)
    for warning in (*experiment.warnings, *(note for search in searches for note in search.notes)):
        stderr().print(f"note: {warning}")
    first = [search.cell(search.grid[0]) for search in searches]  # the rate changes nothing about the time
    estimates = estimate_cells(first)
    of_searches = [estimates[cell.id] for cell in first]
    if dry_run:
        _print_plan(searches, results, wanted, of_searches, json_)
        return EXIT_OK
    return _run(experiment, path, searches, results, seed, wanted, of_searches, json_)


def _run(
    experiment: Experiment,
    path: Path,
    searches: Sequence[Search],
    results: Path,
    seed: int,
    retry: tuple[str, ...],
    estimates: Sequence[CellEstimate],
    json_: bool,
) -> int:
    from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK
    from bwbench.cli.output import print_json
    from bwbench.cli.progress import LiveProgress, PlainProgress
    from bwbench.cli.sweep import check_data
    from bwbench.records.disk import full_disk_said
    from bwbench.running.tuning.table import entry_of, merged, read_rows, settled, shown, write_table
    from bwbench.running.tuning.trials import Progress, waiting
    from bwbench.running.tuning.tune import tune as run_searches

    plugins = tuple(str(plugin) for plugin in experiment.plugins)
    check_data([search.cell(search.grid[0]) for search in searches])
    entries: list[Entry] = []

    def ended(search: Search, found: Progress) -> None:
        rows = read_rows(path, seed, plugins)  # anew: another experiment may fill the same table at the same time
        entries.append(settled(rows, entry_of(search, found)))
        write_table(path, experiment.name, seed, merged(rows, entries))

    left = _time_left(searches, estimates)
    predicted_s = [estimate.predicted_s for estimate in estimates]
    todo = [item for search in searches for item in waiting(search, results, retry)]
    show = LiveProgress if sys.stderr.isatty() else PlainProgress
    with full_disk_said(path.parent), show(left, todo) as observer:
        run_searches(searches, results, predicted_s, observer, ended, retry)
    if json_:
        content = {"experiment": experiment.name, "file": str(path), "seed": seed}
        print_json({**content, "rows": [shown(entry) for entry in entries]})
    else:
        _print_table(entries)
    _say(experiment, path, entries)
    return EXIT_OK if all(entry.lr is not None for entry in entries) else EXIT_CELLS_FAILED


def _print_table(entries: Sequence[Entry]) -> None:
    from bwbench.cli.output import new_table, stdout
    from bwbench.experiment.config.tuned_table import named

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


def _say(experiment: Experiment, path: Path, entries: Sequence[Entry]) -> None:
    """What is to be known about the rates, and how to use them."""
    from bwbench.cli.output import stderr

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


def _print_plan(
    searches: Sequence[Search],
    results: Path,
    retry: tuple[str, ...],
    estimates: Sequence[CellEstimate],
    json_: bool,
) -> None:
    """What would run now; what comes after that depends on what these trials come to."""
    from bwbench.cli.output import new_table, print_json, seconds, stderr, stdout
    from bwbench.running.tuning.trials import planned, progress, waiting

    rows: list[dict[str, Any]] = []
    left = _time_left(searches, estimates)
    for search in searches:
        found, first = progress(search, results), planned(search, search.grid[0], results)
        rows.append(
            {
                "arm": search.arm,
                "model": search.config.model.name,
                "dataset": search.config.dataset.source.name,
                "nodes": search.config.nodes,
                "optimizer": search.config.optimizer.name,
                "trials_done": len(found.trials),
                "rates_to_run": [
                    item.cell.config.optimizer.to_json()["lr"] for item in waiting(search, results, retry)
                ],
                "at_most_trials": len(search.grid) - len(found.trials) if found.state.missing else 0,
                "predicted_s": left.cell_s(first),
            }
        )
    count = sum(len(row["rates_to_run"]) for row in rows)
    least_s = sum(len(row["rates_to_run"]) * row["predicted_s"] for row in rows)
    most_s = sum(row["at_most_trials"] * row["predicted_s"] for row in rows)
    if json_:
        print_json({"rows": rows, "predicted_s": least_s, "at_most_s": most_s})
        return
    numbers = ("nodes", "done", "a trial")
    columns = ("arm", "model", "data", "nodes", "optimizer", "done", "to run now", "a trial")
    table = new_table(*columns, right=numbers)
    for row in rows:
        rates = ", ".join(f"{lr:g}" for lr in row["rates_to_run"]) or "-"
        texts = (row["arm"], row["model"], row["dataset"], str(row["nodes"]), row["optimizer"], str(row["trials_done"]))
        table.add_row(*texts, rates, seconds(row["predicted_s"]))
    stdout().print(table)
    text = f"{len(rows)} searches, {count} trials to run now: {seconds(least_s)} if they go to the limit"
    stderr().print(f"{text}; at most {seconds(most_s)}, if every search goes through its whole grid")


def _time_left(searches: Sequence[Search], estimates: Sequence[CellEstimate]) -> TimeLeft:
    """Knows how long the trials take, with start-up."""
    from bwbench.experiment.plan import Forecast
    from bwbench.running.sweep.time_left import TimeLeft

    pairs = zip(searches, estimates, strict=True)
    return TimeLeft(Forecast({search.cell(lr).id: estimate for search, estimate in pairs for lr in search.grid}))


def _default_output(experiment: Experiment) -> Path:
    from bwbench.base.errors import ConfigError

    if len(experiment.tables) > 1:
        names = ", ".join(map(str, experiment.tables))
        raise ConfigError(f"{experiment.file} names several tables ({names}); say with --output which to write")
    return experiment.tables[0] if experiment.tables else Path("experiments/tuning") / f"{experiment.name}.yaml"


def _check_retry(retry: list[str] | None) -> tuple[str, ...]:
    from bwbench.base.errors import ConfigError

    wanted = [name for group in retry or [] for name in group.split("|")]
    for name in wanted:
        if name not in _RETRY:
            hint = "; a rate at which the training diverges has been judged" if name == "diverged" else ""
            raise ConfigError(f"--retry {name!r} is no status that can be retried; allowed: {', '.join(_RETRY)}{hint}")
    return tuple(wanted)
