"""``link.json``: what was asked of the link, what was set, what it did, and what crossed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from bwbench.base.emulated_time import emulated_values
from bwbench.base.plain_data import Json, JsonObject
from bwbench.records.schema.record import Flag, Number, Record, Text, Versioned, Whole


class MeasuredPair(Record):
    """What the probe found between two neighbours; None where nothing was asked, or nothing came through.

    Attributes:
        src, dst: numbers of the nodes.
        asked_bps: the slower rate of Ethernet frames on the way.
        asked_goodput_bps, achieved_goodput_bps: UDP payload (across real machines TCP payload) while all nodes send.
        asked_rtt_s: both latencies and the serialisation of the probe's own frames; achieved_rtt_s: measured.
        asked_loss, achieved_loss: shares of the frames; loss_frames: frames that the latter rests on.
        loss_interval: where the loss lies with 99 % certainty.
        rate_frames: frames that the achieved goodput rests on.
        asked_jitter_s, achieved_jitter_s: standard deviation of the one-way delay; jitter_values: round trips that owe
            nothing to each other, which the latter rests on.
        asked_burst: mean number of frames lost in a row.
    """

    src: Whole
    dst: Whole
    asked_bps: Number | None = None
    asked_goodput_bps: Number | None = None
    achieved_goodput_bps: Number | None = None
    asked_rtt_s: Number | None = None
    achieved_rtt_s: Number | None = None
    asked_loss: Number | None = None
    achieved_loss: Number | None = None
    loss_frames: Whole = 0
    loss_interval: tuple[Number, Number] | None = None
    rate_frames: Whole = 0
    asked_jitter_s: Number | None = None
    achieved_jitter_s: Number | None = None
    jitter_values: Number = 0
    asked_burst: Number | None = None

    def undilated(self, dilation: float, shrink: float = 1.0) -> MeasuredPair:
        """The same in the time of the link that was asked, of which one that is dilated, and shrunk, was measured."""
        found = emulated_values(dict(self), dilation)
        whole = {name: value * shrink if name.endswith("_bps") else value for name, value in found.items()}
        return self.model_copy(update=whole)


class ComparedClock(Record):
    """At ``mono_s`` of rank 0's clock that of ``rank`` showed ``offset_s`` more, give or take ``uncertainty_s``."""

    rank: Whole
    mono_s: Number
    offset_s: Number
    uncertainty_s: Number


class Measurement(Record):
    """What the probe measured on the very link.

    Attributes:
        verdict: ``ok`` or ``out-of-tolerance``; reasons: what was.
        tolerance: relative.
        pairs: of neighbours.
        alone_asked_goodput_bps, alone_achieved_goodput_bps: on a shared air, of one pair alone.
        method: how it was found, where not by paced UDP.
        tries: how often it was measured; rejected: the reasons of those that do not count.
        clocks: across real machines, of every rank but rank 0.
        clock_s: what the training clock stood at; absent before training and after it.
    """

    backend: Text | None = None
    verdict: Text | None = None
    reasons: tuple[Text, ...] = ()
    tolerance: Number | None = None
    pairs: tuple[MeasuredPair, ...] = ()
    alone_asked_goodput_bps: Number | None = None
    alone_achieved_goodput_bps: Number | None = None
    method: Text | None = None
    tries: Whole | None = None
    rejected: tuple[tuple[Text, ...], ...] = ()
    clocks: tuple[ComparedClock, ...] = ()
    clock_s: Number | None = None


class NodeApplied(Record):
    """The parameters of one node's connection, each where it differs from that of most nodes; as in ``Applied``."""

    up_bps: Number | None = None
    down_bps: Number | None = None
    latency_s: Number | None = None
    jitter_s: Number | None = None
    loss: Number | None = None
    queue_bytes: Whole | None = None
    down_queue_bytes: Whole | None = None
    queue_packets: Whole | None = None
    discipline: JsonObject | None = None
    up_trace: JsonObject | None = None
    down_trace: JsonObject | None = None


class SiteApplied(Record):
    """A site: its nodes, and the lines that they share; None where it has none of its own. As in ``Applied``."""

    name: Text
    nodes: tuple[Whole, ...] = ()
    up_bps: Number | None = None
    down_bps: Number | None = None
    queue_bytes: Whole | None = None
    down_queue_bytes: Whole | None = None
    queue_packets: Whole | None = None


class PathApplied(Record):
    """From one site to another.

    Attributes:
        src, dst: names of the sites.
        bandwidth_bps: of a line that the path has for itself, with queue_bytes or queue_packets; None where it has
            none.
        latency_s: one way, on top of what is between two nodes of a site.
    """

    src: Text
    dst: Text
    bandwidth_bps: Number | None = None
    latency_s: Number = 0.0
    queue_bytes: Whole | None = None
    queue_packets: Whole | None = None


