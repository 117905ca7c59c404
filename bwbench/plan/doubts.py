"""What this machine will hardly carry, said before hours are spent on finding out."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.network.backend_choice import beyond_netem
from bwbench.network.capacity import beyond_relay
from bwbench.network.netem.check import netem_available
from bwbench.plan.assess import PlannedCell


def doubts(planned: Sequence[PlannedCell]) -> list[str]:
    """A line for each kind of link among the cells to run that a relay here will probably be too slow for."""
    found: dict[str, None] = {}
    has_netem: bool | None = None
    for item in planned:
        config = item.cell.config
        text = beyond_relay(config.link, config.nodes) if item.runs else None
        if text is None:
            continue
        if config.link.backend != "relay" and not beyond_netem(config.link):
            has_netem = netem_available() if has_netem is None else has_netem
            if has_netem:
                continue
        found[text] = None
    return list(found)
