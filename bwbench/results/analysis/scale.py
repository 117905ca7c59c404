"""S/(B·T): how long a model's gradient takes on a link, in steps of computing: a crossover in terms of no machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.base.units import DURATION
from bwbench.records import CellFolder
from bwbench.records.files import read_first_event
from bwbench.records.schema import Start
from bwbench.results.analysis.cells import value_at


@dataclass(frozen=True)
class Scale:
    """What makes a bandwidth dimensionless; None where the records do not say.

    Attributes:
        gradient_bytes: S, the model's fp32 gradient.
        compute_s: T, what a node computes in a step: the declared ``step_time``, else the median over the cells.
    """

    gradient_bytes: int | None
    compute_s: float | None

    def at(self, bandwidth_bps: float | None) -> float | None:
        """S/(B·T) at a bandwidth; None where something of it is not known."""
        if bandwidth_bps is None or not self.gradient_bytes or not self.compute_s:
            return None
        return 8 * self.gradient_bytes / (bandwidth_bps * self.compute_s)


def scale_of(folders: Sequence[CellFolder]) -> Scale:
    """The scale of cells of one model and one compute setting."""
    declared = [value_at(folder.cell.config, "compute.step_time") for folder in folders]
    if folders and all(text is not None for text in declared):
        compute_s: float | None = statistics.median(DURATION.parse(text) for text in declared)
    else:
        medians = [folder.status.compute_median_s for folder in folders if folder.status is not None]
        known = [median for median in medians if median]
        compute_s = statistics.median(known) if known else None
    found = (size for folder in folders if (size := gradient_bytes_of(folder)) is not None)
    return Scale(next(found, None), compute_s)


def gradient_bytes_of(folder: CellFolder) -> int | None:
    """Of the model of a cell; None where no record says.

    From the first event of rank 0, the only line that is read of a file that may be long; or from what stands for it.
    """
    if folder.digest is not None:
        return folder.digest.gradient_bytes or None
    for attempt in reversed(folder.attempts):
        start = read_first_event(attempt / "rank0.jsonl")
        if isinstance(start, Start) and start.gradient_bytes:
            return start.gradient_bytes
    return None