class HostApplied(Record):
    """What one host's kernel was told.

    Attributes:
        applied: in words.
        run: name of the run that held it; armed_by: what would have taken it back, had that died.
        commands: for people, what the kernel was told.
    """

    interface: Text
    applied: Text | None = None
    run: Text | None = None
    armed_by: Json = None
    commands: Json = None


class _OfAllNodes(Record):
    """What is the same for every node; it comes first."""

    offloads: Flag | None = None
    super_packet_bytes: Whole | None = None
    mtu: Whole | None = None
    tcp: dict[Text, Text] = {}
    undilated: tuple[Text, ...] = ()
    bridge: Text | None = None
    bandwidth_bps: Number | None = None


class Applied(NodeApplied, _OfAllNodes):
    """The parameters that were really set, in one shape for all back ends; absent where a back end has no such thing.

    All are of the machine's time: in slow motion rates are lower and times longer than ``requested``.

    Attributes:
        offloads, super_packet_bytes, mtu: of the nodes' interfaces.
        tcp: TCP's settings in the nodes; the congestion control is that in force on the link, by namespace or route.
        undilated: in slow motion, in words what of TCP goes on in the machine's own time.
        bridge: of an unshaped link, the interface that joins the nodes.
        bandwidth_bps: the slower of up_bps and down_bps, of most nodes.
        latency_s, jitter_s, loss: of the path between two of them.
        queue_bytes, down_queue_bytes, queue_packets: room before the node's rates.
        discipline: what manages these queues, with all that it was told; None where they are drop-tail.
        up_trace, down_trace: files that rates are played from.
        jitter_kind, jitter_distribution, reorder, burst_loss: how delays and losses vary.
        medium, air: whether nodes share the air, and how.
        nodes: of nodes that differ from most, by number, in what.
        outages: times without a link; cross_traffic: what others were to send over the nodes' links; handover: how
            nodes were to get new paths; demand: how rates were to follow what is sent.
        sites: places whose nodes share the lines to the outside; paths: from each to every other.
        seed: of all that is random; seed_applied: whether the kernel took it.
        qdiscs: of netem, the queueing disciplines of nodes that are alike.
        priority: of the relay, what scheduling it got.
        hosts: across real machines, by host; None for one of which nothing was heard.
    """

    jitter_kind: Text | None = None
    jitter_distribution: Text | None = None
    reorder: Flag | None = None
    burst_loss: JsonObject | None = None
    medium: Text | None = None
    air: JsonObject | None = None
    nodes: dict[Text, NodeApplied] = {}
    outages: tuple[JsonObject, ...] = ()
    cross_traffic: tuple[JsonObject, ...] = ()
    handover: JsonObject | None = None
    demand: JsonObject | None = None
    sites: tuple[SiteApplied, ...] = ()
    paths: tuple[PathApplied, ...] = ()
    seed: Whole | None = None
    seed_applied: Flag | None = None
    qdiscs: tuple[JsonObject, ...] = ()
    priority: Text | None = None
    hosts: tuple[HostApplied | None, ...] = ()

    def between(self, src: int, dst: int) -> tuple[list[float], float]:
        """Rates of the lines that two nodes of different sites share with others, and the latency that this adds."""
        of = {node: site for site in self.sites for node in site.nodes}
        here, there = of.get(src), of.get(dst)
        if here is None or there is None or here.name == there.name:
            return [], 0.0
        ends = (here.name, there.name)
        path = next(
            (path for path in self.paths if (path.src, path.dst) == ends), PathApplied(src=ends[0], dst=ends[1])
        )
        rates = (here.up_bps, path.bandwidth_bps, there.down_bps)
        return [rate_bps for rate_bps in rates if rate_bps is not None], path.latency_s

    @model_validator(mode="before")
    @classmethod
    def _one_shape(cls, content: Any) -> Any:
        """netem used to say qdisc by qdisc, under ``shapes``, what the relay says node by node."""
        if not isinstance(content, dict) or not isinstance(content.get("shapes"), list):
            return content
        shapes = [shape for shape in content["shapes"] if isinstance(shape, dict)]
        told = [(_rates(shape), shape.get("nodes")) for shape in shapes]
        usual = {key: content.get(key) for key in ("up_bps", "down_bps")}
        nodes = {
            str(node): differing
            for rates, numbers in told
            if (differing := {key: value for key, value in rates.items() if value != usual[key]})
            for node in (numbers if isinstance(numbers, list) else ())
        }
        kept = {key: value for key, value in content.items() if key != "shapes"}
        return {**kept, "nodes": nodes, "qdiscs": shapes}


