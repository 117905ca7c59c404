"""Numbers and texts as the page carries them: each once, and no longer than a reader can tell apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

DIGITS = 6  # of a metric: an accuracy over a validation split of 100 000 samples stays exact
CLOCK_DIGITS = 5


@dataclass
class Pool:
    """Values that many cells share, by number: composed cells share their convergence run, all share a machine."""

    values: list[Any] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def add(self, value: Any) -> int | None:
        """The number of ``value``, which is kept once; None for None."""
        if value is None:
            return None
        key = json.dumps(value, sort_keys=True)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]


def rounded(value: Any, digits: int = CLOCK_DIGITS) -> float | int | None:
    """``value`` with so many significant digits; whole numbers without a point, None for what is no finite number."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{float(value):.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
