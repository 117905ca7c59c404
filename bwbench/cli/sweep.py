"""``bwbench sweep``: all cells of many experiment files, unattended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bwbench.base.errors import Problem
    from bwbench.experiment.plan import Cell
    from bwbench.running.cluster.run import Elsewhere
    from bwbench.running.sweep import SweepPlan
    from bwbench.running.sweep.loop import Tally
    from bwbench.running.sweep.notify import Notifier

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILES]…", help="Experiment files (YAML), or folders of them.", show_default=False),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the files; repeatable.")
]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="full|composed",
        help="Run every cell whole, or compose most of them; in place of the key `mode`.",
    ),
]
Results = Annotated[Path, typer.Option(help="Folder for results.")]
Retry = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        help="Run cells again that ended as failed, timeout, diverged or invalid; repeatable, or a|b.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only cells with this value (or a|b) of a key: arm, repeat, link.bandwidth, …; repeatable.",
    ),
]
Shard = Annotated[
    str | None, typer.Option(metavar="I/N", help="The I-th of N parts, from 1: one for each machine or array job.")
]
OrderSeed = Annotated[int, typer.Option(help="Seed of the order of cells inside a block of repeats.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop after the first cell that is not done.")]
Notify = Annotated[
    str | None,
    typer.Option(metavar="CMD", help="Run this with sh for every cell that is not done, and at the end."),
]
On = Annotated[
    str | None,
    typer.Option(metavar="WHERE", help="Run cells on the machines of a Ray cluster: ray, or ray://HOST:PORT."),
]
CellsPerMachine = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="With --on: cells at a time on one machine, whose times disturb each other. [1]", min=1
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would run, as `bwbench plan` does.")]

EXPERIMENTS = Path("experiments")


def sweep(
    files: Files = None,
    set_: Set = None,
    results: Results = Path("results"),
    retry: Retry = None,
    only: Only = None,
    shard: Shard = None,
    fail_fast: FailFast = False,
    notify: Notify = None,
    order_seed: OrderSeed = 0,
    on: On = None,
    cells_per_machine: CellsPerMachine = None,
    mode: Mode = None,
    dry_run: DryRun = False,
) -> int:
    """Run all cells of many experiments that are not done yet; without FILES those in experiments/.

    All first repeats run before all second ones, in a shuffled order. What happens to the files meanwhile changes
    nothing. Run the same command again after an interruption: only what is missing runs. A second process with the same
    results takes part in the work. An arm whose cells fail three times the same way is left out. Exit status 0 when
    every cell is done, 1 when some failed, 2 for a mistake in a file, 3 when this machine cannot make the links or the
    disk is full.
    """
    from bwbench.cli.plan import show_sweep
    from bwbench.running.sweep import Selection, plan_sweep

    elsewhere = _elsewhere(on, cells_per_machine)
    planned = plan_sweep(
        files or [EXPERIMENTS],
        results,
        overrides(set_, mode),
        check_retry(retry),
        Selection.parse(only or [], shard),
        order_seed,
    )
    return show_sweep(planned, json=False) if dry_run else carry_out(planned, fail_fast, notify, elsewhere)


def overrides(set_: list[str] | None, mode: str | None) -> list[str]:
    """What the options put in place of keys of the files."""
    return [*(set_ or []), *([f"mode={mode}"] if mode is not None else [])]


def _elsewhere(on: str | None, cells_per_machine: int | None) -> Elsewhere | None:
    """Where cells run, if not here; raises ConfigError where that cannot be."""
    from bwbench.base.errors import ConfigError

    if on is None:
        if cells_per_machine is not None:
            raise ConfigError("--cells-per-machine goes with --on; here, cells of several sweeps take turns")
        return None
    from bwbench.running.cluster.run import Elsewhere

    return Elsewhere.parse(on, cells_per_machine or 1)


def carry_out(
    sweep: SweepPlan, fail_fast: bool = False, notify: str | None = None, elsewhere: Elsewhere | None = None
) -> int:
    """Check, freeze and run a sweep, and print how it ended. Returns the exit status."""
    import sys

    from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK
    from bwbench.cli.outcome_table import print_outcome
    from bwbench.cli.output import stderr
    from bwbench.cli.progress import LiveProgress, PlainProgress
    from bwbench.experiment.plan import Forecast, doubts, foresee
    from bwbench.running.sweep import freeze_sweep
    from bwbench.running.sweep.loop import Account, Tally, run_sweep
    from bwbench.running.sweep.notify import Notifier
    from bwbench.running.sweep.time_left import TimeLeft

    console = stderr()
    check_launcher(sweep, elsewhere)
    for text in (*sweep.warnings, *doubts(sweep.selected)):
        console.print(f"note: {text}")
    if elsewhere is None:
        check_data([item.cell for item in sweep.todo if item.cell.config.launcher == "local"])
    foreseen = foresee(sweep.foreseen) if sweep.todo else Forecast({})
    predicted_s = {cell_id: estimate.predicted_s for cell_id, estimate in foreseen.estimates.items()}
    left = TimeLeft(foreseen)
    freeze_sweep(sweep)
    notifier, tally = Notifier(notify, lambda text: console.print(f"note: {text}")), Tally()
    with _EndTold(notifier, tally):
        with LiveProgress(left, sweep.todo) if sys.stderr.isatty() else PlainProgress(left, sweep.todo) as progress:
            if elsewhere is None:
                run_sweep(sweep.selected, predicted_s, progress, notifier, fail_fast, tally=tally)
            else:
                elsewhere.run_sweep(sweep, predicted_s, Account(sweep.selected, progress, notifier, fail_fast, tally))
    print_outcome(sweep.selected, tally)
    return EXIT_OK if tally.all_done else EXIT_CELLS_FAILED


class _EndTold:
    """Tell the user's command how a sweep has ended, whichever way it did."""

    def __init__(self, notifier: Notifier, tally: Tally) -> None:
        self._notifier, self._tally = notifier, tally

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        counts = self._tally.counts
        text = ", ".join(f"{number} {status}" for status, number in counts.items()) or "no cells"
        if error is None:
            self._notifier.ended("done" if self._tally.all_done else "failed", text, counts)
        elif isinstance(error, KeyboardInterrupt):
            self._notifier.ended("interrupted", text, counts)
        else:
            self._notifier.ended("unfit", f"{error}", counts)


