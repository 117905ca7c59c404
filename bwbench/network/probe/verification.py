"""Measures what a link really does between neighbours i and i+1: round trips on the idle link, then loss and rate;
between sites on every path (``probe_plan.rounds_of``).

What was found stands beside what was asked, with the verdict whether the two agree.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from bwbench.base.emulated_time import emulated_values
from bwbench.base.errors import LinkError
from bwbench.base.messages import MessageReader, encode
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.start_module import module_command
from bwbench.network.link import Link
from bwbench.network.network import Network, NodeProcess
from bwbench.network.probe import probe_plan
from bwbench.network.probe.node import CHANNEL_FD, Flow, FlowReport

# What a busy machine adds to a round trip at most; below 20 ms this is more than 5 %. Where emulated time runs faster
# than the machine's this and the next one are of emulated time: there the machine's delays weigh more, and the verdict
# has to tell. Where it runs slower they weigh less, and nothing is gained by allowing more of them.
RTT_SLACK_S = 1e-3
LOSS_Z = 3.5  # of the interval around the measured loss: one false alarm in 2000 pairs
JITTER_SLACK_S = 2e-4  # by which a busy machine varies a delay
JITTER_TOLD = 0.25  # a jitter is told where it is known to so much of itself
Verdict = Literal["ok", "unsure", "out-of-tolerance"]


@dataclass(frozen=True)
class PairMeasurement:
    """One neighbour pair. ``asked_*`` is None where nothing was asked, ``achieved_*`` where nothing came through.

    Attributes:
        asked_bps: the slower rate of Ethernet frames on the way, or the PHY rate of the sender on a shared air.
        asked_goodput_bps: UDP payload per second that this leaves to the pair while all nodes send.
        asked_rtt_s: both latencies and the serialisation of the probe's own frames.
        loss_frames: frames on which ``achieved_loss`` rests.
        rate_frames: frames on which ``achieved_goodput_bps`` rests.
        asked_jitter_s, achieved_jitter_s: standard deviation of the one-way delay; measured is that of round trips,
            which take two such delays.
        jitter_values: round trips that owe nothing to each other, on which it rests; 0 where it was not looked at.
        asked_burst: mean number of frames lost in a row; chance varies more with bursts than with single frames.
    """

    src: int
    dst: int
    asked_bps: float | None = None
    asked_goodput_bps: float | None = None
    achieved_goodput_bps: float = 0.0
    asked_rtt_s: float | None = None
    achieved_rtt_s: float | None = None
    asked_loss: float = 0.0
    achieved_loss: float | None = None
    loss_frames: int = 0
    rate_frames: int = 0
    asked_jitter_s: float = 0.0
    achieved_jitter_s: float | None = None
    jitter_values: float = 0.0
    asked_burst: float = 1.0

    @property
    def loss_interval(self) -> tuple[float, float] | None:
        """Where the loss lies with 99 % certainty; None where it was not measured."""
        if self.achieved_loss is None:
            return None
        return loss_interval(self.achieved_loss, self.loss_frames / self.loss_dependence, probe_plan.LOSS_TOLD_Z)

    @property
    def loss_dependence(self) -> float:
        """So many frames say as much as one that is lost by itself."""
        return 2 * self.asked_burst - 1

    @property
    def jitter_uncertainty(self) -> float:
        """Of the measured jitter, relative: half of its 99 % interval."""
        return probe_plan.LOSS_TOLD_Z / math.sqrt(2 * self.jitter_values) if self.jitter_values else math.inf

    def emulated(self, dilation: float) -> PairMeasurement:
        """See ``LinkMeasurement.emulated``."""
        return replace(self, **emulated_values(vars(self), dilation))

    @property
    def goodput_error(self) -> float | None:
        """Relative error of the goodput."""
        return self.achieved_goodput_bps / self.asked_goodput_bps - 1 if self.asked_goodput_bps else None

    @property
    def rtt_error_s(self) -> float | None:
        """Error of the round-trip time."""
        if self.asked_rtt_s is None or self.achieved_rtt_s is None:
            return None
        return self.achieved_rtt_s - self.asked_rtt_s


@dataclass(frozen=True)
class LinkMeasurement:
    """All pairs with the verdict.

    Attributes:
        reasons: a line for each thing out of tolerance, or for each that cannot be told where that is the verdict.
        alone: on a shared air, the goodput of one pair alone, (asked, achieved) in bit/s.
    """

    backend: str
    pairs: tuple[PairMeasurement, ...]
    verdict: Verdict
    reasons: tuple[str, ...]
    tolerance: float
    alone: tuple[float, float] | None = None

    def to_json(self) -> JsonObject:
        """As ``bwbench link verify --json`` prints it."""
        return {
            "backend": self.backend,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "tolerance": self.tolerance,
            "pairs": [{**asdict(pair), "loss_interval": _as_list(pair.loss_interval)} for pair in self.pairs],
            "alone_asked_goodput_bps": self.alone[0] if self.alone else None,
            "alone_achieved_goodput_bps": self.alone[1] if self.alone else None,
        }

    def emulated(self, dilation: float) -> LinkMeasurement:
        """The same in emulated time, which ran ``dilation`` times slower: higher rates, shorter times."""
        alone = self.alone and (self.alone[0] * dilation, self.alone[1] * dilation)
        return replace(self, pairs=tuple(pair.emulated(dilation) for pair in self.pairs), alone=alone)


def _as_list(interval: tuple[float, float] | None) -> list[Json] | None:
    return None if interval is None else [*interval]


def judge(
    backend: str,
    link: Link,
    pairs: Sequence[PairMeasurement],
    tolerance: float,
    alone: tuple[float, float] | None = None,
    *,
    thorough: bool = False,
) -> LinkMeasurement:
    """Compare what was achieved with what was asked; an unshaped link is always ok.

    Args:
        tolerance: relative, of the goodput and of the round-trip time. The latter is allowed ``RTT_SLACK_S`` in any
            case, and the jitter that was asked for; the former what chance makes of the loss that was asked for. Loss
            must lie within the binomial interval of the measured one.
        thorough: also judge the jitter, and be ``unsure`` where loss or jitter cannot be told from what was measured.
    """
    faster = min(1.0, link.dilation)
    reasons = [reason for pair in pairs for reason in _reasons(pair, tolerance, RTT_SLACK_S * faster)]
    reasons = reasons if link.shaped else []
    unsure: list[str] = []
    if thorough and link.shaped:
        reasons += [reason for pair in pairs for reason in _jitter_reasons(pair, tolerance, JITTER_SLACK_S * faster)]
        unsure = [reason for pair in pairs for reason in _unsure(pair)]
    if alone is not None and abs(alone[1] / alone[0] - 1) > tolerance:
        reasons.append(
            f"one pair alone: goodput is {alone[1] / 1e6:.3f} Mbit/s instead of {alone[0] / 1e6:.3f} Mbit/s "
            f"({alone[1] / alone[0] - 1:+.1%}, allowed {tolerance:.1%})"
        )
    verdict: Verdict = "out-of-tolerance" if reasons else "unsure" if unsure else "ok"
    return LinkMeasurement(backend, tuple(pairs), verdict, tuple(reasons or unsure), tolerance, alone)


def _reasons(pair: PairMeasurement, tolerance: float, slack_s: float) -> list[str]:
    reasons = []
    who = f"node {pair.src} to node {pair.dst}"
    asked_s, error = pair.asked_rtt_s or 0.0, pair.goodput_error
    # Both ways have a delay that varies, and the mean of few values of it is no more than that.
    by_chance_s = LOSS_Z * pair.asked_jitter_s * math.sqrt(2 / pair.jitter_values) if pair.jitter_values else 0.0
    allowed_s = max(tolerance * asked_s, slack_s) + max(pair.asked_jitter_s, by_chance_s)
    dependence = pair.loss_dependence
    if pair.asked_loss and pair.rate_frames:
        tolerance += LOSS_Z * math.sqrt(pair.asked_loss / (1 - pair.asked_loss) * dependence / pair.rate_frames)
    if error is not None and abs(error) > tolerance:
        reasons.append(
            f"{who}: goodput is {pair.achieved_goodput_bps / 1e6:.3f} Mbit/s instead of "
            f"{(pair.asked_goodput_bps or 0) / 1e6:.3f} Mbit/s ({error:+.1%}, allowed {tolerance:.1%})"
        )
    if pair.achieved_rtt_s is None:
        reasons.append(f"{who}: no answer to any ping")
    elif abs(pair.achieved_rtt_s - asked_s) > allowed_s:
        reasons.append(
            f"{who}: round trip is {pair.achieved_rtt_s * 1e3:.2f} ms instead of {asked_s * 1e3:.2f} ms "
            f"(allowed {allowed_s * 1e3:.2f} ms more or less)"
        )
    if pair.achieved_loss is not None:
        low, high = loss_interval(pair.achieved_loss, pair.loss_frames / dependence)
        if not low - probe_plan.LOSS_SLACK <= pair.asked_loss <= high + probe_plan.LOSS_SLACK:
            reasons.append(
                f"{who}: loss is {pair.achieved_loss:.2%} of {pair.loss_frames} frames instead of {pair.asked_loss:.2%}"
            )
    return reasons


def _jitter_reasons(pair: PairMeasurement, tolerance: float, slack_s: float) -> list[str]:
    asked_s, found_s = pair.asked_jitter_s, pair.achieved_jitter_s
    if not asked_s or found_s is None or not pair.jitter_values:
        return []
    allowed_s = asked_s * (tolerance + LOSS_Z / math.sqrt(2 * pair.jitter_values)) + slack_s
    if abs(found_s - asked_s) <= allowed_s:
        return []
    return [
        f"node {pair.src} to node {pair.dst}: jitter is {found_s * 1e3:.2f} ms instead of {asked_s * 1e3:.2f} ms "
        f"(allowed {allowed_s * 1e3:.2f} ms more or less)"
    ]


def _unsure(pair: PairMeasurement) -> list[str]:
    """What was measured too shortly to be told, and what would tell it."""
    who, reasons = f"node {pair.src} to node {pair.dst}", []
    if pair.asked_loss and (interval := pair.loss_interval) is not None:
        told = probe_plan.loss_told(pair.asked_loss)
        if not pair.asked_loss - told <= interval[0] <= interval[1] <= pair.asked_loss + told:
            needed = max(probe_plan.frames_to_tell(pair.asked_loss, pair.loss_dependence), 2 * pair.loss_frames)
            reasons.append(
                f"{who}: {pair.loss_frames} frames say that the loss is {interval[0]:.2%} to {interval[1]:.2%} (99 %), "
                f"and {pair.asked_loss:.2%} was asked; about {needed} would tell: a link of more bandwidth "
                "carries them in the time"
            )
    if pair.asked_jitter_s and pair.jitter_uncertainty > JITTER_TOLD:
        reasons.append(
            f"{who}: the jitter is known to {pair.jitter_uncertainty:.0%} only, from {pair.jitter_values:.0f} round "
            "trips that owe nothing to each other; fewer nodes are measured longer"
        )
    return reasons


def loss_interval(share: float, trials: float, z: float = LOSS_Z) -> tuple[float, float]:
    """Wilson's interval for a probability of which ``share`` was seen in ``trials``."""
    if trials == 0:
        return 0.0, 1.0
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


