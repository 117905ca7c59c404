"""A sweep that is carried out: what is checked before it, and how it ends, is told to the user and to ``--notify``.

The table at its end says which method got there first, and whether several nodes were worth it.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError, Problem, RecordError
from bwbench.base.registry import DATASETS
from bwbench.base.units import rounded
from bwbench.cli.cell_table import RECORDED_NOTE, time_to_target
from bwbench.cli.output import MAX_ROWS, new_table, say_unreadable, size, stderr, stdout
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress
from bwbench.experiment.plan import Cell, Forecast, doubts, foresee
from bwbench.experiment.plan.assess import ENDED_UNDONE, UNREADABLE, PlannedCell
from bwbench.methods.roles import REFERENCE
from bwbench.records import CellFolder, cell_at
from bwbench.records.schema import Status
from bwbench.results.analysis.caveats import composed_errors, composed_note, provenance_note
from bwbench.results.analysis.cells import cell_row, is_composed, is_virtual
from bwbench.results.analysis.grouping import flat_settings, group_cells
from bwbench.results.analysis.host_bound import OwnSteps, host_bound_note
from bwbench.running.sweep import SweepPlan, freeze_sweep
from bwbench.running.sweep.account import Account, Notifier, SweepObserver, Tally, TimeLeft
from bwbench.running.sweep.rounds import in_rounds
from bwbench.running.sweep.scheduler import Scheduler
from bwbench.running.sweep.this_machine import ThisMachine
from bwbench.training.datasets.dataset import data_folder

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
        check_data([item.cell for item in sweep.todo if item.cell.config.launcher == "local"])
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
    ordered = in_rounds(sweep.todo, sweep.order_seed)
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
    """Raise ConfigError where another program is to start the workers, UnfitMachineError where a host is unfit."""
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


Row: TypeAlias = tuple[PlannedCell, CellFolder, Status]
MOST_REASONS = 20  # of cells that are not done, each of some lines
_METHOD_KEYS = ("nodes", "link", "algorithm", "collective", "compression", "dilation")


def print_outcome(planned: Sequence[PlannedCell], tally: Tally) -> None:
    """Print a table of the cells that are done on stdout, fastest first; what else is to be said of all on stderr.

    Those of virtual nodes stand last, by their samples.
    """
    found = [(item, cell_at(item.folder)) for item in planned]
    refused = [problem for item, folder in found if (problem := folder.problem or _foreign(item)) is not None]
    cells = [(item, folder, folder.status) for item, folder in found if not (folder.problem or _foreign(item))]
    done = [(item, folder, status) for item, folder, status in cells if status is not None and status.status == "done"]
    done.sort(key=_place)
    if done:
        _print_table(done, _Singles([(item, status) for item, _, status in cells]))
    folders = [folder for _, folder, _ in done]
    composed = composed_note(sum(map(is_composed, folders)), len(done), [e.error for e in composed_errors(folders)])
    timed = [status for _, folder, status in done if not is_virtual(folder)]
    crossed = RECORDED_NOTE if any(status.time_to_target_s is not None for status in timed) else None
    own = OwnSteps.of(folders)
    bound = host_bound_note([cell_row(folder) | own.row(folder) for folder in folders])
    for note in (crossed, composed, bound, provenance_note(folders)):
        if note:
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


def _print_table(done: Sequence[Row], singles: _Singles) -> None:
    # Flat names of what tells cells of one method on one link apart, as ``batch_size`` or ``model.name``.
    settings = [name for name, _ in group_cells([folder for _, folder, _ in done], {"link"})[0].key]
    right = ("time to target", "vs single", "samples to target", "final", "payload/step", "wire/step")
    varied = (name.removesuffix(".name") for name in settings)
    table = new_table("method", *varied, "link", *right, "goodput asked", "achieved", right=right)
    for item, folder, status in done[:MAX_ROWS]:
        method, *rest = _row(item, folder, status, singles.time_s(item))
        flat = flat_settings(folder)
        table.add_row(method, *(str(flat.get(name, "-")) for name in settings), *rest)
    stdout().print(table)
    if len(done) > MAX_ROWS:
        stderr().print(f"… and {len(done) - MAX_ROWS} slower ones; `bwbench status` lists all")


def _row(item: PlannedCell, folder: CellFolder, status: Status, single_s: float) -> tuple[str, ...]:
    own_s, virtual = _time_to_target(status), is_virtual(folder)
    ratio = single_s / own_s if own_s > 0 and not virtual else math.nan  # 0: a target met before the first step
    reached = time_to_target(
        status.time_to_target_s, status.censored_at_s, composed=status.composed is not None, virtual=virtual
    )
    wire = folder.link.wire if folder.link is not None else None
    return (
        f"{item.cell.arm}" + (f" (seed {item.cell.config.seed})" if item.cell.config.seed else ""),
        item.cell.config.link.describe().partition(" (")[0],
        reached,
        f"{ratio:.2f}x" if math.isfinite(ratio) and ratio > 0 else "-",
        str(status.samples_to_target or "-"),
        f"{status.final_metric:.3f}" if status.final_metric is not None else "-",
        size(_per_step(status, status.payload_bytes)),
        size(wire.per_step_bytes if wire is not None else _per_step(status, status.wire_bytes)),
        *_goodput(folder),
    )


def _per_step(status: Status, num_bytes: int | None) -> float | None:
    return num_bytes / status.steps if status.steps and num_bytes is not None else None


def _goodput(folder: CellFolder) -> tuple[str, str]:
    """Asked and achieved goodput between neighbours before training, in Mbit/s: lowest and highest of all pairs."""
    measured = folder.link.in_asked_time.achieved_before if folder.link is not None else None
    if measured is None or not measured.pairs or not (asked_bps := measured.pairs[0].asked_goodput_bps):
        return "-", "-"
    achieved = sorted((pair.achieved_goodput_bps or 0.0) / 1e6 for pair in measured.pairs)
    return f"{rounded(asked_bps / 1e6, 4)} Mbit/s", f"{rounded(achieved[0], 4)}-{rounded(achieved[-1], 4)}"


def _time_to_target(status: Status | None) -> float:
    reached_s = status.time_to_target_s if status is not None else None
    return reached_s if reached_s is not None else math.inf


def _place(row: Row) -> tuple[bool, float]:
    _, folder, status = row
    if is_virtual(folder):
        return True, status.samples_to_target or math.inf
    return False, _time_to_target(status)


class _Singles:
    """The `single` cell that each other one compares with: they differ in how nodes agree, and over what link.

    Where every arm has a learning rate of its own, it is the only one that differs in nothing but its optimizer.
    """

    def __init__(self, cells: Sequence[tuple[PlannedCell, Status | None]]) -> None:
        self._found: dict[str, list[float]] = {}
        for item, status in cells:
            if item.cell.role == REFERENCE:
                done = status is not None and status.status == "done"
                for workload in _workloads(item):
                    self._found.setdefault(workload, []).append(_time_to_target(status) if done else math.nan)

    def time_s(self, item: PlannedCell) -> float:
        """Its time to target; nan where there is none to compare with."""
        if not self._found:
            return math.nan
        found = (self._found.get(workload, []) for workload in _workloads(item))
        return next((times_s[0] for times_s in found if len(times_s) == 1), math.nan)


def _workloads(item: PlannedCell) -> list[str]:
    """What is trained, with and without its optimizer. Of the nodes' step times that of node 0, which `single` is."""
    asked = item.cell.config
    config = asked.model_dump(mode="json", by_alias=True, exclude={*_METHOD_KEYS, "compute"})
    config |= {"threads": asked.compute.threads, "step_time": str(asked.compute.step_time_of(0))}
    without = {key: value for key, value in config.items() if key != "optimizer"}
    return [json.dumps(content, sort_keys=True) for content in (config, without)]
