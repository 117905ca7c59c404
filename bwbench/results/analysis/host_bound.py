"""Cells whose steps the machine makes longer than they are declared to be: host-bound, and no measure of their link.

``compute.step_time`` says what a step shall take without communication. More nodes than the machine has processors for
take longer: they wait for one another, and for the clock. How long is seen where nobody communicates, in the
``no-communication`` cells of the same work on the same machine. A cell whose step would take more than 3 % longer than
declared is *host-bound*: what it says of its link is what it says of the machine as well (docs/measuring-honestly.md).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bwbench.base.plain_data import mapping_at
from bwbench.base.step_time import recorded_step_times
from bwbench.experiment.plan.slowest_node import median_slowest_s
from bwbench.methods.roles import HEADROOM, REFERENCE
from bwbench.records import CellFolder
from bwbench.records.schema import JsonObject
from bwbench.results.analysis.caveats import host_of
from bwbench.results.analysis.cells import DONE, Row, dilation_of, setting_of_cell, standing_of, state_of

HOST_BOUND_MARK = "⊙"  # their marks are hollow with a dot in them; and before the note that says what that means
TOLERANCE = 0.03  # by so much of the declared step a step without communication may be longer
_WORK = ("nodes", "model", "batch_size", "accumulate", "compute")  # what a node computes in a step, and among how many


@dataclass(frozen=True)
class OwnSteps:
    """What steps take on a machine without communication.

    Attributes:
        free_s: by machine, slow motion and work, the median step of cells in which nobody communicates; seconds.
    """

    free_s: Mapping[str, float]

    @classmethod
    def of(cls, folders: Iterable[CellFolder]) -> OwnSteps:
        """Learnt from the done ``no-communication`` cells among ``folders``; others need not be left out."""
        found: dict[str, list[float]] = {}
        for folder in folders:
            if standing_of(folder.cell).role != HEADROOM or state_of(folder) != DONE:
                continue
            if folder.status is not None and folder.status.step_median_s:
                found.setdefault(_work_of(folder), []).append(folder.status.step_median_s)
        return cls({work: statistics.median(steps_s) for work, steps_s in found.items()})

    def step_s(self, folder: CellFolder) -> float | None:
        """The cell's step without communication; None where no record tells.

        Of one node alone its own. Of others that of cells in which nobody communicates; without any, what computing
        took, where that is longer than the declared step: then it is at least so long.
        """
        status, declared_s = folder.status, slowest_step_s(folder)
        if status is None:
            return None
        if standing_of(folder.cell).role == REFERENCE:
            return status.step_median_s
        if (free_s := self.free_s.get(_work_of(folder))) is not None:
            return free_s
        computed_s = status.compute_median_s
        return computed_s if computed_s and declared_s is not None and computed_s > declared_s else None

    def row(self, folder: CellFolder) -> Row:
        """What a cell declared, ``slowest_step_s``, its ``own_step_s`` and ``host_bound``.

        None where it declares no step time, or where none is known.
        """
        own_s, declared_s = self.step_s(folder), slowest_step_s(folder)
        return {"own_step_s": own_s, "slowest_step_s": declared_s, "host_bound": is_host_bound(own_s, declared_s)}


def slowest_step_s(folder: CellFolder) -> float | None:
    """What a step is declared to take without communication, at the median: where step times differ, that of the node
    that is slowest in the step. None where none is declared, or where a trace says it."""
    config: JsonObject = folder.cell.config
    times = recorded_step_times(mapping_at(config, "compute")).drawn(setting_of_cell(folder).nodes)
    return None if times is None else median_slowest_s(times)


def is_host_bound(own_step_s: float | None, declared_s: float | None) -> bool | None:
    """Whether a step without communication is longer than declared by more than ``TOLERANCE``; None where one of the
    two is not known."""
    if own_step_s is None or declared_s is None:
        return None
    return own_step_s > (1 + TOLERANCE) * declared_s


def host_bound_note(rows: Sequence[Mapping[Any, Any]]) -> str | None:
    """What must be said of host-bound cells wherever they are shown; None where there are none.

    Args:
        rows: of all cells that are shown, with ``host_bound``, ``own_step_s`` and ``slowest_step_s``.
    """
    bound = [row for row in rows if row.get("host_bound") is True]
    if not bound:
        return None
    beyond = [row["own_step_s"] / row["slowest_step_s"] - 1 for row in bound]
    longer = f"{100 * statistics.median(beyond):.0f} % (median), {100 * max(beyond):.0f} % at most"
    return (
        f"Host-bound: {len(bound)} of {len(rows)} cells, whose step takes longer on this machine "
        f"than declared even without communication, by {longer}. Take their times for too long, by up to about as "
        "much. They count for no crossover, the bandwidth at which two arms are equally fast."
    )


def _work_of(folder: CellFolder) -> str:
    config: JsonObject = folder.cell.config
    dataset = mapping_at(config, "dataset").get("name")
    machine = folder.environment
    who = (host_of(machine), machine.cpu, machine.cores) if machine is not None else None
    time_for_it = dilation_of(config)  # that the machine has, in seconds to one of the training clock
    return json.dumps([who, dataset, time_for_it, *(config.get(key) for key in _WORK)], sort_keys=True)
