"""What one picture shows: the cells of one group, their tables, and what a reader must know about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from bwbench.base.errors import RecordError
from bwbench.methods.roles import LIMITS, as_role
from bwbench.records import CellFolder, iter_cells, readable
from bwbench.results.analysis.cells import DONE, is_composed, left_out_notes, standing_of, state_of
from bwbench.results.analysis.errors import composed_errors, composed_note
from bwbench.results.analysis.grouping import BANDWIDTH_KEY, Group, group_cells
from bwbench.results.analysis.provenance import provenance_note, unlike_hosts_note
from bwbench.results.analysis.tables import Reader, cells_table, curves_table, ledger_table, time_table

COMPOSED_MARK = "†"  # after the names of arms with composed cells, and before the note that says what that means


@dataclass(frozen=True)
class Results:
    """Cells that are compared with each other. Tables are made when asked for.

    Attributes:
        experiment: name of the experiment.
        group: all its cells, drawn or not.
    """

    experiment: str
    group: Group
    reader: Reader = field(default_factory=Reader, repr=False)
    made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # see ``once``

    @property
    def label(self) -> str:
        """For file names: what tells this group from the others; empty where there is one alone."""
        return self.group.label

    @property
    def folders(self) -> tuple[CellFolder, ...]:
        """All cells of the group, drawn or not."""
        return self.group.folders

    @cached_property
    def done(self) -> list[CellFolder]:
        """The cells that figures draw."""
        return [folder for folder in self.folders if state_of(folder) == DONE]

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Table of the cells that are done."""
        return cells_table(self.done)

    @cached_property
    def roles(self) -> dict[str, str]:
        """What each arm of the cells that are done is in a comparison."""
        return {folder.cell.arm: standing_of(folder.cell).role for folder in self.done}

    @cached_property
    def limits(self) -> list[str]:
        """The arms that draw the frame for methods: one node alone, then averages that cost nothing."""
        return sorted((arm for arm, role in self.roles.items() if role in LIMITS),
                      key=lambda arm: (LIMITS.index(as_role(self.roles[arm])), arm))  # fmt: skip

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Table of their validation evaluations."""
        return curves_table(self.done, self.reader)

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """Table of where the time of their steps goes."""
        return ledger_table(self.done, self.reader)

    @cached_property
    def times(self) -> pd.DataFrame:
        """Table of time to accuracy by arm, bandwidth and whatever else the group compares."""
        return time_table(self.cells, self.group.compares)

    @property
    def bandwidths(self) -> list[float | None]:
        """Bandwidths in bit/s that done cells ran at; None is an unshaped link."""
        return replace(self.group, folders=tuple(self.done)).bandwidths

    @cached_property
    def notes(self) -> list[str]:
        """What must stand under the picture: cells left out or composed, hosts or commits that are mixed."""
        notes = left_out_notes(self.folders)
        errors = [error.error for error in composed_errors(self.done)]
        composed = composed_note(sum(map(is_composed, self.done)), len(self.done), errors)
        if composed and any(map(is_composed, self.done)):
            composed = f"{COMPOSED_MARK} {composed}"
        machines = (provenance_note(self.done), unlike_hosts_note(self.done))
        return [*notes, *(note for note in (composed, *machines) if note)]


def load_results(folder: Path) -> list[Results]:
    """Every group of every experiment under ``folder``: ``results/``, one experiment in it, or one cell.

    Cells that cannot be read are left out; ``read_cells`` says which.

    Raises RecordError where the folder does not exist.
    """
    reader = Reader()
    return results_of(read_cells(folder, reader)[0], reader)


def read_cells(folder: Path, reader: Reader) -> tuple[list[CellFolder], list[RecordError]]:
    """Every cell under ``folder`` with all its records, and why each of those cannot be read that are left out.

    Args:
        reader: keeps what the cells' events come to, so that no picture meets a broken one.

    Raises RecordError where the folder does not exist.
    """
    cells, refused = readable(iter_cells(folder))
    whole = []
    for cell in cells:
        try:
            reader.read(cell)
            whole.append(cell)
        except RecordError as error:
            refused.append(error)
    return whole, refused


def results_of(cells: Iterable[CellFolder], reader: Reader) -> list[Results]:
    """Every group of every experiment that ``cells`` are of."""
    found: dict[str, list[CellFolder]] = {}
    for cell in cells:
        found.setdefault(cell.cell.experiment, []).append(cell)
    across = frozenset({BANDWIDTH_KEY})
    return [one for name, of_one in sorted(found.items()) for one in _grouped(name, of_one, across, reader)]


def by_experiment(results: Iterable[Results]) -> dict[str, list[Results]]:
    """The groups of each experiment, in their order."""
    found: dict[str, list[Results]] = {}
    for group in results:
        found.setdefault(group.experiment, []).append(group)
    return found


def regrouped(results: Sequence[Results], compares: frozenset[str]) -> list[Results]:
    """The same cells in other groups: each spans the settings ``compares``, besides arms and repeats.

    Args:
        compares: flat names of settings, as in ``figures.base.AbstractFigure.compares``.
    """
    regrouped = []
    for experiment, groups in by_experiment(results).items():
        cells = {folder.path: folder for group in groups for folder in group.folders}  # single is in several groups
        regrouped += _grouped(experiment, cells.values(), compares, groups[0].reader)
    return regrouped


def _grouped(experiment: str, cells: Iterable[CellFolder], compares: frozenset[str], reader: Reader) -> list[Results]:
    return [Results(experiment, group, reader) for group in group_cells(list(cells), compares)]


Made = TypeVar("Made")


def once(make: Callable[[Results], Made]) -> Callable[[Results], Made]:
    """``make``, which each group of cells remembers the value of; callers share it and leave it as it is."""

    @wraps(make)
    def remembered(results: Results) -> Made:
        if make not in results.made:
            results.made[make] = make(results)
        value: Made = results.made[make]
        return value

    return remembered
