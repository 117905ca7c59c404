"""From what a link asks to what the kernel's netem is told. Pure: nothing here touches a machine.

Every node gets up to four qdiscs, in the order in which a frame between two nodes meets them:

- ``up``, on its way out of the sender: the rate, with the queue before it;
- ``out``, after that: the sender's own part of latency, jitter and loss (missing where ``line`` can have all of it);
- ``line``, on its way to the receiver: latency, jitter and loss (missing where none of them is asked);
- ``down``, into the receiver: the rate again, with the queue before it, so that three senders to one node and one to
  three agree.

Latency and loss stand apart from the rate because netem delays a frame before it serialises it and counts both under
one limit: in one qdisc the queue would shrink by what is in flight.

``out`` and ``line`` make up the path between two nodes, to which each end contributes half (``path_between``). ``out``
belongs to the sender and ``line`` to the receiver, so every node's half is a number of its own, and a constant may be
moved from all ``out`` to all ``line``. It is chosen as large as it can be, so that the node with the least has no
``out``, and none has one where all are alike. Latencies, variances and logarithms of what is not lost add up to exactly
what the path asks. Only the shape of a jitter of two parts is that of a sum of two draws.

A chain that loses frames in bursts (``line``) runs through all that a node receives, whoever sent it.

Where they are, and what is joined to what: ``kernel_backends.py`` builds it, ``tc_commands.py`` writes it down.

    node's data0 ═ n0 ┬ nb0 ┬ nu0 ═ nd0 ┬ core ┬ nd1 ═ nu1 ┬ nb1 ┬ n1 ═ data0 of node 1
                      bridge    veth pair  bridge    ...

A qdisc shapes what leaves an interface: ``up`` sits on nu0 (out to the core), ``line`` on nd0 and ``down`` on n0 (both
back to the node). Where a node has an ``out`` too, another bridge and pair follow its ``up``:

    n0 ┬ nb0 ┬ nu0 ═ nv0 ┬ nx0 ┬ no0 ═ nd0 ┬ core

So the sender's own interface is left alone: netem there would meet TCP's small-queue limit and make it behave as on no
real link. Nothing is redirected: veth, bridge and sch_netem are all that the kernel has to have.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.units import DURATION
from bwbench.network.link import Link
from bwbench.network.link.chance import Distribution, GilbertElliott
from bwbench.network.link.node_link import NodeLink, Path, path_between
from bwbench.network.namespaces.backend import Port

MAX_LIMIT_PACKETS = 2**32 - 1
# The kernel draws a delay from a deviation of 32 bits, in nanoseconds, and cuts a longer one (tabledist, sch_netem.c).
MAX_JITTER_S = 2.147


@dataclass(frozen=True)
class NetemQdisc:
    """One netem qdisc. All fields are sent every time: one left out would keep its old value.

    Attributes:
        limit_packets: how many packets it holds, of whatever size; one more is dropped.
        rate_bytes_per_s: serialisation of whole Ethernet frames; 0 is no rate. With a rate no packet overtakes another.
        delay_us: mean delay of a packet.
        jitter_us: standard deviation of the delay; never below a delay of 0.
        distribution: of the delay.
        loss: probability with which a packet is dropped on arrival, independently of the others.
        burst: instead of ``loss``: the chain that drops packets on arrival.
        seed: of its random numbers; None lets the kernel choose (as kernels before 6.6 always do).
    """

    limit_packets: int
    rate_bytes_per_s: int = 0
    delay_us: int = 0
    jitter_us: int = 0
    distribution: Distribution = "normal"
    loss: float = 0.0
    burst: GilbertElliott | None = None
    seed: int | None = None

    @property
    def is_random(self) -> bool:
        """Whether chance has a part in what it does."""
        return bool(self.jitter_us or self.loss or self.burst)

    @property
    def mean_loss(self) -> float:
        """Share of the packets that it drops by chance."""
        return self.burst.mean_loss if self.burst else self.loss

    def to_json(self) -> JsonObject:
        """The fields by name, without a chain or a seed where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def words(self) -> tuple[Any, ...]:
        """What the kernel is told, as it is rounded there, for comparison.

        Without the distribution, which the kernel tells nobody, and the seed, which older ones do not take.
        """
        chain = self.burst
        burst = chain and (chain.good_to_bad, chain.bad_to_good, 1 - chain.loss_in_bad, chain.loss_in_good)
        return (
            self.limit_packets,
            self.rate_bytes_per_s,
            self.delay_us,
            self.jitter_us,
            _as_u32(self.loss),
            burst and tuple(map(_as_u32, burst)),
        )


