"""A case: the smallest part of a measurement that is run, and resumed, by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bwbench.network.link import Link
from link_accuracy_parts.rows import Row


@dataclass(frozen=True)
class Options:
    """What all measurements are told.

    Attributes:
        backend: ``relay`` or ``netem``.
        quick: few cases, short ones.
    """

    backend: str
    quick: bool

    def link(self, **keys: Any) -> Link:
        """A link carried by the back end that is asked for; keys as in YAML."""
        return Link.model_validate({**keys, "backend": self.backend})


@dataclass(frozen=True)
class Case:
    """Something to measure.

    Attributes:
        name: what it is, such as ``goodput 10 Mbit/s``.
        seconds: about how long it takes.
        run: does it.
    """

    name: str
    seconds: float
    run: Callable[[], list[Row]]
