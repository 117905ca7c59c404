"""Which back end carries a link, and why: every result says both."""

from __future__ import annotations

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.base.units import DURATION
from bwbench.network.link import Link
from bwbench.network.netem.parameters import MAX_JITTER_S
from bwbench.network.netem.shape import cuts_jitter


def choose(link: Link, netem_available: bool) -> tuple[str, str]:
    """Name of the back end and the reason in words.

    Raises ConfigError where the link asks for a back end that cannot carry it, UnfitMachineError where it asks for
    netem on a kernel without it.
    """
    if not link.shaped:
        return "unshaped", "the link asks for no shaping"
    if link.backend == "relay":
        return "relay", "asked for"
    reason = beyond_netem(link)
    if link.backend == "netem":
        if reason:
            raise ConfigError(f"backend: netem cannot do {reason}; write 'backend: relay' or 'backend: auto'")
        if not netem_available:
            raise UnfitMachineError(
                "backend: netem is asked for, but this kernel has no sch_netem; try 'sudo modprobe sch_netem' (package "
                "linux-modules-extra or kernel-modules-extra), or write 'backend: relay' or 'backend: auto'"
            )
        return "netem", "asked for"
    if reason:
        return "relay", f"netem cannot do {reason}"
    if not netem_available:
        return "relay", "this kernel has no sch_netem"
    return "netem", "the kernel has it, and the link asks for nothing else"


def beyond_netem(link: Link) -> str:
    """What the shaped ``link`` asks for that netem has not, and why; empty where there is nothing."""
    if link.medium == "shared":
        return "'medium: shared' (its qdiscs shape each node by itself; none lets stations take turns on one air)"
    if link.outages:
        return "outages (its qdiscs stay as they are set)"
    if link.varies:
        return "a trace (its qdiscs stay as they are set)"
    kinds = [link.base, *(link.node(node) for node in sorted(link.overrides))]
    longest_s = max(kind.jitter_s for kind in kinds)
    if longest_s > MAX_JITTER_S:
        return f"a jitter of {DURATION.format(longest_s)} (the kernel cuts it at {DURATION.format(MAX_JITTER_S)})"
    if cuts_jitter(kinds):
        return "jitter of one node around less than twice its latency (there every node adds its own half by itself)"
    return ""