def _rates(shape: Mapping[str, object]) -> dict[str, float]:
    """The rates of a netem node, out of its queueing disciplines."""
    found = {}
    for name in ("up", "down"):
        qdisc = shape.get(name)
        rate = qdisc.get("rate_bytes_per_s") if isinstance(qdisc, dict) else None
        if isinstance(rate, (int, float)):
            found[f"{name}_bps"] = 8.0 * rate
    return found


class Lateness(Record):
    """How late the training's frames left: quantiles in seconds, None where no frame has left.

    Attributes:
        histogram: ``[upper edge in s, frames]``.
    """

    frames: Whole = 0
    p50_s: Number | None = None
    p99_s: Number | None = None
    max_s: Number | None = None
    histogram: tuple[tuple[Number, Whole], ...] = ()


class Emulator(Record):
    """How the back end fared since the link was made; None, or absent, where it has no such figure.

    Attributes:
        alive: whether it still ran at the end.
        lateness_p50_s, lateness_p99_s, lateness_max_s, lateness_mean_s: from the time that a frame was due to its
            sending; lateness_histogram: ``[upper edge in s, frames]``.
        overruns, unsent: frames lost by the machine; drops: by the link.
        wake_ups, cpu_user_s, cpu_system_s, cpu_s: what it took.
        training: lateness of the training's frames alone, on which the verdict rests.
        interfaces: across real machines those of the ranks.
    """

    backend: Text | None = None
    alive: Flag | None = None
    lateness_p50_s: Number | None = None
    lateness_p99_s: Number | None = None
    lateness_max_s: Number | None = None
    lateness_mean_s: Number | None = None
    lateness_histogram: tuple[tuple[Number, Whole], ...] = ()
    overruns: Whole | None = None
    unsent: Whole | None = None
    wake_ups: Whole | None = None
    cpu_user_s: Number | None = None
    cpu_system_s: Number | None = None
    cpu_s: Number | None = None
    drops: Whole | None = None
    training: Lateness | None = None
    interfaces: tuple[Text, ...] = ()


class Wire(Record):
    """Traffic of the training alone; of a resumed one of the whole training.

    Attributes:
        bytes, frames: all; ack_bytes, ack_frames: those without payload; None where they were not told apart.
        drops: lost by the link.
        per_step_bytes: without acknowledgements; ratio: that over the payload.
        payload_bytes: what the codecs claim to have sent.
        control_bytes: what crossed the unshaped control path while the training clock ran; None across real machines,
            absent in older records.
    """

    steps: Whole | None = None
    bytes: Whole | None = None
    ack_bytes: Whole | None = None
    frames: Whole | None = None
    ack_frames: Whole | None = None
    drops: Whole | None = None
    per_step_bytes: Number | None = None
    payload_bytes: Whole | None = None
    ratio: Number | None = None
    control_bytes: Whole | None = None


class LinkRecord(Versioned):
    """``link.json`` of an attempt: what was asked, what was set, and what the probe and the counters saw.

    Attributes:
        requested: the link of the configuration, in emulated time; all else is of the machine's time.
        dilation: so many times slower than the machine's time the emulated one ran; None where they are the same.
        shrink: the rates of the link were divided by it, as the payload was; None where they were not.
        dilated: with either, the link that was made, in the machine's time, as far as its keys can say it: queues
            hold what ``requested`` makes of them.
        backend: ``netem``, ``relay`` or ``unshaped``, across real machines ``none`` or ``interface``; backend_reason:
            why this one.
        achieved_before, achieved_after: None where it did not come to that.
        achieved_during: across real machines, between evaluations; absent where none was.
    """

    requested: JsonObject | None = None
    dilation: Number | None = None
    shrink: Number | None = None
    dilated: JsonObject | None = None
    backend: Text | None = None
    backend_reason: Text | None = None
    applied: Applied | None = None
    achieved_before: Measurement | None = None
    achieved_after: Measurement | None = None
    emulator: Emulator = Emulator()
    wire: Wire | None = None
    achieved_during: tuple[Measurement, ...] = ()

    @property
    def in_asked_time(self) -> LinkRecord:
        """The same record with what was measured before and after the training in the time of ``requested``.

        It says no ``dilation`` and no ``shrink`` any more, so that nothing is converted twice.
        """
        if self.dilation is None and self.shrink is None:
            return self
        update: dict[str, object] = {"dilation": None, "shrink": None}
        for name in ("achieved_before", "achieved_after"):
            found: Measurement | None = getattr(self, name)
            if found is not None:
                pairs = tuple(pair.undilated(self.dilation or 1.0, self.shrink or 1.0) for pair in found.pairs)
                update[name] = found.model_copy(update={"pairs": pairs})
        return self.model_copy(update=update)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Before and after the training, as far as there are."""
        return tuple(found for found in (self.achieved_before, self.achieved_after) if found is not None)
