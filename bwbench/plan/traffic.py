"""What a collective puts on the network in one optimizer step: the interface between collectives and prediction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Payload bytes of one step and how many times the ranks wait for one another.

    Attributes:
        payload_bytes_per_rank: bytes that each rank sends, without any header; length N.
        received_bytes_per_rank: bytes that each rank receives; length N. The sums of both are equal.
        rounds: messages that follow one another, each delayed by the link's one-way latency; over all buckets. A
            fraction where an algorithm does not exchange in every step.
        serial_bytes: those bytes of the busiest rank that cannot overlap with its own other direction, because it must
            have received them before it sends them on, e.g. the last bucket of a parameter server. 0 where every rank
            sends and receives at the same time all along, as in a ring.
        in_background: sent while the nodes compute, over whole steps: it lengthens a step only where it takes longer.
    """

    payload_bytes_per_rank: tuple[float, ...]
    received_bytes_per_rank: tuple[float, ...]
    rounds: float
    serial_bytes: float = 0.0
    in_background: bool = False

    @classmethod
    def none(cls, num_nodes: int) -> Traffic:
        """Nothing crosses the link."""
        return cls((0.0,) * num_nodes, (0.0,) * num_nodes, 0)

    def scaled(self, factor: float) -> Traffic:
        """This traffic times ``factor``: 1/H for what happens every H steps."""
        sent = tuple(factor * size for size in self.payload_bytes_per_rank)
        received = tuple(factor * size for size in self.received_bytes_per_rank)
        return Traffic(sent, received, factor * self.rounds, factor * self.serial_bytes, self.in_background)

    def without_bytes(self) -> Traffic:
        """The rounds alone, as if messages were empty."""
        nothing = (0.0,) * len(self.payload_bytes_per_rank)
        return Traffic(nothing, nothing, self.rounds, 0.0, self.in_background)

    @property
    def total_bytes(self) -> float:
        """Payload sent by all ranks together."""
        return sum(self.payload_bytes_per_rank)

    @property
    def busiest_bytes(self) -> float:
        """The most that one direction of one node's link carries."""
        return max((*self.payload_bytes_per_rank, *self.received_bytes_per_rank), default=0.0)
