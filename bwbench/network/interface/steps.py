"""From a link to the steps that shape an interface. Pure; ``kernel.py`` takes them, a dry run prints them.

    out of the interface:   htb ┬ :1  everything else, as it was
                                └ :2  the peers' traffic ─ tbf (rate) ─ netem (latency, jitter, loss) ─ queue
    into the interface:     ingress ─ the peers' traffic goes over to an ifb of our own: tbf ─ netem ─ queue

netem stands inside the tbf, so that a packet is delayed first and waits in the queue then: the queue holds nothing that
is merely under way. It is missing where nothing is asked of it.

A ``Match`` is what a u32 filter takes, as the kernel compares it: 32-bit words under a mask, counted from the IP
header. Ports are looked for where they are without IP options (IPv4) or extension headers (IPv6), and in first
fragments alone: other packets are not matched when ports are given.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bwbench.base.errors import ConfigError
from bwbench.base.listening import MAX_PORT
from bwbench.network.interface.shaping_request import Network, PeerTraffic, PortRange, show_network
from bwbench.network.link import Link
from bwbench.network.netem.shape import NetemQdisc, netem_arguments, shape

Side = Literal["src", "dst"]

_PROTOCOLS = (6, 17)  # TCP and UDP: the ports are in the same place
_SELECTOR = struct.Struct("=BBBxHHhhI")  # struct tc_u32_sel: flags, offshift, nkeys, offmask, off, offoff, hoff, hmask
_KEY = struct.Struct("=4s4sii")  # struct tc_u32_key: mask, value (both as on the wire), offset, offmask
_TERMINAL = 1  # a match decides: no other filter is asked


@dataclass(frozen=True)
class Match:
    """One alternative; a packet is taken when every word fits. Equal are two that take the same packets.

    Attributes:
        version: 4 or 6.
        words: (offset, value, mask) with offsets in steps of 4, rising.
        text: the same as ``tc`` takes it.
    """

    version: int
    words: tuple[tuple[int, int, int], ...]
    text: str = field(default="", compare=False)

    def selector(self) -> bytes:
        """The attribute TCA_U32_SEL."""
        keys = [_KEY.pack(mask.to_bytes(4, "big"), value.to_bytes(4, "big"), at, 0) for at, value, mask in self.words]
        return _SELECTOR.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0) + b"".join(keys)

    @classmethod
    def read(cls, version: int, selector: bytes) -> Match:
        """From the kernel's own TCA_U32_SEL; ``text`` is empty."""
        num_keys = _SELECTOR.unpack_from(selector)[2]
        words = []
        for number in range(num_keys):
            mask, value, offset, _ = _KEY.unpack_from(selector, _SELECTOR.size + number * _KEY.size)
            words.append((offset, int.from_bytes(value, "big"), int.from_bytes(mask, "big")))
        return cls(version, tuple(sorted(words)))


def matches(traffic: PeerTraffic, peer_is: Side) -> Iterator[Match]:
    """All alternatives; ``peer_is`` says whether the peers are where packets come from or where they go to."""
    for peer in traffic.peers:
        if not traffic.ports:
            yield _match(peer, peer_is)
        yield from _with_ports(peer, peer_is, traffic.ports)


def spared(traffic: PeerTraffic, peer_is: Side) -> Iterator[Match]:
    """All alternatives of what is left alone though it is the peers'; to be asked before ``matches``."""
    for peer in traffic.peers:
        yield from _with_ports(peer, peer_is, traffic.spared)


def _with_ports(peer: Network, peer_is: Side, ranges: Sequence[PortRange]) -> Iterator[Match]:
    for ports in ranges:
        for port, mask in aligned(ports):
            for protocol in _PROTOCOLS:
                for side in ("sport", "dport"):
                    yield _match(peer, peer_is, (protocol, side, port, mask))


def aligned(ports: PortRange) -> Iterator[tuple[int, int]]:
    """The range as (value, mask), as a filter compares: blocks of 1, 2, 4, … ports that begin at multiples of that."""
    first = ports.first
    while first <= ports.last:
        size = first & -first or MAX_PORT + 1
        while first + size - 1 > ports.last:
            size //= 2
        yield first, MAX_PORT + 1 - size
        first += size


