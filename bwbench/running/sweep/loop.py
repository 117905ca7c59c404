"""The loop over cells: claims, runs, tells; whatever happens to a cell, the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bwbench.base.errors import CellTakenError, RecordError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.lock import claim_of
from bwbench.records.schema import Status
from bwbench.running.cell import CellObserver, ended_since, wall_limit_s
from bwbench.running.composed import run_item
from bwbench.running.sweep.notify import Notifier
from bwbench.running.sweep.stopped_arms import StoppedArms

LOOK_AT_CLAIMS_S = 0.5

RunCell = Callable[[PlannedCell, float, CellObserver], Status]


class SweepObserver(CellObserver, Protocol):
    """Told what happens in a sweep; the command line shows it."""

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """A cell begins: the ``number``-th of the ``total`` that are to run."""

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """A cell that began here has ended with this."""

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        """Another process has ended a cell that was to run here."""

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        """A cell is left out; nothing is recorded of it."""

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        """Nothing is left to do but these cells, which other processes run: should those die, they run here."""

    def note(self, text: str) -> None:
        """Something that whoever watches should know."""


@dataclass
class Tally:
    """How many cells have each status: those that ran now, those that had ended before or elsewhere, those left out."""

    now: dict[str, int] = field(default_factory=dict)
    earlier: dict[str, int] = field(default_factory=dict)
    skipped: int = 0

    @property
    def all_done(self) -> bool:
        """Whether every cell is done, those of earlier runs included."""
        return not self.skipped and not (self.now.keys() | self.earlier.keys()) - {"done"}

    @property
    def counts(self) -> dict[str, int]:
        """All cells by status."""
        counts = {name: self.now.get(name, 0) + self.earlier.get(name, 0) for name in {**self.now, **self.earlier}}
        return {**counts, **({"skipped": self.skipped} if self.skipped else {})}


def run_sweep(
    selected: Sequence[PlannedCell],
    predicted_s: Mapping[str, float],
    observer: SweepObserver,
    notifier: Notifier,
    fail_fast: bool = False,
    run: RunCell = run_item,
    tally: Tally | None = None,
) -> Tally:
    """Run every cell that has to, one after another in this order; a failed one does not stop the others.

    Cells that another process runs meanwhile come last: by then they are done, or their process is dead.

    Args:
        selected: cells to run, and cells that are only counted.
        predicted_s: for each cell's id, how long it should take at most; far beyond that it is ended as ``timeout``.
        fail_fast: leave out what remains once a cell has failed.
        run: runs one cell.
        tally: is counted up while cells end, so that the caller knows what was reached should this raise.

    Raises:
        UnfitMachineError: the machine cannot make the networks, or the disk is full.
        KeyboardInterrupt: handed on after the running cell was recorded as ``interrupted``.
    """
    account = Account(selected, observer, notifier, fail_fast, tally if tally is not None else Tally())

    def settle(item: PlannedCell) -> bool:
        """Run a cell, or leave it out; False where another process is at it."""
        if account.settled(item):
            return True
        if claim_of(item.folder) is not None:
            return False
        account.begin(item)
        try:
            status = run(item, wall_limit_s(predicted_s.get(item.cell.id, 0.0)), observer)
        except CellTakenError:
            return False
        account.ended(item, status)
        return True

    taken = [item for item in selected if item.runs and not settle(item)]
    while taken:
        observer.waiting(taken)
        while all(claim_of(item.folder) is not None for item in taken):
            time.sleep(LOOK_AT_CLAIMS_S)  # without a limit of our own: every cell has one where it runs
        taken = [item for item in taken if not settle(item)]
    return account.tally


class Account:
    """What a sweep has come to: counts, tells, and says which cells are not worth running any more.

    Args:
        selected: cells to run, and cells that are only counted, which is done here.
    """

    def __init__(
        self,
        selected: Sequence[PlannedCell],
        observer: SweepObserver,
        notifier: Notifier,
        fail_fast: bool,
        tally: Tally,
    ) -> None:
        self.observer, self.tally = observer, tally
        self._notifier, self._fail_fast = notifier, fail_fast
        self._arms = StoppedArms()
        self._failed: PlannedCell | None = None
        self._total = sum(item.runs for item in selected)
        self._numbers: dict[tuple[str, str], int] = {}
        for item in selected:
            if not item.runs:
                self._count_earlier(item)

    def settled(self, item: PlannedCell) -> bool:
        """Whether a cell need not run any more, which is told: it is left out, or another process has ended it."""
        why = self._why_not(item)
        if why is not None:
            self.tally.skipped += 1
            self.observer.cell_skipped(item, why)
            return True
        try:
            recorded = ended_since(item)
        except RecordError as error:
            self.tally.skipped += 1
            self.observer.cell_skipped(item, str(error))
            return True
        if recorded is not None:
            self.tally.earlier[recorded.status] = self.tally.earlier.get(recorded.status, 0) + 1
            self._arms.note(item, recorded)
            self.observer.cell_elsewhere(item, recorded)
            return True
        return False

    def begin(self, item: PlannedCell) -> None:
        """Tell that a cell begins, for the first time or once more."""
        number = self._numbers.setdefault((item.cell.experiment, item.cell.id), len(self._numbers) + 1)
        self.observer.cell_started(item, number, self._total)

    def ended(self, item: PlannedCell, status: Status) -> None:
        """Take in how a cell that began here has ended."""
        self.tally.now[status.status] = self.tally.now.get(status.status, 0) + 1
        self.observer.cell_finished(item, status)
        self._arms.note(item, status)
        if status.status != "done":
            self._failed = self._failed or item
            self._notifier.cell_failed(item, status)

    def _count_earlier(self, item: PlannedCell) -> None:
        if item.status in ("missing", "interrupted"):  # of an arm that was stopped in an earlier run
            self.tally.skipped += 1
            self.observer.cell_skipped(item, item.why)
        else:
            self.tally.earlier[item.status] = self.tally.earlier.get(item.status, 0) + 1

    def _why_not(self, item: PlannedCell) -> str | None:
        if self._fail_fast and self._failed is not None:
            return f"--fail-fast: {self._failed.cell.slug} failed"
        return self._arms.why_not(item)
