"""Which cells will run, and why, by the files of the result folder alone; and what may hardly be carried of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bwbench.base.errors import PackedRecordsError, RecordError
from bwbench.base.plain_data import list_at
from bwbench.base.units import DURATION
from bwbench.experiment.config.combinations import momentum_doubt
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import CHECKED, COMPOSED, WHOLE, Way
from bwbench.experiment.plan.plugin_sources import outdated
from bwbench.network.backend_choice import beyond_relay
from bwbench.network.netem.netem_check import netem_available
from bwbench.network.netem.shape import beyond_netem
from bwbench.records import CellFolder, read_json, read_record, write_json_atomic, write_record
from bwbench.records.cell_identity import unchecked_id, unlike
from bwbench.records.files import REMEDIES
from bwbench.records.packed import PackedFiles, find_packed, published_beside, read_packed
from bwbench.records.schema import PlanAbout, PlannedEntry, PlanOrder, PlanRecord, Status

_HOW = {WHOLE: "", COMPOSED: "; to be composed", CHECKED: "; to run whole, and to be composed for comparison"}
UNREADABLE = "unreadable"
ENDED_UNDONE = ("failed", "timeout", "diverged", "invalid")  # run again only when asked: they would end the same way


@dataclass(frozen=True)
class PlannedCell:
    """A cell, its folder, what is recorded of it, and whether and why it will run.

    Attributes:
        attempt: the one that ``status`` is of; 0 before any has ended.
        way: how the cell comes by its result, see ``plan/composing.py``.
        timing_runs: that it is composed from, where it is; ``timing_pilot``: the first of them, whose spread has said
            how many there are, None where that was fixed beforehand.
        part: of a run that composed cells need and that is no cell itself: ``convergence`` or ``timing``; else empty.
    """

    cell: Cell
    folder: Path
    status: str
    runs: bool
    why: str
    attempt: int = 0
    way: Way = WHOLE
    timing_runs: int = 1
    timing_pilot: int | None = None
    part: str = ""


def assess(
    cells: Sequence[Cell],
    results: Path,
    retry: Collection[str] = (),
    ways: Mapping[str, Way] | None = None,
    timing_runs: int = 1,
    more_timing_runs: Mapping[str, int] | None = None,
) -> list[PlannedCell]:
    """What to do with each cell of one experiment, given what lies below ``results``. Reads, never writes.

    Args:
        retry: those of failed, timeout, diverged, invalid that shall run again.
        ways: of each cell by its id; those that are not in it run whole.
        timing_runs: that composed cells are put together from.
        more_timing_runs: the same of each cell, by its id, where ``timing_runs`` are a pilot that says how many.
    """
    experiment = results / cells[0].experiment if cells else results
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(experiment))
    folders = {name.rpartition("-")[2]: name for name in names}  # a slug changes with the matrix, the id does not
    found = []
    for cell in cells:
        folder = experiment / folders.get(cell.id, cell.folder_name)
        published = find_packed(experiment / cell.folder_name)
        if published is not None and cell.id not in folders:
            folder = experiment / published[0].name  # where it goes when it runs again
        way = (ways or {}).get(cell.id, WHOLE)
        asked = PlannedCell(cell, folder, "missing", True, "not run yet", way=way, timing_runs=timing_runs)
        if more_timing_runs is not None:
            runs = more_timing_runs.get(cell.id, timing_runs)
            asked = replace(asked, timing_runs=runs, timing_pilot=timing_runs)
        item = _assess(asked, published[1] if published else None, retry)
        found.append(replace(item, why=f"{item.why}{_HOW[way]}") if item.runs else item)
    return found


def _assess(asked: PlannedCell, published: PackedFiles | None, retry: Collection[str]) -> PlannedCell:
    """What was asked, with what is recorded of it."""
    cell, folder = asked.cell, asked.folder
    try:
        recorded = read_record(Status, folder / "status.json")
        attempt = (recorded.attempt or 0) if recorded is not None else 0
        if recorded is None and published is not None:  # whose attempts are not here
            recorded = published.read(Status, "status.json")
    except PackedRecordsError:
        raise
    except RecordError as error:  # it may be a newer version's: it is not written over
        return replace(asked, status=UNREADABLE, runs=False, why=f"unreadable: {error}")
    if (problem := _foreign(cell, folder)) is not None:
        return replace(asked, status=UNREADABLE, runs=False, why=f"unreadable: {problem}")
    if recorded is None:
        if folder.is_dir() and CellFolder(folder).attempts:
            return replace(asked, status="interrupted", why="interrupted before")
        return asked
    status, asked = recorded.status, replace(asked, attempt=attempt)
    if status == "done" and recorded.composed is not None:
        if asked.way != COMPOSED:
            return replace(asked, why="composed so far, to be run whole")
        if recorded.composed.lacks(asked.timing_runs):
            timed = f"timed {recorded.composed.num_timing_runs} times so far"
            return replace(asked, why=f"{timed}, {asked.timing_runs} times are asked")
    if status == "done":
        if lacks_times(cell, folder):
            return replace(asked, why="made with virtual nodes so far, which have no times")
        return replace(asked, status=status, runs=False, why="done")
    if status in ENDED_UNDONE:
        if status in retry:
            return replace(asked, status=status, why=f"{status} before, to be retried")
        return replace(asked, status=status, runs=False, why=f"{status} before; --retry {status} runs it again")
    return replace(asked, status="interrupted", why="interrupted before")


def lacks_times(cell: Cell, folder: Path) -> bool:
    """Whether what is recorded of a cell was made with virtual nodes, and its times are asked as well.

    What cannot be read says nothing.
    """
    if cell.config.compute.virtual or cell.config.link.shaped:
        return False
    try:
        environment = CellFolder(folder).environment
    except RecordError:
        return False
    return environment is not None and environment.virtual


def _foreign(cell: Cell, folder: Path) -> RecordError | None:
    """Why what lies in the folder of a cell is another one; what is torn is written anew when the cell runs."""
    try:
        there = CellFolder(folder).cell
    except RecordError as error:
        return error if isinstance(read_json(folder / "cell.json"), dict) else None
    named = [Path(str(path)).name for path in list_at(there.config, "plugins")]
    if named != [Path(path).name for path in cell.config.plugins]:
        text = f"plugins: are {', '.join(named) or 'none'}, and not those of the experiment"
    elif unchecked_id(there.config) and unlike(there.config, cell.config.model_dump(mode="json", by_alias=True)):
        text = "config: is not that of the planned cell"
    else:
        return None
    return RecordError(f"{folder / 'cell.json'}: {text}; {REMEDIES['cell.json']}")


def freeze_plan(
    planned: Sequence[PlannedCell], experiment_folder: Path, experiment: PlanAbout, order: PlanOrder
) -> None:
    """Write plan.json and every cell.json that is not there yet: from here on the YAML may change.

    Args:
        planned: all cells of the experiment, in the order in which they run.
        order: how that came about, for plan.json.

    Raises OSError where the disk is full or not writable.
    """
    experiment_folder.mkdir(parents=True, exist_ok=True)
    sets = [read_packed(place) for place in (experiment_folder, published_beside(experiment_folder))]
    published = frozenset[str]().union(*(packed.ids for packed in sets if packed is not None))
    for item in planned:
        if not item.runs and item.cell.id in published:
            continue  # needs no folder
        if not (item.folder / "cell.json").is_file():
            item.folder.mkdir(exist_ok=True)
            # Not waited for the disk: that would take minutes for ten thousand, and a cell that runs mends its own.
            write_json_atomic(item.folder / "cell.json", item.cell.to_json(), sync=False)
    cells = (PlannedEntry(id=item.cell.id, slug=item.cell.slug, folder=item.folder.name) for item in planned)
    record = PlanRecord(experiment=experiment, order=order, cells=tuple(cells))
    write_record(experiment_folder / "plan.json", record)


# From about here on an outage cannot be told from a link that stays dead, which ends a cell (docs/faults.md).
LONGEST_OUTAGE_S = 15.0


def doubts(planned: Sequence[PlannedCell]) -> list[str]:
    """A line for each kind of link among the cells to run that a relay here will probably be too slow for, or that is
    dead for too long; for each method that an optimizer's momentum keeps from training; and for each plugin that has
    changed since cells that are done were trained with it.
    """
    found: dict[str, None] = {}
    has_netem: bool | None = None
    for config in (item.cell.config for item in planned if item.runs):
        longest_s = max((outage.duration_s for outage in config.link.outages), default=0.0)
        if longest_s > LONGEST_OUTAGE_S:
            found[
                f"an outage of {DURATION.format(longest_s)} ends a cell that needs the link meanwhile as failed: "
                f"outages are waited for about {DURATION.format(LONGEST_OUTAGE_S)}"
            ] = None
        if (doubt := momentum_doubt(config)) is not None:
            found[doubt] = None
        link = config.link_as_made.dilated(config.dilation) if config.link.shaped else config.link  # as it will be made
        if (text := beyond_relay(link, config.nodes)) is None:
            continue
        if link.backend != "relay" and not beyond_netem(link):
            has_netem = netem_available() if has_netem is None else has_netem
            if has_netem:
                continue
        factor = f"dilation: {config.dilation:g}: " if config.dilation != 1 else ""
        found[f"{factor}{text}; slow motion asks less of the relay (dilation: auto)"] = None
    done = ((item.cell.config, item.folder) for item in planned if item.status == "done" and not item.runs)
    return [*found, *outdated(done)]
