"""From a link to the steps that shape an interface. Pure; ``kernel.py`` takes them, a dry run prints them.

    out of the interface:   htb ┬ :1  everything else, as it was
                                └ :2  the peers' traffic ─ tbf (rate) ─ netem (latency, jitter, loss) ─ queue
    into the interface:     ingress ─ the peers' traffic goes over to an ifb of our own: tbf ─ netem ─ queue

netem stands inside the tbf, so that a packet is delayed first and waits in the queue then: the queue holds nothing that
is merely under way. It is missing where nothing is asked of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.network.interface.match import matches, spared
from bwbench.network.interface.settings import (
    INGRESS,
    INGRESS_PARENT,
    ROOT,
    Fifo,
    Filter,
    Htb,
    HtbClass,
    Plain,
    Qdisc,
    Tbf,
)
from bwbench.network.interface.shaping_request import PeerTraffic
from bwbench.network.link import Link
from bwbench.network.netem.shape import NetemQdisc, shape

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
    def new(cls) -> Names:
        """Names that no other run has."""
        return cls(secrets.token_hex(4))

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
    return Fifo(packets, "packets") if packets else Fifo(max(num_bytes, mtu + LINK_HEADER_BYTES), "bytes")


def _shaper(names: Names, parent: int, mtu: int, rate_bps: float, queue: Fifo, netem: NetemQdisc | None) -> list[Qdisc]:
    rate, fewest = max(1, round(rate_bps / 8)), FEWEST_FRAMES_OF_A_BURST * (mtu + LINK_HEADER_BYTES)
    found = [Qdisc(names.below(1), parent, Tbf(rate, max(fewest, round(rate * BURST_S)), fewest))]
    if netem is not None:
        found.append(Qdisc(names.below(2), found[-1].handle | 1, netem))
    return [*found, Qdisc(names.below(3), found[-1].handle | 1, queue)]
