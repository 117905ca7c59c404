"""What carries the link: the one interface behind which the relay, netem and the plain bridge stand, and what it tells.

Lateness is how long after it was due a frame has left, as a compact histogram: a list of ``[upper edge in seconds,
frames]`` in the order of the edges, each row what lies between its edge and the one before; rows without frames may be
missing. It only ever grows, so the difference of two tells what happened between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bwbench.base.errors import ConfigError
from bwbench.base.plain_data import JsonObject
from bwbench.network.link import Link

_QUANTILES = {"p50_s": 0.5, "p99_s": 0.99, "max_s": 1.0}


@dataclass(frozen=True)
class Port:
    """Where a node's data network ends in the air namespace.

    Attributes:
        node: number of the node.
        interface: the veth end in the air namespace, such as ``n0``.
        mac: Ethernet address of the node's own end (``data0``), in the form ``02:00:00:4d:00:01``.
        address: IPv4 address of the node's own end.
    """

    node: int
    interface: str
    mac: str
    address: str


@dataclass(frozen=True)
class PairCounter:
    """What one node has sent to another, counted as Ethernet frames (14 B + IP).

    Attributes:
        frames, bytes: everything that entered the link; a super-packet counts as the frames that its segments make,
            with the headers of each.
        ack_frames, ack_bytes: the part of it that is TCP without payload; None where the back end cannot tell.
        drops: frames lost, at a full queue or by the loss that was asked for.
    """

    frames: int = 0
    bytes: int = 0
    ack_frames: int | None = 0
    ack_bytes: int | None = 0
    drops: int = 0

    def plus(self, other: PairCounter, sign: int = 1) -> PairCounter:
        """The sum of both (``sign=-1``: the difference)."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        figures: list[Any] = [None if None in (one, two) else one + sign * two for one, two in both]
        return PairCounter(*figures)


@dataclass(frozen=True)
class WireCounters:
    """Counters of all pairs since the link was opened; ``pairs[src, dst]``.

    A back end that cannot tell receivers or senders apart counts under ``ANY_NODE`` in their place. Pairs without
    traffic may be missing.
    """

    ANY_NODE: ClassVar[int] = -1

    pairs: Mapping[tuple[int, int], PairCounter] = field(default_factory=dict)

    def minus(self, earlier: WireCounters) -> WireCounters:
        """What was counted since ``earlier``."""
        nothing = PairCounter()
        return WireCounters({key: now.plus(earlier.pairs.get(key, nothing), -1) for key, now in self.pairs.items()})

    def total(self) -> PairCounter:
        """The sum over all pairs."""
        total = PairCounter()
        for counter in self.pairs.values():
            total = total.plus(counter)
        return total

    def to_json(self) -> list[dict[str, int | None]]:
        """A row a pair: ``{"src", "dst", "frames", …}``."""
        return [{"src": src, "dst": dst, **vars(counter)} for (src, dst), counter in sorted(self.pairs.items())]

    @classmethod
    def from_json(cls, rows: Sequence[Mapping[str, Any]]) -> WireCounters:
        """The inverse of ``to_json``."""
        return cls({(row.pop("src"), row.pop("dst")): PairCounter(**row) for row in map(dict, rows)})


class AbstractBackend(ABC):
    """Carries frames between the ports of one air namespace as a link asks.

    Lives in the agent, a single-threaded process inside the air namespace. The ports exist and are up when it is made;
    their offloads are set (see ``wiring.py``). Errors that the machine is to blame for are LinkErrors.

    Attributes:
        applied: what was really set, as ``link.json`` has it (SI units); there once ``start`` has returned. Never what
            was achieved: that is the probe's to say.
    """

    name: ClassVar[Literal["relay", "netem", "unshaped"]]

    def __init__(self, link: Link, ports: Sequence[Port]) -> None:
        self.link = link
        self.ports = tuple(ports)
        self.applied: JsonObject = {}

    @abstractmethod
    def start(self) -> None:
        """Set the link up; frames flow when it returns."""

    @abstractmethod
    def stop(self) -> None:
        """Take everything down that ``start`` set up. Safe to call twice, and without ``start``."""

    @abstractmethod
    def counters(self) -> WireCounters:
        """What has crossed the link so far. Cheap: called several times a second."""

    def health(self) -> JsonObject:
        """How well the back end keeps up, as ``link.json`` has it under ``emulator``.

        ``alive``, ``drops`` (frames lost, at full queues or by the loss that was asked for), ``cpu_s`` (None where the
        kernel does the work, or once it cannot be known), ``lateness_p50_s`` and so on. A kernel is not asked how late
        it is: the probe says whether the link is what it should be.
        """
        unknown = dict.fromkeys(("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "cpu_s"))
        return {"backend": self.name, "alive": True, **unknown, "drops": self.counters().total().drops}

    def play(self, at_s: float | None) -> None:  # noqa: B027 - nothing to do where all links are constant
        """Let what varies (traces, outages) be ``at_s`` after its begin now.

        None makes the link steady again, as it is at first: mean rates of the traces, no outages.
        """

    def change(self, link: Link) -> None:
        """Be this link from now on, of the same medium and disciplines; ``applied`` tells it.

        Raises ConfigError where a back end stays as it was made.
        """
        raise ConfigError(f"{self.name} stays as it was made; 'backend: relay' can be changed while it runs")


def lateness_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Lateness of the frames that left between two answers of ``Network.health()``.

    Returns ``{"frames", "p50_s", "p99_s", "max_s", "histogram"}``: quantiles in seconds, each the upper edge of the row
    that it falls into, None where no frame has left. Back ends without such a histogram make it all empty.
    """
    earlier = dict(map(tuple, before.get("lateness_histogram") or ()))
    later = after.get("lateness_histogram") or ()
    histogram = [[edge_s, frames - earlier.get(edge_s, 0)] for edge_s, frames in later]
    histogram = [row for row in histogram if row[1]]
    figures = {name: lateness_quantile(histogram, share) for name, share in _QUANTILES.items()}
    return {"frames": sum(frames for _, frames in histogram), **figures, "histogram": histogram}


def lateness_quantile(histogram: Sequence[Sequence[float]], share: float) -> float | None:
    """The upper edge of the row that holds this quantile, in seconds; None for an empty histogram."""
    wanted = share * sum(frames for _, frames in histogram)
    seen = 0.0
    for edge_s, frames in histogram:
        seen += frames
        if frames and seen >= wanted:
            return edge_s
    return None
