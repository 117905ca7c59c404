"""What is asked of one group of cells again and again (does a figure apply, draw it, write its table) is made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from bwbench.results.analysis.results import Results

Made = TypeVar("Made")


def once(make: Callable[[Results], Made]) -> Callable[[Results], Made]:
    """``make``, which each group of cells remembers the value of; callers share it and leave it as it is."""

    @wraps(make)
    def remembered(results: Results) -> Made:
        if make not in results.made:
            results.made[make] = make(results)
        value: Made = results.made[make]
        return value

    return remembered
