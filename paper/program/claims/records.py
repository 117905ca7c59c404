"""All records that claims are evaluated against, read once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.cells import DONE, state_of
from bwbench.results.analysis.spent import Spent, spent


@dataclass(frozen=True)
class Records:
    """A results folder. Where it does not exist there are no records."""

    root: Path

    @cached_property
    def folders(self) -> list[CellFolder]:
        """Every cell, done or not."""
        return list(iter_cells(self.root)) if self.root.is_dir() else []

    @cached_property
    def experiments(self) -> frozenset[str]:
        """Names of the experiments with at least one cell that is done."""
        return frozenset(str(f.cell.experiment) for f in self.folders if state_of(f) == DONE)

    def done(self, experiment: str) -> list[CellFolder]:
        """The done cells of an experiment; of all for ``all``."""
        wanted: Iterable[CellFolder] = self.folders if experiment == "all" else self.of(experiment)
        return [folder for folder in wanted if state_of(folder) == DONE]

    def of(self, experiment: str) -> list[CellFolder]:
        """All cells of an experiment."""
        return [folder for folder in self.folders if folder.cell.experiment == experiment]

    def spent_on(self, experiment: str) -> Spent | None:
        """What an experiment has cost; all of them for ``all``; None where nothing is known."""
        found, total = self._spent
        return total if experiment == "all" else next((one for one in found if one.experiment == experiment), None)

    @cached_property
    def _spent(self) -> tuple[list[Spent], Spent]:
        try:
            return spent(self.root)
        except RecordError:
            return [], Spent("all")
