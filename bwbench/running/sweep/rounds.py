"""Timing runs in rounds: those of one cell lie apart in time, so that one disturbance of the machine meets one of them.

A round is a timing run of every composed cell. Runs within half an hour are much alike, and tell little of what a run
tomorrow would take: rounds are spread over all else that the first repeats need, whole cells and convergence runs. Then
composed cells are put together, and further repeats follow, block by block. A sweep that was interrupted goes on: what
is done is found by its id.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import COMPOSED, CONVERGENCE, TIMING, WHOLE, parts_of
from bwbench.experiment.plan.described_models import describe
from bwbench.experiment.plan.earlier_seed import earlier_seed
from bwbench.records import cell_at, read_record
from bwbench.records.schema import Status
from bwbench.running.composed import parts_in
from bwbench.running.sweep.sweep_plan import SweepPlan


def in_rounds(todo: Sequence[PlannedCell], seed: int) -> list[PlannedCell]:
    """The cells to run, and the timing and convergence runs that are to be made before them.

    Args:
        todo: cells in running order: all first repeats, then all second ones, and so on.
        seed: of the order of the timing runs in a round, another one in every round.

    Raises ConfigError and LaunchError as ``describe``.
    """
    return _ordered(todo, seed)[0]


def only_part(sweep: SweepPlan, part: str) -> SweepPlan:
    """The sweep with what is to be made of one kind as its cells, in the order of ``in_rounds``. Reads, never writes.

    Nothing is put together: that is left to a sweep that makes all.

    Args:
        part: ``convergence`` for all whose times nobody asks for: convergence runs, and cells of virtual nodes.
            ``timing`` for all that needs a quiet machine: timing runs, and cells that run whole. Those that are
            composed as well wait until their convergence runs are there.

    Raises ConfigError and LaunchError as ``describe``.
    """
    ordered, lacking = _ordered(sweep.todo, sweep.order_seed)
    again = [item for item in sweep.todo if item.status in ENDED_UNDONE]  # who runs again asks for its runs again
    retried = {run.folder for item in again for run in lacking.get(id(item), ())}
    found = []
    for item in ordered:
        kind = item.part or (CONVERGENCE if item.cell.config.compute.virtual else TIMING)
        ready = all(one.part == part for one in lacking.get(id(item), ()))
        if kind == part and (item.part or (item.way != COMPOSED and ready)):
            found.append(_as_it_ended(item) if item.part and item.folder not in retried else item)
    return replace(sweep, selected=tuple(found), part=part)


def _as_it_ended(part: PlannedCell) -> PlannedCell:
    """A run that has ended undone is one of those that are asked for, and is not made again by itself."""
    recorded = cell_at(part.folder).status
    if recorded is None or recorded.status not in ENDED_UNDONE:
        return part
    why = f"ended as {recorded.status}; the same command without --part runs it again"
    return replace(part, status=recorded.status, runs=False, why=why)


def _ordered(todo: Sequence[PlannedCell], seed: int) -> tuple[list[PlannedCell], Mapping[int, Sequence[PlannedCell]]]:
    """As ``in_rounds``; and for each composed cell, by the ``id`` of its object, the runs that it lacks."""
    composed = [item for item in todo if item.way != WHOLE]
    if not composed:
        return list(todo), {}
    shapes = [described.parameter_shapes for described in describe([item.cell.config for item in composed])]
    needed = {id(item): list(_parts(item, of_model)) for item, of_model in zip(composed, shapes, strict=True)}
    rounds: dict[int, dict[Path, PlannedCell]] = defaultdict(dict)
    others: dict[Path, PlannedCell] = {}  # between the rounds
    later: set[Path] = set()
    behind: list[PlannedCell] = []
    num_rounds = max(item.timing_runs for item in composed)
    for item in todo:
        is_early = item.cell.repeat < num_rounds
        for part in needed.get(id(item), ()):
            if part.part == TIMING:
                rounds[part.cell.repeat].setdefault(part.folder, part)
            elif is_early:
                others.setdefault(part.folder, part)
            elif part.folder not in later:
                later.add(part.folder)
                behind.append(part)
        if item.way == WHOLE and is_early:
            others[item.folder] = item
        else:
            behind.append(item)
    between, found = list(others.values()), []
    for number in range(num_rounds):
        found += sorted(rounds[number].values(), key=lambda part: _drawn(f"{seed} {part.cell.id}"))
        begin, end = (len(between) * one // max(1, num_rounds - 1) for one in (number, number + 1))
        found += _virtual_first(between[begin:end])
    for _, of_repeat in groupby(behind, key=lambda item: item.cell.repeat):
        found += _virtual_first(of_repeat)
    return found, needed


def _virtual_first(items: Iterable[PlannedCell]) -> list[PlannedCell]:
    """Trainings of virtual nodes one behind the other, since several of them run at once."""
    return sorted(items, key=lambda item: not item.cell.config.compute.virtual)


def _parts(item: PlannedCell, shapes: Sequence[tuple[int, ...]]) -> Iterator[PlannedCell]:
    """The runs that a composed cell needs and that are not done."""
    parts = parts_of(item.cell, shapes, item.timing_runs)
    for name, cell, folder in parts_in(parts, item.folder.parent, timed=earlier_seed(item, parts) is None):
        try:
            recorded = read_record(Status, folder / "status.json")
        except RecordError:
            continue  # composing will say so
        if recorded is None or recorded.status != "done":
            attempt = (recorded.attempt or 0) if recorded is not None else 0
            yield _part(item, name, cell, folder, attempt)


def _part(item: PlannedCell, name: str, cell: Cell, folder: Path, attempt: int) -> PlannedCell:
    why = f"{item.cell.slug} is composed from it"
    return replace(
        item, cell=cell, folder=folder, status="missing", runs=True, why=why, attempt=attempt, way=WHOLE, part=name
    )


def _drawn(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