START_LIMIT_S = 30.0
SLACK_S = 15.0  # what a reply may take beyond the time that the work itself needs, on a machine that is busy
LEAD_S = 0.03  # from telling the nodes to start until they do
LATENCY_ROOM = 12  # a link that is this many times as late as asked is still measured


def verify(
    network: Network,
    link: Link,
    num_nodes: int,
    tolerance: float = 0.05,
    *,
    thorough: bool = False,
    rounds: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> LinkMeasurement:
    """Measure the link between neighbours, of sites every path, and compare it with what was asked.

    Takes about 1.5 s from 10 Mbit/s on, 4 s at 1 Mbit/s, and wants the data network idle. What it returns as achieved
    comes from the measurement alone. Raises LinkError where the probe itself cannot run.

    Args:
        link: as it was made: of a network in slow motion ``asked.dilated(network.dilation)``. All figures are of the
            machine's time.
        thorough: measure long enough to tell the loss and the jitter that were asked, as far as
            ``LOSS_THOROUGH_S`` and ``THOROUGH_PINGS_S`` allow; see ``judge``.
        rounds: the pairs to measure in place of the usual ones, in each round those that send at the same time; whoever
            sends receives as well. See ``probe_plan.pairs_between``.
    """
    if num_nodes == 1:
        return judge(network.backend, link, [], tolerance)
    measured: list[PairMeasurement] = []
    alone: tuple[float, float] | None = None
    probe = _Probe(network, num_nodes)
    try:
        probe.start()
        planned = probe_plan.rounds_of(link, num_nodes)
        if rounds is not None:
            planned = [probe_plan.pairs_between(link, num_nodes, ends) for ends in rounds]
        for pairs in planned:
            probe.pair_up(
                [pair.ends for pair in pairs] or [(node, (node + 1) % num_nodes) for node in range(num_nodes)]
            )
            round_trips = _round_trips(probe, link, pairs, thorough=thorough)
            losses = _losses(probe, link, pairs, thorough=thorough)
            alone = _alone(probe, link)
            flows = probe_plan.rate_flows(link, num_nodes, pairs)
            rates = probe.flow(flows)
            time.sleep(probe_plan.drain_s(link, flows, pairs))
            measured += _measured(link, pairs, probe.pairs, round_trips, losses, rates)
    finally:
        probe.close()
    return judge(network.backend, link, measured, tolerance, alone, thorough=thorough)


def _measured(
    link: Link,
    pairs: Sequence[probe_plan.Pair],
    ends: Sequence[tuple[int, int]],
    round_trips: Mapping[int, RoundTrips],
    losses: Sequence[tuple[float | None, int]],
    rates: Mapping[int, FlowReport],
) -> list[PairMeasurement]:
    """What one round has found, beside what was asked.

    Args:
        pairs: of the link; empty where nothing was asked.
        ends: who sent to whom; round_trips, losses: in their order; rates: by node.
    """
    measured = [
        PairMeasurement(
            src,
            dst,
            achieved_goodput_bps=rates[dst].goodput_bps,  # the receiver tells
            achieved_rtt_s=round_trips[number].median_s,
            achieved_jitter_s=round_trips[number].one_way_deviation_s,
            jitter_values=round_trips[number].independent,
            achieved_loss=losses[number][0],
            loss_frames=losses[number][1],
            rate_frames=rates[dst].received,
        )
        for number, (src, dst) in enumerate(ends)
    ]
    for number, pair in enumerate(pairs):
        measured[number] = replace(
            measured[number],
            asked_bps=link.node(pair.src).up_bps if link.air else pair.frames_bps,
            asked_goodput_bps=pair.goodput_bps,
            asked_rtt_s=pair.rtt_s,
            asked_loss=pair.loss,
            asked_jitter_s=pair.jitter_s,
            asked_burst=link.loss_burst or 1.0,
        )
    return measured


@dataclass(frozen=True)
class RoundTrips:
    """Round-trip times from a node to the next, in seconds.

    Attributes:
        independent: so many values owe nothing to each other.
    """

    seconds: Sequence[float]
    independent: float

    @property
    def median_s(self) -> float | None:
        """None where nothing was answered."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def one_way_deviation_s(self) -> float | None:
        """Of the delay of one of the two ways, which vary alike and independently of each other."""
        return statistics.stdev(self.seconds) / math.sqrt(2) if len(self.seconds) > 1 else None


def _round_trips(
    probe: _Probe, link: Link, pairs: Sequence[probe_plan.Pair], *, thorough: bool
) -> dict[int, RoundTrips]:
    found: dict[int, RoundTrips] = {}
    groups = probe_plan.ping_groups(pairs, len(probe.pairs), is_shared=link.medium == "shared")
    for group in groups:
        limits_s, independent = {}, {}
        for number in group:
            (node, peer), pair = probe.pairs[number], pairs[number] if pairs else None
            asked_s = pair.rtt_s if pair else 1e-3
            timeout_s = max(0.1, (3 if pair and pair.loss else LATENCY_ROOM) * asked_s)
            plan = probe_plan.pings(pair, wanders=link.wanders, thorough=thorough, num_groups=len(groups))
            limits_s[number] = plan.budget_s + timeout_s
            independent[number] = plan.independent / plan.count if pair and pair.jitter_s else 0.0
            probe.ask(
                node, "ping", peer=probe.address(peer), count=plan.count, every_s=plan.every_s,
                payload_bytes=probe_plan.PING_PAYLOAD_BYTES, timeout_s=timeout_s, budget_s=plan.budget_s,
            )  # fmt: skip
        for number in group:
            seconds = probe.reply(probe.pairs[number][0], limits_s[number])["round_trips_s"]
            found[number] = RoundTrips(seconds, independent[number] * len(seconds))
    return found


def _losses(
    probe: _Probe, link: Link, pairs: Sequence[probe_plan.Pair], *, thorough: bool
) -> list[tuple[float | None, int]]:
    """Share of the frames that each pair lost, and on how many frames that rests."""
    flows = probe_plan.loss_flows(link, probe.num_nodes, pairs, thorough=thorough)
    if flows is None:
        return [(None, 0)] * len(probe.pairs)
    replies = probe.flow(flows)
    counts = [(replies[src].sent, replies[dst].received) for src, dst in probe.pairs]
    return [(max(0.0, 1 - received / sent), sent) if sent else (None, 0) for sent, received in counts]


def _alone(probe: _Probe, link: Link) -> tuple[float, float] | None:
    """Goodput of one pair while nobody else sends, (asked, achieved) in bit/s; None on a switched link."""
    planned = probe_plan.alone_flow(link, probe.num_nodes)
    if planned is None:
        return None
    pair, flow = planned
    silence = replace(flow, datagrams_per_s=0.0, burst=0)
    flows = [flow if node == pair.src else silence for node in range(probe.num_nodes)]
    achieved_bps = probe.flow(flows)[pair.dst].goodput_bps
    time.sleep(probe_plan.drain_s(link, flows))
    return pair.alone_goodput_bps, achieved_bps


class _Probe:
    """A probe process in every node, and the channels to them.

    Attributes:
        pairs: who sends to whom; see ``pair_up``.
    """

    def __init__(self, network: Network, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.pairs: list[tuple[int, int]] = []
        self._num_streams = 0
        self._network = network
        self._channels: list[socket.socket] = []
        self._processes: list[NodeProcess] = []
        self._replies: list[MessageReader] = []
        self._errors_fd = os.memfd_create("probe-stderr")

    def start(self) -> None:
        """Start the processes; returns once all are ready."""
        for node in range(self.num_nodes):
            ours, theirs = socket.socketpair()
            self._channels.append(ours)
            self._replies.append(MessageReader(ours.fileno()))
            with theirs:
                argv = [*module_command("bwbench.network.probe.node"), self._network.nodes[node].data_address]
                fds = {CHANNEL_FD: theirs.fileno()}
                process = self._network.spawn(
                    node, argv, cwd="/", stderr=self._errors_fd, pass_fds=fds, few_rights=True
                )
                self._processes.append(process)
        for node in range(self.num_nodes):
            self.reply(node, START_LIMIT_S)

    def pair_up(self, pairs: Sequence[tuple[int, int]]) -> None:
        """From now on these send, and to whom: nobody twice. Whoever sends receives as well."""
        self.pairs = list(pairs)

    def address(self, node: int) -> str:
        """Data address of a node."""
        return self._network.nodes[node].data_address

    def flow(self, flows: Sequence[Flow]) -> dict[int, FlowReport]:
        """Run a stream a pair, all at once; what each of their nodes says afterwards. All take equally long."""
        self._num_streams += 1
        common = {"stream": self._num_streams, "start_mono_s": time.monotonic() + LEAD_S}
        for (src, dst), flow in zip(self.pairs, flows, strict=True):
            self.ask(src, "flow", peer=self.address(dst), flow=vars(flow), **common)
        limit_s = LEAD_S + max(flow.duration_s + flow.listen_s for flow in flows)
        return {src: FlowReport(**self.reply(src, limit_s)) for src, _ in self.pairs}

    def ask(self, node: int, operation: str, **parameters: Any) -> None:
        """Tell a node what to do."""
        try:
            self._channels[node].sendall(encode({"op": operation, **parameters}))
        except OSError as error:
            raise self._failure(node, "has ended") from error

    def reply(self, node: int, expected_s: float) -> dict[str, Any]:
        """What a node says next; raises LinkError where it ends, or takes much longer than expected."""
        try:
            reply = self._replies[node].receive(expected_s + SLACK_S)
        except TimeoutError:
            raise self._failure(node, "does not answer") from None
        if reply is None:
            raise self._failure(node, "has ended")
        return reply

    def close(self) -> None:
        """End the processes."""
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            process.kill()
            process.wait(SLACK_S)
        os.close(self._errors_fd)

    def _failure(self, node: int, what: str) -> LinkError:
        text = ""
        with contextlib.suppress(OSError):
            text = os.pread(self._errors_fd, 1 << 16, 0).decode(errors="replace").strip()
        return LinkError(f"the probe in node {node} {what}" + (f": {text.splitlines()[-1]}" if text else ""))