def _as_u32(probability: float) -> int:
    """A probability as netem has it: a share of 2^32 - 1."""
    return round(probability * (2**32 - 1))


def netem_arguments(qdisc: NetemQdisc) -> str:
    """What follows the word ``netem`` on tc's command line."""
    words = [f"limit {qdisc.limit_packets}"]
    if qdisc.jitter_us and qdisc.distribution == "uniform":
        # Without a table the kernel draws from delay - jitter to delay + jitter.
        words.append(f"delay {qdisc.delay_us}us {round(qdisc.jitter_us * math.sqrt(3))}us")
    elif qdisc.jitter_us:
        # tc takes a distribution only together with a delay: a microsecond stands for none.
        words.append(f"delay {qdisc.delay_us or 1}us {qdisc.jitter_us}us distribution {qdisc.distribution}")
    elif qdisc.delay_us:
        words.append(f"delay {qdisc.delay_us}us")
    if qdisc.burst:
        chain = qdisc.burst
        steps = (chain.good_to_bad, chain.bad_to_good, chain.loss_in_bad, chain.loss_in_good)
        words.append("loss gemodel " + " ".join(map(_percent, steps)))  # p r 1-h 1-k
    elif qdisc.loss:
        words.append(f"loss random {_percent(qdisc.loss)}")
    if qdisc.rate_bytes_per_s:
        words.append(f"rate {8 * qdisc.rate_bytes_per_s}bit")
    return " ".join(words)


def _percent(probability: float) -> str:
    return f"{100 * probability:.10g}%"


# What is in flight on the line is bounded by the rates around it, not by a queue: it must never be what drops.
LINE_LIMIT_PACKETS = 10_000_000
# With a rate netem lets no packet overtake another, however much the delay varies (without one a jitter larger than the
# gap between packets reorders). This one is so high that it adds less than a microsecond to a frame.
ORDER_RATE_BYTES_PER_S = 2**32 - 1
ENOUGH_ROOM = 2.0  # standard deviations: of a normal distribution 2 % are further below the mean, and become 0

CORE = "core"


@dataclass(frozen=True)
class NodeShape:
    """The qdiscs of one node; None where there is nothing for one to do."""

    up: NetemQdisc
    out: NetemQdisc | None
    line: NetemQdisc | None
    down: NetemQdisc

    def qdiscs(self) -> dict[str, NetemQdisc]:
        """Those that there are, by role, in the order in which a frame meets them."""
        return {role: qdisc for role, qdisc in vars(self).items() if qdisc is not None}

    def without_seeds(self) -> NodeShape:
        """The same but for the seeds, in which all nodes differ."""
        return replace(self, **{role: replace(qdisc, seed=None) for role, qdisc in self.qdiscs().items()})

    def to_json(self) -> JsonObject:
        """Qdisc by qdisc, None where there is none."""
        return {role: qdisc and qdisc.to_json() for role, qdisc in vars(self).items()}


def shape(link: Link, num_nodes: int) -> tuple[NodeShape, ...]:
    """The qdiscs of all nodes of ``link``, which is shaped, switched, and does not vary over time.

    Raises ValueError for links that are not netem's; ``beyond_netem`` tells them.
    """
    if not link.shaped or link.medium != "switched" or link.varies or link.sites:
        raise ValueError(f"netem shapes steady switched links, not {link.describe()}")
    nodes = link.nodes(num_nodes)
    shapes = []
    for number, (node, (out, line)) in enumerate(zip(nodes, split_paths(nodes), strict=True)):
        unseeded = NodeShape(
            up=_rate(link, node.up_bps, node.up_queue_bytes, node.queue_packets),
            out=_delay(link, out),
            line=_delay(link, line, bursts=True),
            down=_rate(link, node.down_bps, node.down_queue_bytes, node.queue_packets),
        )
        seeded = {}
        for role, qdisc in unseeded.qdiscs().items():
            if qdisc.is_random:  # the same numbers everywhere would have all nodes lose frames at once
                digest = hashlib.blake2b(f"{link.seed}/{number}/{role}".encode(), digest_size=4).digest()
                seeded[role] = replace(qdisc, seed=int.from_bytes(digest, "big"))
        shapes.append(replace(unseeded, **seeded))
    return tuple(shapes)


