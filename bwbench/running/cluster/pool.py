"""What the loop over cells needs of a cluster: its machines, work for them, and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bwbench.running.cluster.machines import Machine
from bwbench.running.cluster.work import Outcome, Work


@dataclass(frozen=True)
class Told:
    """What a machine tells of the cell that it runs; see ``work.carry_out``."""

    key: int
    kind: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Ended:
    """A machine has ended its work."""

    key: int
    outcome: Outcome


@dataclass(frozen=True)
class Lost:
    """Work that will never end: its machine is gone, or the process that did it."""

    key: int
    why: str


Report = Told | Ended | Lost


class Pool(Protocol):
    """A cluster at work."""

    def machines(self) -> Sequence[Machine]:
        """All that are there now and have said what they are, usable or not."""

    @property
    def is_asking(self) -> bool:
        """Whether machines are there that have not yet said what they are."""

    def start(self, machine: Machine, work: Work, share: int) -> int:
        """Give work to a machine, with one ``share``-th of its cores; returns the key of its reports."""

    def reports(self, limit_s: float) -> list[Report]:
        """What has happened since the last call; waits ``limit_s`` for something to happen."""
