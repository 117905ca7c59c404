"""What a link has done while programs ran on it, and whether the emulator kept up with what was asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace

from bwbench.base.errors import LinkError
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import BANDWIDTH, rounded
from bwbench.cli.link.read_link import dilation_words
from bwbench.cli.output import plain_table, seconds, size
from bwbench.network.backend_choice import beyond_relay, relay_limit_bps
from bwbench.network.link import Link
from bwbench.network.namespaces.backend import WireCounters
from bwbench.network.network import Network
from bwbench.network.probe.machine import LATE_S
from bwbench.records.schema import Emulator
from bwbench.running.launch.attempt import emulator_of, emulator_unfit

# A frame that is later than this was no longer on the link that was asked for, were it the only one: Linux' TCP repeats
# what is not acknowledged after 200 ms at the earliest, so that one such delay looks like a loss to it. In emulated
# time, as that wait is (``namespaces/retransmission.py``).
WORST_LATE_S = 0.2
LONGEST_STILL_S = 1.0  # where nothing comes the relay looks around every half second
# Of a core that the relay used: beyond that it has given up being exact to get through (``relay_loop.py``).
BUSY_SHARE = 0.7
REACHED_SHARE = 0.9  # of the rate that was asked: what comes so close is not held up by the emulator
_SHORTEST_S = 0.2  # in less a burst that the queue takes looks like a rate
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
        dilation: so many times slower than asked the link was; all figures are of the machine's time.
        looked_outside: nodes that asked for an address that is none of theirs.
        reasons: why the link was not what was asked; none where it was.
        changes: of the link while the programs ran (``link set``): when, which keys, and the link that it became.
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
    reasons: tuple[str, ...] = ()
    looked_outside: tuple[int, ...] = ()
    dilation: float = 1.0
    changes: tuple[JsonObject, ...] = ()

    def to_json(self) -> JsonObject:
        """All of it, and ``verdict``: ok or unfit; in slow motion ``emulated``, the same in emulated time."""
        found = {"verdict": "unfit" if self.reasons else "ok", **asdict(self)}
        return found if self.dilation == 1 else {**found, "emulated": asdict(self.emulated())}

    def emulated(self) -> RunVerdict:
        """The same in emulated time."""
        factor = self.dilation
        return replace(
            self,
            wall_s=self.wall_s / factor,
            nodes=tuple(
                replace(row, sent_bps=row.sent_bps * factor, received_bps=row.received_bps * factor)
                for row in self.nodes
            ),
            peak_bps=self.peak_bps * factor,
            worst_late_s=self.worst_late_s and self.worst_late_s / factor,
            p99_late_s=self.p99_late_s and self.p99_late_s / factor,
            dilation=1.0,
        )

    def lines(self) -> Iterator[str]:
        """For people: a row a node where anything was sent, then the sum; in slow motion in both times."""
        if self.dilation != 1:
            yield "in the machine's time:"
        yield from self._lines()
        if self.dilation != 1:
            yield f"in emulated time (made {dilation_words(self.dilation)}):"
            yield from self.emulated()._lines()

    def _lines(self) -> Iterator[str]:
        if self.frames and len(self.nodes) > 1:
            rows = [
                (str(row.node), _rate(row.sent_bps), _rate(row.received_bps), str(row.dropped_frames))
                for row in self.nodes[:_SHOWN_NODES]
            ]
            columns = ("node", "sent", "received", "dropped")
            yield from plain_table(columns, rows, right=columns)
            if len(self.nodes) > _SHOWN_NODES:
                yield f"and {len(self.nodes) - _SHOWN_NODES} more nodes"
        for change in self.changes:
            yield f"changed after {seconds(float(str(change['at_s'])))}: {change['link']}"
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
        self._peaks = Peaks()
        self._still_s = 0.0
        self.latest: list[NodeTraffic] = []

    def look(self) -> None:
        """Look once more; raises LinkError where the emulator has ended."""
        now = _Look.at(self._network)
        if now.emulator.alive is False:
            raise LinkError(
                "the emulator of the link has ended; the commands were ended too. 'bwbench doctor' says more"
            )
        self._note(now)

    def verdict(self) -> RunVerdict:
        """How it was until now."""
        now = _Look.at(self._network)
        self._note(now)
        wall_s = now.time_s - self._begun.time_s
        wire = now.wire.minus(self._begun.wire)
        total = wire.total()
        return RunVerdict(
            backend=self._network.backend,
            wall_s=wall_s,
            nodes=tuple(traffic_of(wire, len(self._network.nodes), wall_s)),
            frames=total.frames,
            bytes=total.bytes,
            dropped_frames=total.drops,
            peak_bps=self._peaks.node_bps,
            looked_outside=tuple(self._network.looked_outside()),
            dilation=self._link.dilation,
            worst_late_s=now.emulator.lateness_max_s,
            p99_late_s=now.emulator.lateness_p99_s,
            reasons=tuple(unfit_reasons(now.emulator, self._link, len(self._network.nodes), self._peaks)),
        )

    def _note(self, now: _Look) -> None:
        passed_s = max(now.time_s - self._last.time_s, 1e-3)
        self.latest = traffic_of(now.wire.minus(self._last.wire), len(self._network.nodes), passed_s)
        wake_ups = now.emulator.wake_ups
        self._still_s = (
            self._still_s + passed_s if wake_ups is not None and wake_ups == self._last.emulator.wake_ups else 0.0
        )
        used_s, before_s = now.emulator.cpu_s, self._last.emulator.cpu_s
        peaks = Peaks(
            node_bps=max(max(row.sent_bps, row.received_bps) for row in self.latest),
            total_bps=sum(row.sent_bps for row in self.latest),
            busy_share=0.0 if used_s is None or before_s is None else (used_s - before_s) / passed_s,
            still_s=self._still_s,
        )
        if passed_s > _SHORTEST_S:
            self._peaks = self._peaks.or_more(peaks)
        self._last = now


@dataclass(frozen=True)
class _Look:
    time_s: float
    wire: WireCounters
    emulator: Emulator

    @classmethod
    def at(cls, network: Network) -> _Look:
        return cls(time.monotonic(), network.counters(), emulator_of(network.health(), None))


@dataclass(frozen=True)
class Peaks:
    """The most within one second.

    Attributes:
        node_bps: that a node has sent or received.
        total_bps: that all have sent together.
        busy_share: of a core that the emulator has used.
        still_s: for how long at a time the emulator has done nothing, not even look whether there is something to do.
    """

    node_bps: float = 0.0
    total_bps: float = 0.0
    busy_share: float = 0.0
    still_s: float = 0.0

    def or_more(self, other: Peaks) -> Peaks:
        """The larger of each."""
        return Peaks(*(max(pair) for pair in zip(astuple(self), astuple(other), strict=True)))


def unfit_reasons(emulator: Emulator, link: Link, num_nodes: int, peaks: Peaks) -> Sequence[str]:
    """Why the emulator was not the link that was asked for, in the machine's time; none where it was."""
    reasons = []
    worst_s = emulator.lateness_max_s or 0.0
    allowed_s = WORST_LATE_S * link.dilation
    if worst_s > allowed_s:
        reasons.append(f"the emulator was late: a frame left {_ms(worst_s)} after its time (at most {_ms(allowed_s)})")
    elif peaks.still_s > LONGEST_STILL_S:
        reasons.append(f"the emulator stood still for {rounded(peaks.still_s, 2)} s or longer")
    elif reason := emulator_unfit(emulator, link.dilation):
        reasons.append(reason)
    if not link.shaped or not beyond_relay(link, num_nodes):
        return reasons
    asked_bps = max(max(node.up_bps, node.down_bps) for node in link.nodes(num_nodes))
    at_its_end = (
        (emulator.lateness_p99_s or 0.0) > LATE_S
        or peaks.busy_share > BUSY_SHARE
        or peaks.total_bps > relay_limit_bps(link, num_nodes)
    )
    if at_its_end and peaks.node_bps < REACHED_SHARE * asked_bps:
        reasons.append(
            f"{_rate(asked_bps)} was not reached, and the emulator cannot carry it: a node had "
            f"{_rate(peaks.node_bps)} at most"
        )
    return reasons


def _rate(value_bps: float) -> str:
    return BANDWIDTH.show(value_bps, 3)


def _ms(value_s: float) -> str:
    return f"{rounded(value_s * 1e3, 3)} ms"
