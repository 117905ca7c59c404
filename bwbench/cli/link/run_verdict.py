"""What a link has done while programs ran on it, and whether the emulator kept up with what was asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from bwbench.base.errors import LinkError
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import BANDWIDTH, rounded
from bwbench.cli.output import plain_table, seconds, size
from bwbench.network.backend_choice import beyond_relay
from bwbench.network.link import Link
from bwbench.network.namespaces.backend import WireCounters
from bwbench.network.network import Network
from bwbench.network.probe.machine import LATE_S
from bwbench.running.launch.attempt import emulator_of, emulator_unfit

# A frame that is later than this was no longer on the link that was asked for, were it the only one: Linux' TCP repeats
# what is not acknowledged after 200 ms at the earliest, so that one such delay looks like a loss to it.
WORST_LATE_S = 0.2
# Of a core that the relay used: beyond that it has given up being exact to get through (``relay_loop.py``).
BUSY_SHARE = 0.7
REACHED_SHARE = 0.9  # of the rate that was asked: what comes so close is not held up by the emulator
_SHOWN_NODES = 16


@dataclass(frozen=True)
class NodeTraffic:
    """What a node has sent and received, and the frames that it sent and the link lost; rates over ``seconds_s``."""

    node: int
    sent_bytes: int
    received_bytes: int
    sent_frames: int
    dropped_frames: int
    sent_bps: float
    received_bps: float


def traffic_of(wire: WireCounters, num_nodes: int, seconds_s: float) -> list[NodeTraffic]:
    """Node by node. Where the back end cannot tell who sent or received, that side is 0."""
    rows = []
    for node in range(num_nodes):
        sent = [pair for (src, _), pair in wire.pairs.items() if src == node]
        sent_bytes = sum(pair.bytes for pair in sent)
        received_bytes = sum(pair.bytes for (_, dst), pair in wire.pairs.items() if dst == node)
        frames, drops = sum(pair.frames for pair in sent), sum(pair.drops for pair in sent)
        rates = (sent_bytes * 8 / seconds_s, received_bytes * 8 / seconds_s)
        rows.append(NodeTraffic(node, sent_bytes, received_bytes, frames, drops, *rates))
    return rows


@dataclass(frozen=True)
class RunVerdict:
    """What was achieved while the programs ran.

    Attributes:
        wall_s: from the start of the programs to their end.
        peak_bps: most that one node has sent or received within a second, whole frames.
        worst_late_s, p99_late_s: lateness of the emulator's frames; None where it does not tell or none has left.
        reasons: why the link was not what was asked; none where it was.
    """

    backend: str
    wall_s: float
    nodes: tuple[NodeTraffic, ...]
    frames: int
    bytes: int
    dropped_frames: int
    peak_bps: float
    worst_late_s: float | None = None
    p99_late_s: float | None = None
    reasons: tuple[str, ...] = field(default=())

    def to_json(self) -> JsonObject:
        """All of it, and ``verdict``: ok or unfit."""
        return {"verdict": "unfit" if self.reasons else "ok", **asdict(self)}

    def lines(self) -> Iterator[str]:
        """For people: a row a node where anything was sent, then the sum."""
        if self.frames and len(self.nodes) > 1:
            rows = [
                (str(row.node), _rate(row.sent_bps), _rate(row.received_bps), str(row.dropped_frames))
                for row in self.nodes[:_SHOWN_NODES]
            ]
            columns = ("node", "sent", "received", "frames dropped")
            yield from plain_table(columns, rows, right=columns)
            if len(self.nodes) > _SHOWN_NODES:
                yield f"and {len(self.nodes) - _SHOWN_NODES} more nodes"
        words = f"{self.backend}: {size(self.bytes)} in {self.frames} frames on the wire in {seconds(self.wall_s)}"
        words += f" ({_rate(self.bytes * 8 / self.wall_s)}), {self.dropped_frames} dropped"
        if self.p99_late_s is not None and self.worst_late_s is not None:
            words += f"; lateness: p99 {_ms(self.p99_late_s)}, worst {_ms(self.worst_late_s)}"
        yield words


class RunWatch:
    """Looks at a link from the start of the programs on, so that the busiest second is known at the end."""

    def __init__(self, network: Network, link: Link) -> None:
        self._network, self._link = network, link
        self._begun = self._last = _Look.at(network)
        self._peak_bps = self._busiest_share = 0.0
        self.latest: list[NodeTraffic] = []

    def look(self) -> None:
        """Look once more; raises LinkError where the emulator has ended."""
        now = _Look.at(self._network)
        if now.health.get("alive") is False:
            raise LinkError("the emulator of the link has ended; the commands were ended too")
        self._note(now)

    def verdict(self) -> RunVerdict:
        """How it was until now."""
        now = _Look.at(self._network)
        self._note(now)
        wall_s = now.time_s - self._begun.time_s
        wire = now.wire.minus(self._begun.wire)
        total = wire.total()
        health = now.health
        return RunVerdict(
            backend=self._network.backend,
            wall_s=wall_s,
            nodes=tuple(traffic_of(wire, len(self._network.nodes), wall_s)),
            frames=total.frames,
            bytes=total.bytes,
            dropped_frames=total.drops,
            peak_bps=self._peak_bps,
            worst_late_s=health.get("lateness_max_s"),
            p99_late_s=health.get("lateness_p99_s"),
            reasons=tuple(
                unfit_reasons(health, self._link, len(self._network.nodes), self._peak_bps, self._busiest_share)
            ),
        )

    def _note(self, now: _Look) -> None:
        passed_s = max(now.time_s - self._last.time_s, 1e-3)
        self.latest = traffic_of(now.wire.minus(self._last.wire), len(self._network.nodes), passed_s)
        self._peak_bps = max(self._peak_bps, *(max(row.sent_bps, row.received_bps) for row in self.latest))
        used_s, before_s = now.health.get("cpu_s"), self._last.health.get("cpu_s")
        if used_s is not None and before_s is not None:
            self._busiest_share = max(self._busiest_share, (used_s - before_s) / passed_s)
        self._last = now


@dataclass(frozen=True)
class _Look:
    time_s: float
    wire: WireCounters
    health: JsonObject

    @classmethod
    def at(cls, network: Network) -> _Look:
        return cls(time.monotonic(), network.counters(), network.health())


def unfit_reasons(
    health: JsonObject, link: Link, num_nodes: int, peak_bps: float, busiest_share: float
) -> Sequence[str]:
    """Why the emulator was not the link that was asked for; none where it was.

    Args:
        health: of the back end, see ``Network.health``.
        peak_bps: most that one node has sent or received within a second.
        busiest_share: of a core that the emulator has used within a second.
    """
    reasons = []
    worst_s = health.get("lateness_max_s") or 0.0
    if worst_s > WORST_LATE_S:
        reasons.append(
            f"the emulator was late: a frame left {_ms(worst_s)} after its time (at most {_ms(WORST_LATE_S)})"
        )
    elif reason := emulator_unfit(emulator_of(health, None)):
        reasons.append(reason)
    asked_bps = max((max(node.up_bps, node.down_bps) for node in link.nodes(num_nodes)), default=0.0)
    is_late = (health.get("lateness_p99_s") or 0.0) > LATE_S or busiest_share > BUSY_SHARE
    if link.shaped and beyond_relay(link, num_nodes) and is_late and peak_bps < REACHED_SHARE * asked_bps:
        reasons.append(
            f"{_rate(asked_bps)} was not reached because the emulator cannot carry it: {_rate(peak_bps)} a node at most"
        )
    return reasons


def _rate(value_bps: float) -> str:
    return BANDWIDTH.show(value_bps, 3)


def _ms(value_s: float) -> str:
    return f"{rounded(value_s * 1e3, 3)} ms"
