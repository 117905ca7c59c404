"""What the machine has to do for cells that run, where some are composed of runs that others need as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bwbench.plan.assess import PlannedCell
from bwbench.plan.cell import Cell
from bwbench.plan.composed import CONVERGENCE_FOLDER, TIMING_FOLDER, parts_of
from bwbench.plan.describe import describe
from bwbench.plan.estimate import Estimate, estimate_cells, request_of
from bwbench.plan.ways import COMPOSED, WHOLE
from bwbench.records import read_json


def expected_s(todo: Sequence[PlannedCell], estimates: Mapping[str, Estimate]) -> dict[tuple[str, str], float]:
    """Training clock that each cell takes at most when cells run in this order, by experiment and id.

    For a cell that runs whole it is what is predicted of it. A composed one takes as long as those of its convergence
    and its timing run that are neither done nor needed by a cell before it. Experiments share convergence runs; a cell
    that two of them have runs in each.

    Raises what ``estimate_cells`` raises.
    """
    described = describe(list({request_of(item.cell.config): None for item in todo if item.way != WHOLE}))
    needed: dict[tuple[Path, str], Cell] = {}
    by_cell: dict[tuple[str, str], list[Cell]] = {}
    done: dict[Path, set[str]] = {}
    for item in todo:
        if item.way == WHOLE:
            continue
        shapes = described[request_of(item.cell.config)].parameter_shapes
        parts, experiment = parts_of(item.cell, shapes), item.folder.parent
        for cell, store in (
            (parts.convergence, experiment.parent / CONVERGENCE_FOLDER),
            (parts.timing, experiment / TIMING_FOLDER),
        ):
            if store not in done:
                done[store] = _done_in(store)
            if (store, cell.id) not in needed and cell.id not in done[store]:
                needed[store, cell.id] = cell
                by_cell.setdefault(_key(item), []).append(cell)
    of_parts = estimate_cells(list(needed.values())) if needed else {}
    found = {}
    for item in todo:
        own_s = 0.0 if item.way == COMPOSED else estimates[item.cell.id].predicted_s
        found[_key(item)] = own_s + sum(of_parts[part.id].predicted_s for part in by_cell.get(_key(item), ()))
    return found


def _key(item: PlannedCell) -> tuple[str, str]:
    return item.cell.experiment, item.cell.id


def _done_in(store: Path) -> set[str]:
    """Ids of the cells of a store that are done."""
    return {
        str(recorded.get("id"))
        for file in store.glob("*/status.json")
        if isinstance(recorded := read_json(file), dict) and recorded.get("status") == "done"
    }
