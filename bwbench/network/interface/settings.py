"""Qdiscs, classes and filters as values: asked for, said in the words of ``tc``, read back from the kernel. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bwbench.network.interface.match import Match
from bwbench.network.netem.shape import NetemQdisc, netem_arguments

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
    """A drop-tail queue of ``limit`` bytes or packets."""

    limit: int
    unit: Literal["bytes", "packets"]

    @property
    def kind(self) -> str:
        """The kernel's name of it."""
        return "bfifo" if self.unit == "bytes" else "pfifo"

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

    def same_as(self, other: Qdisc) -> bool:
        """Whether the kernel made of one what was meant by the other.

        It rounds bursts, and does not tell distributions, nor where super-packets are cut.
        """
        if (self.handle, self.parent) != (other.handle, other.parent):
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

    def same_as(self, other: Filter) -> bool:
        """Whether both send the same packets to the same place."""
        return (self.parent, self.target) == (other.parent, other.target) and self.match.same_as(other.match)


def show_handle(handle: int) -> str:
    """``b120:`` or ``b120:2``, as ``tc`` writes it."""
    major, minor = handle >> 16, handle & 0xFFFF
    return f"{major:x}:{minor:x}" if minor else f"{major:x}:"
