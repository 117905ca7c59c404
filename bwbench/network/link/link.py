"""The link as a user asks for it: validated, frozen, with every default filled in, and it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from bwbench.base.explain import refused
from bwbench.base.plain_data import canonical
from bwbench.base.units import BANDWIDTH, DURATION, LinkDelay, LinkRate, PositiveShare, Probability
from bwbench.network.link.air import STANDARDS, Air, Fairness, Standard
from bwbench.network.link.chance import Distribution, GilbertElliott, JitterKind
from bwbench.network.link.cross_traffic import CrossTraffic
from bwbench.network.link.dilation import (
    check_dilation,
    dilated_air,
    dilated_keys,
    dilated_node,
    dilated_outage,
    dilated_overrides,
    dilated_queue,
    dilated_tcp,
    dilated_traces,
)
from bwbench.network.link.frame_sizes import DEFAULT_MTU, FullFrame
from bwbench.network.link.link_checks import check_keys
from bwbench.network.link.mobile import Demand, HandOver
from bwbench.network.link.named_links import expand_preset, is_nothing
from bwbench.network.link.node_link import (
    DEFAULT_QUEUE,
    MINIMUM_QUEUE_BYTES,
    QUEUE_OF_EARLIER_RECORDS,
    NodeLink,
    NodeOverride,
    Path,
    Queue,
    QueueSize,
    TcpSettings,
    path_between,
)
from bwbench.network.link.shrunk_link import cannot_shrink, shrunk_keys
from bwbench.network.link.site_network import SiteNetwork
from bwbench.network.link.sites import Paths, Sites, expand_regions
from bwbench.network.link.variation import NodeNumber, NodeNumbers, Outage, Trace, Traces, as_list, as_tuple

MAX_SEED = 2**32 - 1
SHORTHANDS = ("preset", "regions")  # keys that stand for others, and are gone once those are filled in
MTUS = (576, 65_000)  # what every host of IPv4 takes; what fits a slot of 64 KiB in the relay's receive ring


class Link(BaseModel):
    """The link of every node; ``overrides`` says which nodes differ, and in what.

    Attributes:
        shaped: False asks for no shaping at all (YAML: ``link: unshaped``).
        bandwidth_bps: rate of each direction of each node, in bit/s of Ethernet frames (``medium: switched``), or
            the PHY rate of the stations (``medium: shared``), of which ``efficiency`` says how much is left.
        up_bps, down_bps: rates from and to a node where the two differ; None is ``bandwidth_bps``.
        latency_s: one-way delay between two nodes; half of it belongs to each of them.
        jitter_s: standard deviation of the one-way delay.
        jitter_kind: ``correlated`` is a delay that wanders, as on real links; ``independent`` is drawn anew for every
            frame, which keeps mean and deviation only where frames come further apart than it varies, or overtake.
        jitter_distribution: ``normal``, ``uniform`` or ``pareto``; never below a delay of 0.
        reorder: whether a frame may overtake another; without it what one node sends keeps its order.
        loss: share of the frames that are lost between two nodes.
        loss_burst: mean number of frames that the bad state of a Gilbert-Elliott chain lasts; None loses each frame
            independently of the others.
        loss_in_bad, loss_in_good: probability with which that chain loses a frame in either state.
        queue: before each bottleneck: a time at its rate, bytes, packets or multiples of the bandwidth-delay product.
            A time or such products are no less than 64 kB (but no more than a second's worth of those), and on a shared
            air no less than two transmissions. Drop-tail, or what a discipline does (``{discipline: fq_codel}``). 50 ms
            where nothing is said; None on a link that is not shaped, and there alone.
        medium: ``switched`` gives each node a full-duplex link of its own; ``shared`` is one half-duplex air, which a
            frame from station to station crosses twice (up to the access point, down again).
        standard: of a shared air; sets the defaults of ``efficiency`` and ``aggregation``.
        efficiency: share of the PHY rate that full frames get; without a standard 1: ``bandwidth`` is what is carried.
        aggregation: most frames of one transmission; without a standard 1.
        fairness: whether stations get equally many transmissions (``packet``) or equal ``airtime``.
        wired: nodes that are wired to the access point, on a wire that is never busy.
        trace: rates that change over time.
        outages: times in which links are dead.
        cross_traffic: what others send over the nodes' links while the link plays.
        handover: how nodes get new paths meanwhile.
        demand: how rates follow what is sent meanwhile.
        overrides: nodes that differ, by their number.
        sites: places with a LAN inside, of which all of the above speaks, and one shared line outside; empty where all
            nodes are at one place.
        paths: rates and latencies from site to site; None where the sites' own lines alone decide.
        mtu: largest IP packet of the nodes' interfaces, in bytes.
        tcp: settings of the nodes' TCP.
        seed: of the random numbers behind loss and jitter.
        backend: ``netem`` (kernel), ``relay`` (user space), or ``auto``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    shaped: bool = True
    bandwidth_bps: LinkRate | None = Field(None, alias="bandwidth", validate_default=False)
    up_bps: LinkRate | None = Field(None, alias="up")
    down_bps: LinkRate | None = Field(None, alias="down")
    latency_s: LinkDelay = Field(0.0, alias="latency")
    jitter_s: LinkDelay = Field(0.0, alias="jitter")
    jitter_kind: JitterKind = "correlated"
    jitter_distribution: Distribution = "normal"
    reorder: bool = False
    loss: Probability = 0.0
    loss_burst: Annotated[float, Field(ge=1.0, le=1e6)] | None = None
    loss_in_bad: PositiveShare = 1.0
    loss_in_good: Probability = 0.0
    queue: QueueSize | None = None
    medium: Literal["switched", "shared"] = "switched"
    standard: Standard | None = None
    efficiency: PositiveShare | None = None
    aggregation: Annotated[int, Field(ge=1, le=256)] | None = None
    fairness: Fairness = "packet"
    wired: NodeNumbers = ()
    trace: Traces | None = None
    outages: Annotated[tuple[Outage, ...], BeforeValidator(as_tuple)] = ()
    cross_traffic: Annotated[tuple[CrossTraffic, ...], BeforeValidator(as_list)] = ()
    handover: HandOver | None = None
    demand: Demand | None = None
    overrides: dict[NodeNumber, NodeOverride] = Field(default_factory=dict)
    sites: Sites = ()
    paths: Paths | None = None
    mtu: int = Field(DEFAULT_MTU, ge=MTUS[0], le=MTUS[1])
    tcp: TcpSettings = TcpSettings()
    seed: int = Field(1, ge=0, le=MAX_SEED)
    backend: Literal["auto", "netem", "relay"] = "auto"
    _asked: Link | None = PrivateAttr(None)  # of a link in slow motion: in emulated time
    _dilation: float = PrivateAttr(1.0)

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        """Names, and the queue of today: it is written down everywhere, so that another default is another cell."""
        if value == "unshaped":
            return {"shaped": False}
        if not isinstance(value, Mapping):
            return value
        asked = expand_regions(expand_preset(value, cls))
        return _with_queue(asked, DEFAULT_QUEUE)

    @model_validator(mode="after")
    def _consistent(self) -> Link:
        if self.shaped:
            check_keys(self)
            return self
        asked = self.model_dump(
            by_alias=True, exclude_defaults=True, exclude={"shaped", "backend", "mtu", "tcp", "seed"}
        )
        if asked:
            here = ", ".join(asked)
            raise refused(f"an unshaped link takes no bandwidth, latency, jitter, loss or queue (here: {here})")
        return self

    @classmethod
    def recorded(cls, content: Mapping[str, Any]) -> Link:
        """The link of a record; raises ValidationError. See ``as_recorded``."""
        return cls.model_validate(as_recorded(content))

    def dilated(self, factor: float) -> Link:
        """This link in the machine's time, where emulated time runs ``factor`` times slower (below 1: faster).

        Rates, delays, traces and outages are those of the machine; queues hold the same bytes, and transmissions on a
        shared air the same frames, as here. What it is made of is not all in its keys: keep this link and the factor
        where it has to be written down. Raises ValueError where the link is not shaped, or the factor is no factor.
        """
        check_dilation(factor)
        if self._asked is not None:
            return self._asked.dilated(self._dilation * factor)
        if factor == 1:
            return self
        if not self.shaped:
            raise ValueError("an unshaped link has no time of its own that could be slowed down")
        made = self.model_copy(
            update={
                **dilated_keys(self.bandwidth_bps, self.up_bps, self.down_bps, self.latency_s, self.jitter_s, factor),
                "queue": dilated_queue(self.queue, factor),
                "trace": dilated_traces(self.trace, factor),
                "outages": tuple(dilated_outage(outage, factor) for outage in self.outages),
                "cross_traffic": tuple(traffic.dilated(factor) for traffic in self.cross_traffic),
                "handover": self.handover and self.handover.dilated(factor),
                "demand": self.demand and self.demand.dilated(factor),
                "overrides": dilated_overrides(self.overrides, factor),
                "sites": tuple(site.dilated(factor) for site in self.sites),
                "paths": self.paths and self.paths.dilated(factor),
                "tcp": dilated_tcp(self.tcp, factor),
            }
        )
        made._asked, made._dilation = self, factor
        return made

    def shrunk(self, factor: float) -> Link:
        """This link with every rate divided by ``factor``, for payloads that are divided by it: they take as long.

        Queues and buffers of TCP that are given in bytes are divided too; times stay. Raises ValueError for links of
        which ``cannot_shrink`` tells.
        """
        if factor == 1:
            return self
        if (reason := cannot_shrink(self, factor)) is not None:
            raise ValueError(reason)
        return self.model_copy(update=shrunk_keys(self, factor))

    @property
    def dilation(self) -> float:
        """So many times slower than asked everything happens on this link; 1 unless it is in slow motion."""
        return self._dilation

    @property
    def asked(self) -> Link:
        """The link in emulated time; itself unless it is in slow motion."""
        return self if self._asked is None else self._asked

    @property
    def has_jitter(self) -> bool:
        """Whether the delay varies anywhere."""
        return any([self.jitter_s, *(override.jitter_s for override in self.overrides.values())])

    @property
    def wanders(self) -> bool:
        """Whether it varies slowly, and not from frame to frame."""
        return self.has_jitter and self.jitter_kind == "correlated"

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Everyone's, then those of the nodes that differ."""
        asked = (self.queue, *(override.queue for override in self.overrides.values()))
        return tuple(queue for queue in asked if queue is not None)

    @property
    def is_managed(self) -> bool:
        """Whether a discipline manages the queue of any node."""
        return any(queue.discipline is not None for queue in self.queues)

    @property
    def marks(self) -> bool:
        """Whether queues mark packets, so that the nodes' TCP is to take part in that (ECN)."""
        return any(queue.discipline is not None and queue.discipline.ecn for queue in self.queues)

    @property
    def full_frame(self) -> FullFrame:
        """The largest frame that a node sends."""
        return FullFrame(self.mtu)

    @property
    def rtt_s(self) -> float:
        """Round-trip time that the one-way latency makes, without serialisation."""
        return float(2 * self.latency_s)

    @property
    def farthest_rtt_s(self) -> float:
        """That of the two sites which are farthest apart; ``rtt_s`` without sites, or before anybody read the paths."""
        return max((rtt_s for _, rtt_s in self._ways), default=self.rtt_s)

    @property
    def _ways(self) -> list[tuple[float, float]]:
        """Rate and round trip from each site to each other; none without sites, or before their paths are read."""
        if not self.sites or (self.paths is not None and self.paths.file is not None):
            return []
        network = self.smallest_site_network
        assert network is not None
        return [
            (network.rate_bps(self.base, src, dst), network.rtt_s(self.latency_s, src, dst))
            for src, dst in network.pairs
        ]

    @property
    def canonical_json(self) -> str:
        """Equal for links that are equal in every key; two that read the same need not be."""
        return canonical(self.model_dump(mode="json", by_alias=True))

    @property
    def base(self) -> NodeLink:
        """The link of a node without an override; raises ValueError where the link is not shaped."""
        if self._asked is not None:
            return dilated_node(self._asked.base, self._dilation)
        return self._node_link(NodeOverride())

    def node(self, node: int) -> NodeLink:
        """The link of node number ``node``, all filled in; raises ValueError where the link is not shaped."""
        if self._asked is not None:
            return dilated_node(self._asked.node(node), self._dilation)
        override = self.overrides.get(node)
        return self.base if override is None else self._node_link(override)

    def nodes(self, num_nodes: int) -> tuple[NodeLink, ...]:
        """The links of all nodes."""
        usual, given = self.base, self.overrides  # made once: a plan asks this of every cell
        return tuple(self.node(node) if node in given else usual for node in range(num_nodes))

    def site_network(self, num_nodes: int) -> SiteNetwork | None:
        """The sites among so many nodes; None where all are at one place.

        Raises ValueError where the sites do not go with so many (``unknown_nodes``), or the file of their paths has
        not been read (``freeze_link``).
        """
        if self._asked is not None:
            asked = self._asked.site_network(num_nodes)
            return asked and asked.dilated(self._dilation)
        if not self.sites or num_nodes < 2:
            return None
        queue = self.queue or DEFAULT_QUEUE
        frame_bytes = self.full_frame.num_bytes
        return SiteNetwork.of(self.sites, self.paths, num_nodes, queue, frame_bytes, self.latency_s)

    @property
    def smallest_site_network(self) -> SiteNetwork | None:
        """The sites with as few nodes as they can have, for what does not go by who is where; None without sites."""
        given = [site.nodes for site in self.sites if site.nodes is not None]
        return self.site_network(sum(given) or len(self.sites))

    def path(self, src: int, dst: int) -> Path:
        """Latency, jitter and loss between two nodes at one place."""
        return path_between(self.node(src), self.node(dst))

    @property
    def bottleneck_bps(self) -> float | None:
        """The slower direction of a node without an override, between sites the slowest way from one to another; None
        where nothing is shaped."""
        if not self.shaped:
            return None
        return min((rate_bps for rate_bps, _ in self._ways), default=self.base.slowest_bps)

    @property
    def burst_loss(self) -> GilbertElliott | None:
        """The chain that loses frames in bursts; None where each is lost by itself."""
        if self.loss_burst is None or not self.loss:
            return None
        return GilbertElliott.of(self.loss, self.loss_burst, self.loss_in_good, self.loss_in_bad)

    @property
    def air(self) -> Air | None:
        """The shared medium in numbers; None on a switched link."""
        if self.medium == "switched" or not self.shaped:
            return None
        if self._asked is not None and self._asked.air is not None:
            return dilated_air(self._asked.air, self._dilation)
        efficiency = self.efficiency or STANDARDS[self.standard].efficiency
        return Air.of(
            self.base.slowest_bps,
            efficiency,
            self._aggregation,
            self.fairness,
            frozenset(self.wired),
            self.full_frame.num_bytes,
        )

    @property
    def _aggregation(self) -> int:
        return self.aggregation or STANDARDS[self.standard].aggregation

    @property
    def varies(self) -> bool:
        """Whether the link changes over time: then it stays steady (mean rates, no outage) until it is told to play."""
        return bool(self.outages or self.cross_traffic or self.handover or self.demand) or any(self.traces)

    @property
    def traces(self) -> tuple[Traces | None, ...]:
        """Everyone's, then those of the nodes that differ, in their order; None where there is none."""
        return self.trace, *(override.trace for override in self.overrides.values())

    def describe(self, *, short: bool = False) -> str:
        """One line for tables: ``10 Mbit/s, 2.5 ms one way (RTT 5 ms), switched``; short ``10 Mbit/s, RTT 5 ms, …``."""
        if not self.shaped:
            return "unshaped"
        up_bps, down_bps = self.base.up_bps, self.base.down_bps
        rate = BANDWIDTH.format(_rounded(up_bps))
        if up_bps != down_bps:
            rate += f" up, {BANDWIDTH.format(_rounded(down_bps))} down"
        if self.trace is not None:
            rate = f"trace of {rate} on average"
        rtt = f"RTT {DURATION.format(self.rtt_s)}"
        words = [rate, rtt if short else f"{DURATION.format(self.latency_s)} one way ({rtt})"]
        medium = self.medium if self.medium == "switched" else "shared air"
        words.append(medium if self.standard is None else f"{medium} ({self.standard})")
        if self.fairness == "airtime":
            words.append("airtime-fair")
        if self.jitter_s:
            usual = ("correlated", "normal")
            kind = ", ".join(word for word in (self.jitter_kind, self.jitter_distribution) if word not in usual)
            words.append(f"jitter {DURATION.format(self.jitter_s)}" + (f" ({kind})" if kind else ""))
        if self.loss:
            words.append(
                f"loss {100 * self.loss:.3g} %" + (f" in bursts of {self.loss_burst:g}" if self.loss_burst else "")
            )
        if self.queue != DEFAULT_QUEUE:
            words.append(f"queue {self.queue}")
        if self.mtu != DEFAULT_MTU:
            words.append(f"MTU {self.mtu}")
        if self.outages:
            words.append(f"{len(self.outages)} outage(s)")
        if self.cross_traffic:
            words.append(f"beside {', '.join(traffic.kind for traffic in self.cross_traffic)}")
        if self.handover:
            words.append(f"a new path every {DURATION.format(self.handover.every_s)}")
        if self.demand:
            words.append(f"{100 * self.demand.least:.3g} % of the rate after a silence")
        if self.sites:
            words.append(self._of_sites())
        if self.overrides:
            words.append(f"node(s) {', '.join(map(str, sorted(self.overrides)))} differ")
        return ", ".join(words)

    @property
    def in_brief(self) -> str:
        """For narrow places: ``10 Mbit/s, 2.5 ms one way``, and how many sites there are."""
        words = self.describe().partition(" (")[0]
        return f"{words}, {len(self.sites)} sites" if self.sites else words

    def _of_sites(self) -> str:
        """``3 sites (a, b, c): 508 to 790 Mbit/s, RTT 67 to 144 ms between them``."""
        words = f"{len(self.sites)} sites ({', '.join(site.name for site in self.sites)})"
        if not (ways := self._ways):
            return words
        rates_bps, rtts_s = zip(*ways, strict=True)
        rates, rtts = BANDWIDTH.span(min(rates_bps), max(rates_bps), 3), DURATION.span(min(rtts_s), max(rtts_s), 3)
        return f"{words}: {rates}, RTT {rtts} between them"

    def _trace_of(self, override: NodeOverride, direction: str) -> Trace | None:
        """A node's own trace, else everyone's unless the node has a bandwidth of its own."""
        everyones = self.trace if override.bandwidth_bps is None else None
        found: Trace | None = getattr(override.trace, direction, None) or getattr(everyones, direction, None)
        return found

    def _node_link(self, override: NodeOverride) -> NodeLink:
        if not self.shaped:
            raise ValueError("an unshaped link has no rates")
        own = override.bandwidth_bps
        up_trace = self._trace_of(override, "up") if override.up_bps is None else None
        down_trace = self._trace_of(override, "down") if override.down_bps is None else None
        up_mean_bps, down_mean_bps = (trace and trace.mean_bps for trace in (up_trace, down_trace))
        up_bps = override.up_bps or up_mean_bps or own or self.up_bps or self.bandwidth_bps
        down_bps = override.down_bps or down_mean_bps or own or self.down_bps or self.bandwidth_bps
        up_bps, down_bps = up_bps or math.nan, down_bps or math.nan  # a trace whose file nobody has looked at yet
        latency_s = self.latency_s if override.latency_s is None else override.latency_s
        queue = override.queue or self.queue or DEFAULT_QUEUE
        rtt_s, frame_bytes = 2 * latency_s, self.full_frame.num_bytes

        def queue_bytes(rate_bps: float) -> int:
            if math.isnan(rate_bps):
                return MINIMUM_QUEUE_BYTES
            num_bytes = queue.num_bytes(rate_bps, rtt_s, frame_bytes)
            if not queue.follows_rate:
                return num_bytes
            # On a shared air a queue that cannot hold two aggregates would leave them half empty.
            return max(num_bytes, 2 * self._aggregation * frame_bytes)

        return NodeLink(
            up_bps=up_bps,
            down_bps=down_bps,
            latency_s=latency_s,
            jitter_s=self.jitter_s if override.jitter_s is None else override.jitter_s,
            loss=self.loss if override.loss is None else override.loss,
            up_queue_bytes=queue_bytes(up_bps),
            down_queue_bytes=queue_bytes(down_bps),
            queue_packets=queue.packets,
            up_trace=up_trace,
            down_trace=down_trace,
            discipline=queue.discipline,
        )


def _rounded(value_bps: float) -> float:
    return float(f"{value_bps:.4g}")


def as_recorded(content: Mapping[str, Any]) -> dict[str, Any]:
    """A link as a record holds it, with what held before a key was there where the record does not have it."""
    overrides = content.get("overrides") or {}
    given = [content.get("jitter"), *(own.get("jitter") for own in overrides.values() if isinstance(own, Mapping))]
    varies = any(jitter is not None and not is_nothing(jitter) for jitter in given)
    return _with_queue({**({"jitter_kind": "independent"} if varies else {}), **content}, QUEUE_OF_EARLIER_RECORDS)


def _with_queue(content: Mapping[str, Any], queue: Queue) -> dict[str, Any]:
    """The keys of a link, with that queue where it is shaped and none is named."""
    if content.get("queue") is not None or content.get("shaped", True) is False:
        return dict(content)
    return {**content, "queue": queue.size}


UNSHAPED = Link(shaped=False)
