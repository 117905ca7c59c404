"""Which back end carries a link, and why: every result says both."""

from __future__ import annotations

from bwbench.errors import ConfigError, UnfitMachineError
from bwbench.network.link import Link


def choose(link: Link, netem_available: bool) -> tuple[str, str]:
    """Name of the back end and the reason in words.

    Raises ConfigError where the link asks for a back end that cannot carry it, UnfitMachineError where it asks for
    netem on a kernel without it.
    """
    if not link.shaped:
        return "unshaped", "the link asks for no shaping"
    beyond_netem = _beyond_netem(link)
    if link.backend == "relay":
        return "relay", "asked for"
    if link.backend == "netem":
        if beyond_netem:
            raise ConfigError(f"backend: netem cannot do {beyond_netem}; write 'backend: relay' or 'backend: auto'")
        if not netem_available:
            raise UnfitMachineError(
                "backend: netem is asked for, but this kernel has no sch_netem; try 'sudo modprobe sch_netem' (package "
                "linux-modules-extra or kernel-modules-extra), or write 'backend: relay' or 'backend: auto'"
            )
        return "netem", "asked for"
    if beyond_netem:
        return "relay", f"netem cannot do {beyond_netem}"
    if not netem_available:
        return "relay", "this kernel has no sch_netem"
    return "netem", "the kernel has it, and the link asks for nothing else"


def _beyond_netem(link: Link) -> str:
    """What the link asks for that netem has not; empty where there is nothing."""
    return "a shared half-duplex medium" if link.medium == "shared" else ""