def _match(peer: Network, peer_is: Side, port: tuple[int, str, int, int] | None = None) -> Match:
    parts: list[tuple[int, bytes, bytes]] = []  # of the header: where, value, mask
    family = "ip" if peer.version == 4 else "ip6"
    begins = {(4, "src"): 12, (4, "dst"): 16, (6, "src"): 8, (6, "dst"): 24}[peer.version, peer_is]
    parts.append((begins, peer.network_address.packed, peer.netmask.packed))
    text = [f"match {family} {peer_is} {show_network(peer)}"]
    if port is not None:
        protocol, side, number, mask = port
        if peer.version == 4:
            parts += [(0, b"\x05", b"\x0f"), (6, b"\x00\x00", b"\x1f\xff")]
            text += ["match u8 0x05 0x0f at 0", "match u16 0x0000 0x1fff at 6"]
        parts.append((9 if peer.version == 4 else 6, bytes([protocol]), b"\xff"))
        begins = (20 if peer.version == 4 else 40) + (2 if side == "dport" else 0)
        parts.append((begins, number.to_bytes(2, "big"), mask.to_bytes(2, "big")))
        text += [f"match {family} protocol {protocol} 0xff", f"match {family} {side} {number} {mask:#06x}"]
    values, masks = bytearray(64), bytearray(64)
    for at, value, bits in parts:
        values[at : at + len(value)], masks[at : at + len(bits)] = value, bits
    words = [(at, *(int.from_bytes(side[at : at + 4], "big") for side in (values, masks))) for at in range(0, 64, 4)]
    return Match(peer.version, tuple((at, word & bits, bits) for at, word, bits in words if bits), " ".join(text))


ROOT = 0xFFFF_FFFF
INGRESS = 0xFFFF_0000  # the handle of every ingress qdisc
INGRESS_PARENT = 0xFFFF_FFF1

# A class that never waits: faster than any port. Its burst is what leaves before the clock is looked at again.
UNLIMITED_BYTES_PER_S = 125_000_000_000
UNLIMITED_BURST_BYTES = 1_000_000
QUANTUM_BYTES = 60_000  # of each class in turn, when the interface itself is the bottleneck

# Unlike what people choose: our filters are found again by it. u32 wants one for each version of IP.
PRIORITIES = {4: 2994, 6: 2996}
_BURST_ROUNDING_S = 2e-6  # the kernel is told how long a burst takes, in microseconds cut to 64 ns


@dataclass(frozen=True)
class Htb:
    """Sorts packets into classes; those that no filter takes go to class ``default``."""

    default: int

    def __str__(self) -> str:
        return f"htb default {self.default}"


@dataclass(frozen=True)
class Tbf:
    """A rate, and how much may leave at once after a silence.

    What is larger than ``cut_bytes`` is cut into frames before it queues: super-packets of the segmentation offloads,
    which then wait, and are lost, frame by frame. That takes a peak rate; the one given never matters.
    """

    rate_bytes_per_s: int
    burst_bytes: int
    cut_bytes: int

    def __str__(self) -> str:
        rate, peak = 8 * self.rate_bytes_per_s, 8 * UNLIMITED_BYTES_PER_S
        limit = self.burst_bytes  # of a queue in whose place ours comes at once
        return f"tbf rate {rate}bit burst {self.burst_bytes} limit {limit} peakrate {peak}bit mtu {self.cut_bytes}"


@dataclass(frozen=True)
class Fifo:
    """A drop-tail queue of ``limit`` bytes (``bfifo``) or packets (``pfifo``)."""

    limit: int
    kind: Literal["bfifo", "pfifo"]

    def __str__(self) -> str:
        return f"{self.kind} limit {self.limit}"


@dataclass(frozen=True)
class Plain:
    """A qdisc as the kernel makes it by itself."""

    kind: str

    def __str__(self) -> str:
        return self.kind


Setting = Htb | Tbf | Fifo | NetemQdisc | Plain


