"""A sweep that is carried out: what is checked before it, and how it ends, is told to the user and to ``--notify``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError, Problem
from bwbench.base.registry import DATASETS
from bwbench.cli.outcome_table import print_outcome
from bwbench.cli.output import stderr
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress
from bwbench.experiment.plan import Cell, Forecast, doubts, foresee
from bwbench.running.sweep import SweepPlan, freeze_sweep
from bwbench.running.sweep.account import Account, Notifier, Tally, TimeLeft
from bwbench.running.sweep.scheduler import Scheduler, ThisMachine
from bwbench.training.datasets.folder import data_folder

if TYPE_CHECKING:
    from bwbench.running.cluster.ray_executor import RayCluster


def carry_out(sweep: SweepPlan, elsewhere: RayCluster | None, notify: str | None, *, fail_fast: bool) -> int:
    """Check, freeze and run a sweep, and print how it ended. Returns the exit status.

    Args:
        elsewhere: where its cells run, if not here.
        notify: the user's command for every cell that is not done, and for the end.
    """
    console = stderr()
    check_launcher(sweep, elsewhere)
    for text in (*sweep.warnings, *doubts(sweep.selected)):
        console.print(f"note: {text}")
    if elsewhere is None:
        check_data([item.cell for item in sweep.todo if item.cell.config.launcher == "local"])
    foreseen = foresee(sweep.foreseen) if sweep.todo else Forecast({})
    predicted_s = {cell_id: estimate.predicted_s for cell_id, estimate in foreseen.estimates.items()}
    left, total = TimeLeft(foreseen, sweep.todo), len(sweep.todo)
    freeze_sweep(sweep)
    notifier, tally = Notifier(notify, lambda text: console.print(f"note: {text}")), Tally()
    with _end_told(notifier, tally):
        with (LiveProgress if sys.stderr.isatty() else PlainProgress)(left, total) as progress:
            account = Account(sweep.selected, progress, notifier, tally, fail_fast=fail_fast)
            if elsewhere is None:
                Scheduler(ThisMachine(), account, predicted_s).work_through(sweep.todo)
            elif sweep.todo:
                with elsewhere.executor(sweep) as executor:
                    Scheduler(executor, account, predicted_s).work_through(sweep.todo)
    print_outcome(sweep.selected, tally)
    return EXIT_OK if tally.all_done else EXIT_CELLS_FAILED


@contextlib.contextmanager
def _end_told(notifier: Notifier, tally: Tally) -> Iterator[None]:
    """Tell the user's command how a sweep has ended, whichever way it did."""
    outcome, text = "unfit", None
    try:
        yield
        outcome = "done" if tally.all_done else "failed"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    except BaseException as error:
        text = f"{error}"
        raise
    finally:
        reached = ", ".join(f"{number} {status}" for status, number in tally.counts.items()) or "no cells"
        notifier.ended(outcome, reached if text is None else text, tally.counts)


def check_launcher(sweep: SweepPlan, elsewhere: RayCluster | None) -> None:
    """Raise ConfigError where another program is to start the workers, UnfitMachineError where a host is unfit."""
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
        from bwbench.running.launch.ssh.preflight import check_hosts, refuse_unfit  # asyncssh is an extra

        for hosts in dict.fromkeys(cell.config.hosts for cell in on_hosts):
            refuse_unfit(check_hosts(hosts, [cell for cell in on_hosts if cell.config.hosts == hosts]))


def check_data(cells: Sequence[Cell]) -> None:
    """Raise ConfigError where a data set that ``cells`` need has not been fetched: before anything starts."""
    problems: list[Problem] = []
    sources = {cell.config.dataset.source.name: cell.config.dataset.source for cell in reversed(cells)}
    for source in sources.values():
        missing = source.build(DATASETS).missing(data_folder())
        problems += missing.problems if missing is not None else []
    if problems:
        raise ConfigError(problems)
