"""What a sweep has come to: who is told, what is counted, and which cells are not worth running any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bwbench.base.errors import RecordError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Status
from bwbench.running.run_cell import CellObserver, ended_since
from bwbench.running.sweep.notify import Notifier
from bwbench.running.sweep.stopped_arms import StoppedArms


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


class Account:
    """What a sweep has come to: counts, tells, and says which cells are not worth running any more.

    Args:
        selected: cells to run, and cells that are only counted, which is done here.
        tally: is counted up while cells end, so that the caller knows what was reached should the sweep raise.
        fail_fast: leave out what remains once a cell has failed.
    """

    def __init__(
        self,
        selected: Sequence[PlannedCell],
        observer: SweepObserver,
        notifier: Notifier,
        tally: Tally | None = None,
        *,
        fail_fast: bool = False,
    ) -> None:
        self.observer, self.tally = observer, tally if tally is not None else Tally()
        self._notifier, self._fail_fast = notifier, fail_fast
        self._arms = StoppedArms()
        self._failed: PlannedCell | None = None
        self._total = sum(item.runs for item in selected)
        self._numbers: dict[tuple[str, str], int] = {}
        for item in (item for item in selected if not item.runs):
            if item.status in ("missing", "interrupted"):  # of an arm that was stopped in an earlier run
                self._skip(item, item.why)
            else:
                self.tally.earlier[item.status] = self.tally.earlier.get(item.status, 0) + 1

    def settled(self, item: PlannedCell) -> bool:
        """Whether a cell need not run any more, which is told: it is left out, or another process has ended it."""
        why = self._arms.why_not(item)
        if self._fail_fast and self._failed is not None:
            why = f"--fail-fast: {self._failed.cell.slug} failed"
        if why is not None:
            return self._skip(item, why)
        try:
            recorded = ended_since(item)
        except RecordError as error:
            return self._skip(item, str(error))
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

    def _skip(self, item: PlannedCell, why: str) -> Literal[True]:
        self.tally.skipped += 1
        self.observer.cell_skipped(item, why)
        return True
