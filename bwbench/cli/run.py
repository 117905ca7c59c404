"""``bwbench run``: the cells of one experiment file that are missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.errors import EXIT_CELLS_FAILED, EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bwbench.errors import Problem
    from bwbench.plan import Cell


def run(
    file: Annotated[Path, typer.Argument(help="Experiment file (YAML).", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file; repeatable.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder for results.")] = Path("results"),
    retry: Annotated[
        list[str] | None,
        typer.Option(help="Run cells again that ended as failed, timeout, diverged or invalid; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would run, as `bwbench plan` does.")
    ] = False,
) -> int:
    """Run an experiment: every cell of its matrix that is not done yet.

    Run the same command again after an interruption: only what is missing runs. Exit status 0 when every cell is done,
    1 when some failed, 2 for a mistake in the file, 3 when this machine cannot make the links.
    """
    from bwbench.cli.plan import plan as show_plan

    if dry_run:
        return show_plan(file, set_=set_, results=results, retry=retry, json_=False)

    from bwbench.cli.outcome_table import print_outcome
    from bwbench.cli.output import stderr
    from bwbench.cli.progress import LiveProgress, PlainProgress
    from bwbench.config import load_experiment
    from bwbench.plan import assess, build_plan, doubts, estimate_cells
    from bwbench.runner import run_experiment

    experiment = load_experiment(file, set_ or [])
    plan = build_plan(experiment)
    planned = assess(plan.cells, results, check_retry(retry))
    for warning in (*experiment.warnings, *doubts(planned)):
        stderr().print(f"note: {warning}")
    todo = [item for item in planned if item.runs]
    check_data([item.cell for item in todo])
    predicted_s: dict[str, float] = {}
    if todo:
        estimates = estimate_cells([item.cell for item in todo])
        predicted_s = {cell_id: estimate.predicted_s for cell_id, estimate in estimates.items()}
    with LiveProgress(predicted_s) if sys.stderr.isatty() else PlainProgress() as progress:
        tally = run_experiment(planned, plan.to_json(), results, predicted_s, progress)
    print_outcome(planned, tally)
    return EXIT_OK if tally.all_done else EXIT_CELLS_FAILED


def check_data(cells: Sequence[Cell]) -> None:
    """Raise ConfigError where a data set that ``cells`` need has not been fetched: before anything starts."""
    from bwbench.datasets.folder import data_folder
    from bwbench.errors import ConfigError
    from bwbench.registry import DATASETS

    problems: list[Problem] = []
    for name in dict.fromkeys(cell.config.dataset.source.name for cell in cells):
        source = next(cell.config.dataset.source for cell in cells if cell.config.dataset.source.name == name)
        missing = source.build(DATASETS).missing(data_folder())
        problems += missing.problems if missing is not None else []
    if problems:
        raise ConfigError(problems)


def check_retry(retry: list[str] | None) -> list[str]:
    """The statuses after --retry; raises ConfigError for anything that is none."""
    from bwbench.errors import ConfigError
    from bwbench.plan.assess import ENDED_UNDONE

    wanted = [name for group in retry or [] for name in group.split("|")]
    for name in wanted:
        if name not in ENDED_UNDONE:
            raise ConfigError(f"--retry {name!r} is no status that can be retried; allowed: {', '.join(ENDED_UNDONE)}")
    return wanted
