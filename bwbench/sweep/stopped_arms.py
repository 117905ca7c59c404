"""Arms that fail again and again in the same way: their remaining cells would only cost time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bwbench.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.records import read_json

MOST_ALIKE = 3
_VARYING = re.compile(r"[0-9a-f]{10,}|\d+(\.\d+)?(e[-+]?\d+)?")  # numbers and ids differ between like failures


@dataclass(frozen=True)
class _Way:
    """How a cell of an arm ended, without what differs from cell to cell."""

    experiment: str
    arm: str
    link: str
    status: str
    reason: str


class StoppedArms:
    """Counts how the cells of every arm end, and says which cells are not worth running any more.

    An invalid cell tells of its link rather than of its arm: it counts for this arm on this link alone.
    """

    def __init__(self) -> None:
        self._ended: Counter[_Way] = Counter()
        self._parts: set[tuple[str, str, str]] = set()
        self._stopped: dict[tuple[str, str, str], str] = {}

    def note(self, item: PlannedCell, status: Mapping[str, Any]) -> None:
        """Take in how a cell has ended."""
        if status.get("status") not in ENDED_UNDONE:
            return
        way = _way(item, status)
        if (part := status.get("undone_part")) is not None:  # a run that repeats share fails all of them, but once
            if (way.experiment, way.arm, str(part)) in self._parts:
                return
            self._parts.add((way.experiment, way.arm, str(part)))
        self._ended[way] += 1
        if self._ended[way] == MOST_ALIKE:
            where = f" on {way.link}" if way.link else ""
            reason = str(status.get("reason") or "").strip().partition("\n")[0][:200]
            text = f"{way.arm}{where}: {MOST_ALIKE} cells {way.status} the same way ({reason})"
            self._stopped[way.experiment, way.arm, way.link] = text

    def why_not(self, item: PlannedCell) -> str | None:
        """Why a cell is left out; None where it is worth running."""
        if not self._stopped:
            return None
        arm = (item.cell.experiment, item.cell.arm)
        return self._stopped.get((*arm, "")) or self._stopped.get((*arm, _link(item)))


def without_stopped_arms(planned: Iterable[PlannedCell]) -> list[PlannedCell]:
    """The same cells, those of arms that failed too often in earlier runs no longer to be run.

    Failures that are to be retried do not count: who asks for them expects another end.
    """
    planned, arms = list(planned), StoppedArms()
    for item in planned:
        if not item.runs and item.status in ENDED_UNDONE:
            recorded = read_json(item.folder / "status.json")
            if isinstance(recorded, dict):
                arms.note(item, recorded)
    return [_stopped(item, arms.why_not(item)) for item in planned]


def _stopped(item: PlannedCell, why: str | None) -> PlannedCell:
    if why is None or not item.runs:
        return item
    return replace(item, runs=False, why=f"skipped: {why}; --retry runs those again, and then this")


def _way(item: PlannedCell, status: Mapping[str, Any]) -> _Way:
    reason = _VARYING.sub("#", str(status.get("reason") or "").strip().partition("\n")[0])
    link = _link(item) if status["status"] == "invalid" else ""
    return _Way(item.cell.experiment, item.cell.arm, link, str(status["status"]), reason)


def _link(item: PlannedCell) -> str:
    return item.cell.config.link.describe()
