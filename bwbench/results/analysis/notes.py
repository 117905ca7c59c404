"""What must be said of cells that are done wherever they stand: below pictures, tables and charts of the page alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bwbench.records import CellFolder
from bwbench.results.analysis.arm_labels import arm_labels, unlike_arms_note
from bwbench.results.analysis.arrived_alone import arrived_alone_note
from bwbench.results.analysis.caveats import (
    COMPOSED_MARK,
    composed_errors,
    composed_note,
    provenance_note,
    shared_hosts_note,
    unlike_hosts_note,
)
from bwbench.results.analysis.cells import is_composed
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK, host_bound_note
from bwbench.results.analysis.replicas_apart import replicas_apart_note


def notes_on(done: Sequence[CellFolder], rows: Sequence[Mapping[Any, Any]], *, marked: bool = True) -> list[str]:
    """What is broken, arrived alone, composed and how far off, bound by the machine, unlike between arms, or mixed.

    Args:
        done: cells that are done.
        rows: of ``cell_row`` and ``OwnSteps.row``, of the same cells.
        marked: notes begin with the mark that stands behind the times that they are about.
    """
    num_composed = sum(map(is_composed, done))
    errors = composed_errors(done)
    disturbed = sum(one.disturbed for one in errors)
    composed = composed_note(num_composed, len(done), [one.error for one in errors], disturbed)
    labels = arm_labels(folder.cell for folder in done)
    apart, alone = replicas_apart_note(rows, labels), arrived_alone_note(rows, labels)
    bound = host_bound_note(rows)
    if marked and composed and num_composed:
        composed = f"{COMPOSED_MARK} {composed}"
    if marked and bound:
        bound = f"{HOST_BOUND_MARK} {bound}"
    hosts = (shared_hosts_note(done), unlike_hosts_note(done))
    notes = (apart, alone, composed, bound, unlike_arms_note(done), provenance_note(done), *hosts)
    return [note for note in notes if note]