@dataclass(frozen=True)
class Qdisc:
    """A qdisc in its place."""

    handle: int
    parent: int
    setting: Setting

    def __str__(self) -> str:
        if self.parent == INGRESS_PARENT:
            return f"ingress handle {show_handle(self.handle)}"
        place = "root" if self.parent == ROOT else f"parent {show_handle(self.parent)}"
        setting = self.setting
        words = f"netem {netem_arguments(setting)}" if isinstance(setting, NetemQdisc) else str(setting)
        return f"{place} handle {show_handle(self.handle)} {words}"

    def same_as(self, other: object) -> bool:
        """Whether the kernel made of one what was meant by the other.

        It rounds bursts, and does not tell distributions, nor where super-packets are cut.
        """
        if not isinstance(other, Qdisc) or (self.handle, self.parent) != (other.handle, other.parent):
            return False
        mine, others = self.setting, other.setting
        if isinstance(mine, Tbf) and isinstance(others, Tbf):
            slack_bytes = 1 + mine.rate_bytes_per_s * _BURST_ROUNDING_S
            same_burst = abs(mine.burst_bytes - others.burst_bytes) <= slack_bytes
            return mine.rate_bytes_per_s == others.rate_bytes_per_s and same_burst
        if isinstance(mine, NetemQdisc) and isinstance(others, NetemQdisc):
            return mine.words() == others.words()
        return mine == others


@dataclass(frozen=True)
class HtbClass:
    """A class of htb that is never short of anything."""

    handle: int

    def __str__(self) -> str:
        rate, burst = f"{8 * UNLIMITED_BYTES_PER_S}bit", UNLIMITED_BURST_BYTES
        return (
            f"parent {show_handle(self.handle & 0xFFFF_0000)} classid {show_handle(self.handle)} "
            f"htb rate {rate} burst {burst} cburst {burst} quantum {QUANTUM_BYTES}"
        )


@dataclass(frozen=True)
class Filter:
    """Sends what matches to a class (its handle), or over to another interface (its name)."""

    parent: int
    match: Match
    target: int | str

    def __str__(self) -> str:
        version = "ip" if self.match.version == 4 else "ipv6"
        if isinstance(self.target, int):
            target = f"flowid {show_handle(self.target)}"
        else:
            target = f"action mirred egress redirect dev {self.target}"
        priority = PRIORITIES[self.match.version]
        return f"parent {show_handle(self.parent)} protocol {version} prio {priority} u32 {self.match.text} {target}"


def show_handle(handle: int) -> str:
    """``b120:`` or ``b120:2``, as ``tc`` writes it."""
    major, minor = handle >> 16, handle & 0xFFFF
    return f"{major:x}:{minor:x}" if minor else f"{major:x}:"


MAX_FILTERS = 256  # in each direction; every packet of the interface passes them one by one
BURST_S = 1e-3  # as much may leave at once where a timer comes late; a busy machine's come some tenths of a ms late
LINK_HEADER_BYTES = 18  # of an Ethernet frame with a VLAN tag
UNSHAPED, SHAPED = 1, 2  # the classes
IFB_PREFIX = "bw-"
FEWEST_FRAMES_OF_A_BURST = 2  # with less than one frame tbf passes nothing


@dataclass(frozen=True)
class Names:
    """What one run calls its things, so that they are told from those of others and of other runs.

    Attributes:
        run: eight hexadecimal digits.
    """

    run: str

    @classmethod
    def of_root(cls, handle: int) -> Names:
        """Names of some run whose root qdisc has this handle."""
        return cls(f"{handle >> 20 & 0xFF:08x}")

    @property
    def ifb(self) -> str:
        """The interface that the incoming traffic is sent through."""
        return f"{IFB_PREFIX}{self.run}"

    @property
    def root(self) -> int:
        """Handle of the root qdisc: b, two digits of the run, 0."""
        return (0xB000 | int(self.run[-2:], 16) << 4) << 16

    def below(self, number: int) -> int:
        """Handle of one of the qdiscs below it."""
        return self.root + (number << 16)


def is_root_handle(handle: int) -> bool:
    """Whether a run could have given a root qdisc this handle."""
    return handle & 0xF00F_FFFF == 0xB000_0000


@dataclass(frozen=True)
class MakeIfb:
    """An ifb interface, up."""

    name: str

    def commands(self) -> list[str]:
        """For a shell."""
        return [f"ip link add {self.name} type ifb", f"ip link set {self.name} up"]