def beyond_netem(link: Link) -> str:
    """What the shaped ``link`` asks for that netem has not, and why; empty where there is nothing."""
    if link.medium == "shared":
        return "'medium: shared' (its qdiscs shape each node by itself; none lets stations take turns on one air)"
    if link.sites:
        return "'sites' (its qdiscs shape each node by itself; none is shared by the nodes of a site)"
    if link.outages:
        return "outages (its qdiscs stay as they are set)"
    if link.handover or link.demand:
        return "hand-overs and rates that follow demand (its qdiscs stay as they are set)"
    if link.cross_traffic:
        return "cross traffic (it sends nothing of its own)"
    if link.varies:
        return "a trace (its qdiscs stay as they are set)"
    if link.is_managed:
        return "a queue with a discipline (it is drop-tail)"
    if link.wanders:
        return "a delay that wanders (it draws every frame's anew: 'jitter_kind: independent' asks for that)"
    kinds = [link.base, *(link.node(node) for node in sorted(link.overrides))]
    longest_s = max(kind.jitter_s for kind in kinds)
    if longest_s > MAX_JITTER_S:
        return f"a jitter of {DURATION.format(longest_s)} (the kernel cuts it at {DURATION.format(MAX_JITTER_S)})"
    if cuts_jitter(kinds):
        return "jitter of one node around less than twice its latency (there every node adds its own half by itself)"
    return ""


def queue_packets(queue_bytes: int, packets: int | None, frame_bytes: int) -> int:
    """A queue as netem counts it: packets, and one more for the frame on its way out.

    Bytes become full frames. Short frames take a place each as full ones do: where acknowledgements share the queue it
    holds fewer bytes.
    """
    return min((packets or math.ceil(queue_bytes / frame_bytes)) + 1, MAX_LIMIT_PACKETS)


def split_paths(nodes: Sequence[NodeLink]) -> list[tuple[Path, Path]]:
    """For each node what ``out`` and ``line`` have to do."""
    best = replace(
        nodes[0],
        latency_s=min(node.latency_s for node in nodes),
        jitter_s=min(node.jitter_s for node in nodes),
        loss=min(node.loss for node in nodes),
    )
    fewest = [(_beyond(node, best), path_between(best, node)) for node in nodes]
    # A jitter needs a delay that it can vary around. Where it would have none in ``out``, both ends keep their halves.
    nothing = replace(best, latency_s=0.0, jitter_s=0.0)
    halves = [(_beyond(node, nothing), path_between(nothing, node)) for node in nodes]
    return halves if _room(halves) > _room(fewest) else fewest


def cuts_jitter(nodes: Sequence[NodeLink]) -> bool:
    """Whether ``split_paths`` leaves a jitter without a delay that it can vary around, though the paths have one."""
    paths = [(path_between(src, dst),) for src in nodes for dst in nodes]
    return _room(split_paths(nodes)) < min(ENOUGH_ROOM, _room(paths))


def _room(parts: Sequence[tuple[Path, ...]]) -> float:
    """How many standard deviations of a delay there are between its mean and 0, where that is least; at most 4."""
    stages = [stage for part in parts for stage in part if stage.jitter_s > 0]
    return min([4.0, *(stage.latency_s / stage.jitter_s for stage in stages)])


def _beyond(node: NodeLink, best: NodeLink) -> Path:
    """The half of ``node`` less the half of ``best``."""
    return Path(
        latency_s=(node.latency_s - best.latency_s) / 2,
        jitter_s=math.sqrt((node.jitter_s**2 - best.jitter_s**2) / 2),
        loss=1 - math.sqrt((1 - node.loss) / (1 - best.loss)),
    )


