"""What this machine will hardly carry, or a cell not survive, said before hours are spent on finding out."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.base.registry import COMPRESSIONS
from bwbench.base.units import DURATION
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.methods.roles import averages_gradients
from bwbench.network.backend_choice import beyond_relay
from bwbench.network.netem.netem_check import netem_available
from bwbench.network.netem.shape import beyond_netem

# From about here on an outage cannot be told from a link that stays dead, which ends a cell (docs/faults.md).
LONGEST_OUTAGE_S = 15.0


def doubts(planned: Sequence[PlannedCell]) -> list[str]:
    """A line for each kind of link among the cells to run that a relay here will probably be too slow for, or that is
    dead for too long; and for each method that an optimizer's momentum keeps from training.
    """
    found: dict[str, None] = {}
    has_netem: bool | None = None
    for config in (item.cell.config for item in planned if item.runs):
        longest_s = max((outage.duration_s for outage in config.link.outages), default=0.0)
        if longest_s > LONGEST_OUTAGE_S:
            found[
                f"an outage of {DURATION.format(longest_s)} ends a cell that needs the link meanwhile as failed: "
                f"outages are waited for about {DURATION.format(LONGEST_OUTAGE_S)}"
            ] = None
        if (doubt := _momentum_doubt(config)) is not None:
            found[doubt] = None
        if (text := beyond_relay(config.link, config.nodes)) is None:
            continue
        if config.link.backend != "relay" and not beyond_netem(config.link):
            has_netem = netem_available() if has_netem is None else has_netem
            if has_netem:
                continue
        found[text] = None
    return list(found)


def _momentum_doubt(config: CellConfig) -> str | None:
    """What is to be said where gradients that arrive late meet a momentum."""
    momentum = float(getattr(config.optimizer.options, "momentum", 0.0))
    if momentum == 0.0 or not averages_gradients(config.algorithm.name):
        return None
    for component in config.compression:
        late = COMPRESSIONS.load(component.name).late_residual
        if late and getattr(component.options, "error_feedback", False):
            return (
                f"{component.name} sends most of a gradient some steps late, and a momentum of {momentum:g} multiplies "
                "that: it trains better without, by as much as all accuracy (docs/algorithms/accuracy.md); write "
                "momentum: 0"
            )
    return None