@dataclass(frozen=True)
class Add:
    """A qdisc, class or filter on interface ``dev``."""

    dev: str
    what: Qdisc | HtbClass | Filter

    def commands(self) -> list[str]:
        """For a shell."""
        noun = {Qdisc: "qdisc", HtbClass: "class", Filter: "filter"}[type(self.what)]
        return [f"tc {noun} add dev {self.dev} {self.what}"]


Step = MakeIfb | Add


def plan(
    dev: str, traffic: PeerTraffic, link: Link, names: Names, *, mtu: int, leaf: str | None, both: bool
) -> tuple[Step, ...]:
    """The steps in their order: first what concerns no packet yet, last the filters.

    Args:
        link: one that ``check_link`` lets pass.
        mtu: of the interface, in bytes.
        leaf: kind of the qdisc through which everything else goes; None leaves it to htb.
        both: also what comes in.

    Raises ConfigError where the ports take too many filters.
    """
    outbound, inbound = list(matches(traffic, "dst")), list(matches(traffic, "src"))
    left_alone = list(spared(traffic, "dst"))
    if (number := len(outbound) + len(left_alone)) > MAX_FILTERS:
        raise ConfigError(
            f"--peer, --port and --except-port together take {number} filters, at most {MAX_FILTERS} are good for the "
            "interface; name a network instead of many hosts, and ports from a multiple of 8 on, such as 5000-5007"
        )
    here = link.base
    netem = [node.line for node in shape(link, 2)]  # two, so that chance is not the same in both directions
    steps: list[Step] = []
    if both:
        steps.append(MakeIfb(names.ifb))
        queue = _queue(here.down_queue_bytes, here.queue_packets, mtu)
        steps += [Add(names.ifb, qdisc) for qdisc in _shaper(names, ROOT, mtu, here.down_bps, queue, netem[1])]
    steps.append(Add(dev, Qdisc(names.root, ROOT, Htb(UNSHAPED))))
    steps += [Add(dev, HtbClass(names.root | minor)) for minor in (UNSHAPED, SHAPED)]
    if leaf is not None:
        steps.append(Add(dev, Qdisc(names.below(4), names.root | UNSHAPED, Plain(leaf))))
    queue = _queue(here.up_queue_bytes, here.queue_packets, mtu)
    steps += [Add(dev, qdisc) for qdisc in _shaper(names, names.root | SHAPED, mtu, here.up_bps, queue, netem[0])]
    # The kernel asks filters in the order in which they were added; the first that takes a packet decides.
    steps += [Add(dev, Filter(names.root, match, names.root | UNSHAPED)) for match in left_alone]
    steps += [Add(dev, Filter(names.root, match, names.root | SHAPED)) for match in outbound]
    if both:
        steps.append(Add(dev, Qdisc(INGRESS, INGRESS_PARENT, Plain("ingress"))))
        steps += [Add(dev, Filter(INGRESS, match, INGRESS | UNSHAPED)) for match in spared(traffic, "src")]
        steps += [Add(dev, Filter(INGRESS, match, names.ifb)) for match in inbound]
    return tuple(steps)


def commands(steps: Sequence[Step], dev: str) -> list[str]:
    """The same as lines for a shell, and how to take them back."""
    lines = [line for step in steps for line in step.commands()]
    undo = [f"tc qdisc del dev {dev} root"]
    for step in steps:
        if isinstance(step, MakeIfb):
            undo += [f"tc qdisc del dev {dev} ingress", f"ip link del {step.name}"]
    return [*lines, f"# all of it goes with: {'; '.join(undo)}"]


def _queue(num_bytes: int, packets: int | None, mtu: int) -> Fifo:
    return Fifo(packets, "pfifo") if packets else Fifo(max(num_bytes, mtu + LINK_HEADER_BYTES), "bfifo")


def _shaper(names: Names, parent: int, mtu: int, rate_bps: float, queue: Fifo, netem: NetemQdisc | None) -> list[Qdisc]:
    rate, fewest = max(1, round(rate_bps / 8)), FEWEST_FRAMES_OF_A_BURST * (mtu + LINK_HEADER_BYTES)
    found = [Qdisc(names.below(1), parent, Tbf(rate, max(fewest, round(rate * BURST_S)), fewest))]
    if netem is not None:
        found.append(Qdisc(names.below(2), found[-1].handle | 1, netem))
    return [*found, Qdisc(names.below(3), found[-1].handle | 1, queue)]
