"""Arms that fail again and again in the same way: their remaining cells would only cost time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.records import cell_at
from bwbench.records.schema import Status

MOST_ALIKE = 3
_ON_ITS_LINK = ("invalid", "timeout")  # says nothing of the arm on other links
_VARYING = re.compile(r"[0-9a-f]{10,}|\d+(\.\d+)?(e[-+]?\d+)?")  # numbers and ids differ between like failures


class StoppedArms:
    """Counts how the cells of every arm end, and says which cells are not worth running any more.

    A cell that failed tells of its arm. An invalid one, or one that took too long, tells of this arm on this link
    alone; one that diverged, of this arm with this optimizer, model and data.
    """

    def __init__(self) -> None:
        self._ended: Counter[tuple[str, ...]] = Counter()  # by arm, what it is put down to, status and like reason
        self._parts: set[tuple[str, str, str]] = set()
        self._stopped: dict[tuple[str, str], dict[str, str]] = {}  # of an arm: where it is stopped, and why

    def note(self, item: PlannedCell, status: Status) -> None:
        """Take in how a cell has ended."""
        if status.status not in ENDED_UNDONE:
            return
        like = _VARYING.sub("#", (status.reason or "").strip().partition("\n")[0])
        where, words = _put_down_to(item, status.status)
        arm = (item.cell.experiment, item.cell.arm)
        way = (*arm, where, status.status, like)
        if (part := status.undone_part) is not None:  # a run that repeats share fails all of them, but once
            if (*arm, part) in self._parts:
                return
            self._parts.add((*arm, part))
        self._ended[way] += 1
        if self._ended[way] == MOST_ALIKE:
            reason = (status.reason or "").strip().partition("\n")[0][:200]
            text = f"{item.cell.arm}{words}: {MOST_ALIKE} cells {status.status} the same way ({reason})"
            self._stopped.setdefault(arm, {})[where] = text

    def why_not(self, item: PlannedCell) -> str | None:
        """Why a cell is left out; None where it is worth running."""
        stopped = self._stopped.get((item.cell.experiment, item.cell.arm))
        if stopped is None:
            return None
        return stopped.get("") or stopped.get(_link(item)) or stopped.get(_training(item))


def without_stopped_arms(planned: Iterable[PlannedCell]) -> list[PlannedCell]:
    """The same cells, those of arms that failed too often in earlier runs no longer to be run.

    Failures that are to be retried do not count: who asks for them expects another end.
    """
    planned, arms = list(planned), StoppedArms()
    for item in planned:
        if not item.runs and item.status in ENDED_UNDONE:
            recorded = cell_at(item.folder).status
            if recorded is not None:
                arms.note(item, recorded)
    return [_stopped(item, arms.why_not(item)) for item in planned]


def _stopped(item: PlannedCell, why: str | None) -> PlannedCell:
    if why is None or not item.runs:
        return item
    return replace(item, runs=False, why=f"skipped: {why}; --retry runs those again, and then this")


def _put_down_to(item: PlannedCell, status: str) -> tuple[str, str]:
    """What such an end is put down to beside the arm, and the same in words."""
    if status in _ON_ITS_LINK:
        return _link(item), f" on {item.cell.config.link.describe()}"
    return (_training(item), " with this optimizer, model and data") if status == "diverged" else ("", "")


def _link(item: PlannedCell) -> str:
    return item.cell.config.link.canonical_json


def _training(item: PlannedCell) -> str:
    """What is trained and how, whatever the link and the seed."""
    config = item.cell.config.model_dump(mode="json", by_alias=True, exclude={"link", "seed"})
    return json.dumps(config, sort_keys=True)