def _rate(link: Link, rate_bps: float, queue_bytes: int, packets: int | None) -> NetemQdisc:
    return NetemQdisc(queue_packets(queue_bytes, packets, link.full_frame.num_bytes), max(1, round(rate_bps / 8)))


def _delay(link: Link, path: Path, *, bursts: bool = False) -> NetemQdisc | None:
    burst = link.burst_loss if bursts else None
    qdisc = NetemQdisc(
        limit_packets=LINE_LIMIT_PACKETS,
        delay_us=round(path.latency_s * 1e6),
        jitter_us=round(path.jitter_s * 1e6),
        distribution=link.jitter_distribution,
        loss=0.0 if burst else path.loss,
        burst=burst,
    )
    if not (qdisc.delay_us or qdisc.is_random):
        return None
    keeps_order = qdisc.jitter_us and not link.reorder
    return replace(qdisc, rate_bytes_per_s=ORDER_RATE_BYTES_PER_S) if keeps_order else qdisc


@dataclass(frozen=True)
class NodeLayout:
    """What lies between a node's port and the core.

    Attributes:
        bridges: to make.
        pairs: veth pairs to make.
        masters: (interface, bridge to attach it to), from the port on.
        qdiscs: by role: the interface, and what to put on it.
        core_end: the interface of the core behind which the node is.
    """

    port: Port
    bridges: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    masters: tuple[tuple[str, str], ...]
    qdiscs: dict[str, tuple[str, NetemQdisc]]
    core_end: str


def layout(port: Port, shape: NodeShape) -> NodeLayout:
    """The layout of the node behind ``port``."""
    bridge, second, up, up_peer, out, down = (f"n{letter}{port.node}" for letter in "bxuvod")
    places = {"up": up, "out": out, "line": down, "down": port.interface}
    qdiscs = {role: (places[role], qdisc) for role, qdisc in shape.qdiscs().items()}
    start, end = ((port.interface, bridge), (up, bridge)), (down, CORE)
    if shape.out is None:
        return NodeLayout(port, (bridge,), ((up, down),), (*start, end), qdiscs, down)
    masters = (*start, (up_peer, second), (out, second), end)
    return NodeLayout(port, (bridge, second), ((up, up_peer), (out, down)), masters, qdiscs, down)


def applied_netem(link: Link, shapes: Sequence[NodeShape], *, seed_applied: bool | None) -> JsonObject:
    """What netem was told, in the words of the link, and qdisc by qdisc.

    The figures are those of a node without an override (of node 0 where all have one) and of a path between two such
    nodes; ``shapes`` has every node, those that are alike together.

    Args:
        seed_applied: whether the kernel took the seed; None where nothing is random.
    """
    usual = shapes[next((node for node in range(len(shapes)) if node not in link.overrides), 0)]
    stages = [stage for stage in (usual.out, usual.line) if stage is not None]
    losses = [stage.mean_loss for stage in stages if stage.mean_loss] or [0.0]
    up_bps, down_bps = 8 * usual.up.rate_bytes_per_s, 8 * usual.down.rate_bytes_per_s
    alike: dict[NodeShape, list[Json]] = {}
    for node, own in enumerate(shapes):
        alike.setdefault(own.without_seeds(), []).append(node)
    return {
        "bandwidth_bps": min(up_bps, down_bps),
        "up_bps": up_bps,
        "down_bps": down_bps,
        "latency_s": sum(stage.delay_us for stage in stages) / 1e6,
        "jitter_s": math.hypot(*(stage.jitter_us for stage in stages)) / 1e6,
        "jitter_kind": link.jitter_kind if link.has_jitter else None,
        "jitter_distribution": link.jitter_distribution,
        "reorder": link.reorder,
        "loss": losses[0] if len(losses) == 1 else 1 - math.prod(1 - loss for loss in losses),
        "queue_packets": min(usual.up.limit_packets, usual.down.limit_packets),
        "seed": link.seed,
        "seed_applied": seed_applied,
        "shapes": [{"nodes": nodes, **own.to_json()} for own, nodes in alike.items()],
    }
