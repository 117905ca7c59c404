"""The cells of one arm under one condition, with what its repeats took: what comparisons and answers are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bwbench.records import CellFolder
from bwbench.results.analysis.arrival import FIRST_CROSSING
from bwbench.results.analysis.cells import Row, cell_row, value_at
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.statistics import Arrival, by_seed

Condition = dict[str, object]  # dotted key -> value: what the compared cells have in common and others have not
Times = Callable[[Iterable[Mapping[str, object]]], dict[int, Arrival]]


@dataclass(frozen=True)
class ArmCells:
    """The done cells of one arm under one condition."""

    name: str
    folders: list[CellFolder]
    rows: list[Row]
    arrivals: dict[int, Arrival]

    @property
    def role(self) -> str:
        """What it is in a comparison."""
        return str(self.rows[0]["role"])

    @property
    def composed(self) -> bool:
        """Whether any of its times is put together, and not measured whole."""
        return any(row["composed"] for row in self.rows)

    @property
    def host_bound(self) -> bool:
        """Whether the machine decides what a step takes, in any of its cells."""
        return any(row["host_bound"] is True for row in self.rows)

    @property
    def first_crossing(self) -> bool:
        """Whether of any of its cells the first crossing alone is known."""
        return any(row["arrival_kind"] == FIRST_CROSSING for row in self.rows)


def arms_of(done: Sequence[CellFolder], own: OwnSteps, times: Times = by_seed) -> Iterator[ArmCells]:
    """Arms by name, of cells that are done under one condition; those of which ``times`` finds none are left out.

    Args:
        times: what each seed took; by default until the target, or the limit.
    """
    by_name: dict[str, list[CellFolder]] = {}
    for folder in done:
        by_name.setdefault(str(folder.cell.arm), []).append(folder)
    for name, folders in sorted(by_name.items()):
        rows = [cell_row(folder) | own.row(folder) for folder in folders]
        arrivals = times(rows)
        if arrivals:
            yield ArmCells(name, folders, rows, arrivals)


def ordered(condition: Condition, by: str, arm: ArmCells) -> Condition:
    """The condition with the asked key first, its value as the arm has it; arms that no link concerns share theirs."""
    value = condition[by] if by in condition else value_at(arm.folders[0].cell.config, by)
    return {by: value, **{key: other for key, other in condition.items() if key not in (by, f"{by}.name")}}