def check_launcher(sweep: SweepPlan, elsewhere: Elsewhere | None) -> None:
    """Raise ConfigError where another program is to start the workers, UnfitMachineError where a host is unfit."""
    from bwbench.base.errors import ConfigError, Problem

    problems = [
        Problem(
            "launcher: external leaves it to torchrun or Slurm to start the workers; "
            f"'bwbench launch-script {plan.experiment.file}' prints the file that does so",
            str(plan.experiment.file),
        )
        for plan in sweep.plans
        if any(cell.config.launcher == "external" for cell in plan.cells)
    ]
    if problems:
        raise ConfigError(problems)
    on_hosts = [item.cell for item in sweep.todo if item.cell.config.launcher == "ssh"]
    if on_hosts and elsewhere is not None:
        raise ConfigError("--on is for cells that one machine runs by itself; launcher: ssh needs its hosts")
    if on_hosts:
        from bwbench.running.launch.ssh.preflight import check_hosts, refuse_unfit

        for hosts in dict.fromkeys(cell.config.hosts for cell in on_hosts):
            refuse_unfit(check_hosts(hosts, [cell for cell in on_hosts if cell.config.hosts == hosts]))


def check_data(cells: Sequence[Cell]) -> None:
    """Raise ConfigError where a data set that ``cells`` need has not been fetched: before anything starts."""
    from bwbench.base.errors import ConfigError
    from bwbench.base.registry import DATASETS
    from bwbench.training.datasets.folder import data_folder

    problems: list[Problem] = []
    sources = {cell.config.dataset.source.name: cell.config.dataset.source for cell in reversed(cells)}
    for source in sources.values():
        missing = source.build(DATASETS).missing(data_folder())
        problems += missing.problems if missing is not None else []
    if problems:
        raise ConfigError(problems)


def check_retry(retry: list[str] | None) -> list[str]:
    """The statuses after --retry; raises ConfigError for anything that is none."""
    from bwbench.base.errors import ConfigError
    from bwbench.experiment.plan.assess import ENDED_UNDONE

    wanted = [name for group in retry or [] for name in group.split("|")]
    for name in wanted:
        if name not in ENDED_UNDONE:
            raise ConfigError(f"--retry {name!r} is no status that can be retried; allowed: {', '.join(ENDED_UNDONE)}")
    return wanted
