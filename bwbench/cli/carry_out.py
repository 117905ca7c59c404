"""A sweep that is carried out: what is checked before it, and how it ends, is told to the user and to ``--notify``.

The table at its end says which method got there first, and whether several nodes were worth it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError, Problem, RecordError
from bwbench.cli.answer_text import answer_lines
from bwbench.cli.needed_here import check_needed
from bwbench.cli.outcome_table import outcome_lines, outcome_notes, where_rates_stand
from bwbench.cli.output import say_unreadable, stderr, table_width
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress
from bwbench.experiment.plan import Forecast, doubts, foresee
from bwbench.experiment.plan.assess import ENDED_UNDONE, UNREADABLE, PlannedCell
from bwbench.records import cell_at
from bwbench.results.analysis.answer import answers
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.running.sweep import SweepPlan, freeze_sweep
from bwbench.running.sweep.account import Account, Notifier, SweepObserver, Tally, TimeLeft
from bwbench.running.sweep.rounds import in_rounds
from bwbench.running.sweep.scheduler import Scheduler
from bwbench.running.this_machine import ThisMachine

if TYPE_CHECKING:
    from bwbench.running.cluster.ray_executor import RayCluster


ShowProgress: TypeAlias = Callable[[TimeLeft, int], AbstractContextManager[SweepObserver]]


def carry_out(sweep: SweepPlan, elsewhere: RayCluster | None, notify: str | None, *, fail_fast: bool) -> int:
    """Check, freeze and run a sweep, and print how it ended. Returns the exit status.

    Args:
        elsewhere: where its cells run, if not here.
        notify: the user's command for every cell that is not done, and for the end.
    """
    show = LiveProgress if sys.stderr.isatty() else PlainProgress
    selected, tally = run_sweep(sweep, show, elsewhere, notify, fail_fast=fail_fast)
    if sweep.part:
        print_outcome_of_part(sweep)
    else:
        print_outcome(selected, tally)
    return EXIT_OK if tally.all_done else EXIT_CELLS_FAILED


def run_sweep(
    sweep: SweepPlan,
    show: ShowProgress,
    elsewhere: RayCluster | None = None,
    notify: str | None = None,
    *,
    fail_fast: bool = False,
) -> tuple[Sequence[PlannedCell], Tally]:
    """Check, freeze and run a sweep; notes go to stderr. Returns all its cells, and how many ended how.

    Args:
        show: makes what shows its progress.
        elsewhere, notify: as ``carry_out``.
    """
    console = stderr()
    check_launcher(sweep, elsewhere)
    for text in (*sweep.warnings, *doubts(sweep.selected)):
        console.print(f"note: {text}")
    if elsewhere is None:
        check_needed(item.cell for item in sweep.todo)
    notifier, tally = Notifier(notify, lambda text: console.print(f"note: {text}")), Tally()
    with _end_told(notifier, tally):
        _run_cells(sweep, show, elsewhere, notifier, tally, fail_fast=fail_fast)
        selected = list(sweep.selected)
        while not (fail_fast and not tally.all_done) and (grown := sweep.grown()) is not None:
            for text in grown.about_repeats:
                console.print(f"note: {text}")
            _run_cells(grown, show, elsewhere, notifier, tally, fail_fast=fail_fast)
            selected += grown.selected
            sweep = replace(grown, selected=tuple(selected))
    return sweep.selected, tally


def _run_cells(
    sweep: SweepPlan,
    show: ShowProgress,
    elsewhere: RayCluster | None,
    notifier: Notifier,
    tally: Tally,
    *,
    fail_fast: bool,
) -> None:
    """Freeze a plan and work through what is to run of it."""
    foreseen = foresee(sweep.foreseen) if sweep.todo else Forecast({})
    predicted_s = {cell_id: estimate.predicted_s for cell_id, estimate in foreseen.estimates.items()}
    left, total = TimeLeft(foreseen, sweep.todo), len(sweep.todo)
    ordered = sweep.todo if sweep.part else in_rounds(sweep.todo, sweep.order_seed)
    freeze_sweep(sweep)
    with show(left, total) as progress:
        account = Account(sweep.selected, progress, notifier, tally, fail_fast=fail_fast)
        if elsewhere is None:
            with contextlib.closing(ThisMachine()) as here:
                Scheduler(here, account, predicted_s).work_through(ordered)
        elif sweep.todo:
            with elsewhere.executor(sweep) as executor:
                Scheduler(executor, account, predicted_s).work_through(ordered)


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
    """Raise ConfigError where another program is to start the workers, or a cluster would have to find them GPUs.

    Raises UnfitMachineError where a host is unfit.
    """
    problems = [
        Problem(
            "launcher: external leaves it to torchrun or Slurm to start the workers; "
            f"'bwbench launch-script {plan.experiment.file or 'FILE'}' prints the file that does so",
            str(plan.experiment.file or "experiment"),
        )
        for plan in sweep.plans
        if any(cell.config.launcher == "external" for cell in plan.cells)
    ]
    if problems:
        raise ConfigError(problems)
    on_hosts = [item.cell for item in sweep.todo if item.cell.config.launcher == "ssh"]
    if on_hosts and elsewhere is not None:
        raise ConfigError("--on is for cells that one machine runs by itself; launcher: ssh needs its hosts")
    if elsewhere is not None and any(item.cell.config.compute.device != "cpu" for item in sweep.todo):
        raise ConfigError(
            "compute.device: cuda does not go with --on, which asks the cluster for processors and not for GPUs; write "
            "'device: cpu', or run these cells on the machine that has the GPU, without --on"
        )
    if on_hosts:
        from bwbench.running.launch.ssh.preflight import check_hosts, refuse_unfit  # asyncssh is an extra

        for hosts in dict.fromkeys(cell.config.hosts for cell in on_hosts):
            refuse_unfit(check_hosts(hosts, [cell for cell in on_hosts if cell.config.hosts == hosts]))


MOST_REASONS = 20  # of cells that are not done, each of some lines


def print_outcome_of_part(sweep: SweepPlan) -> None:
    """Say how the runs of one kind have ended, and what puts cells together from them."""
    statuses = [(item, cell_at(item.folder).status) for item in sweep.selected]
    undone = [(item, status) for item, status in statuses if status is None or status.status != "done"]
    for item, status in undone[:MOST_REASONS]:
        said = "not run" if status is None else f"{status.status}: {status.reason or ''}"
        stderr().print(f"{item.cell.slug}: {said}")
    made = f"{len(statuses) - len(undone)} of {len(statuses)} are done" if statuses else "none is missing"
    stderr().print(f"{sweep.part} runs: {made}; the same command without --part puts cells together")


def print_outcome(planned: Sequence[PlannedCell], tally: Tally) -> None:
    """Print a table of the cells that are done on stdout; what else is to be said of all on stderr."""
    found = [(item, cell_at(item.folder)) for item in planned]
    refused = [problem for item, folder in found if (problem := folder.problem or _foreign(item)) is not None]
    cells = [(item, folder, folder.status) for item, folder in found if not (folder.problem or _foreign(item))]
    done = [folder for _, folder, status in cells if status is not None and status.status == "done"]
    configs = {folder.path: item.cell.config.model_dump(mode="json", by_alias=True) for item, folder, _ in cells}
    if done:
        width, labels = table_width(), arm_labels(folder.cell for folder in done)
        in_short = list(answer_lines(answers(done, labels=labels), width))
        for line in (*outcome_lines(done, configs, width), *([""] if in_short else []), *in_short[:-1]):
            print(line)
        sys.stdout.flush()
    for note in (*outcome_notes(done, configs), *where_rates_stand(done)):
        stderr().print(f"note: {note}")
    undone = [(item, status) for item, _, status in cells if status is not None and status.status != "done"]
    for item, status in undone[:MOST_REASONS]:
        stderr().print(f"{item.cell.slug}: {status.status}: {status.reason or ''}")
    if len(undone) > MOST_REASONS:
        stderr().print(f"… and {len(undone) - MOST_REASONS} more; `bwbench status` lists all")
    say_unreadable(refused)
    if left := {status: count for status, count in tally.earlier.items() if status in ENDED_UNDONE}:
        again = " ".join(f"--retry {status}" for status in sorted(left))
        stderr().print(
            f"{sum(left.values())} cell(s) had ended badly before and were left alone; {again} runs them again"
        )


def _foreign(item: PlannedCell) -> RecordError | None:
    """Why what lies in a cell's folder is not the planned cell, though it can be read."""
    return RecordError(item.why) if item.status == UNREADABLE else None
