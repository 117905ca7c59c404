"""How many nodes and which step time this machine carries: whether steps will take as long as they are declared to.

``compute.step_time`` pads a node's computing. What follows in a step is not padded: the optimizer, the books of the
step, and waking up. Where nodes share processors they do it one after another. What that adds is fitted to the
``no-communication`` cells that are published, 2, 4 and 8 nodes on two processors: ``TAIL_S`` and ``TAIL_SHARE`` of the
computing for each node that shares a processor. It is within 3 % of what was measured there, and an estimate elsewhere.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bwbench.base.units import DURATION
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.cell_dilation import TAIL_S, TOLERANCE
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.estimate import CellEstimate
from bwbench.experiment.plan.slowest_node import mean_step_s

TAIL_SHARE = 0.1
MOST_TRIED = 4096  # nodes


@dataclass(frozen=True)
class HostLoad:
    """What the nodes of a cell ask of one machine.

    Attributes:
        compute_s: of one step of one node that has its processors to itself.
        step_s: declared; the mean of the node that is fastest.
        cores: of the machine.
        dilation: how much longer the machine has for a step.
    """

    compute_s: float
    step_s: float
    threads: int
    cores: int
    dilation: float = 1.0

    @classmethod
    def of(cls, config: CellConfig, found: CellEstimate) -> HostLoad | None:
        """None where no step time is declared, or where the nodes are on other machines."""
        times = config.compute.step_times(config.nodes)
        if not times or config.launcher != "local":
            return None
        step_s = min(mean_step_s([one], found.steps) for one in times)
        cores = os.cpu_count() or 1
        sharing = max(1.0, config.nodes * config.compute.threads / cores / config.dilation)
        return cls(found.unpadded_s / sharing, step_s, config.compute.threads, cores, config.dilation)

    def own_step_s(self, nodes: int) -> float:
        """A step of so many nodes without communication."""
        return max(self.step_s, self._computing_s(nodes)) + self._tail_s(nodes)

    def is_carried(self, nodes: int) -> bool:
        """Whether such a step is as long as declared, up to ``TOLERANCE``."""
        return self.own_step_s(nodes) <= (1 + TOLERANCE) * self.step_s

    @property
    def most_nodes(self) -> int:
        """That are carried with this step time; 0 where not even one is."""
        return next((nodes - 1 for nodes in range(1, MOST_TRIED) if not self.is_carried(nodes)), MOST_TRIED)

    def least_step_s(self, nodes: int) -> float:
        """The shortest step time with which so many nodes are carried."""
        tail_s = self._tail_s(nodes)
        return max(tail_s / TOLERANCE, (self._computing_s(nodes) + tail_s) / (1 + TOLERANCE))

    def _computing_s(self, nodes: int) -> float:
        return self.compute_s * max(1.0, self._sharing(nodes))

    def _tail_s(self, nodes: int) -> float:
        sharing = self._sharing(nodes)
        return sharing * (TAIL_S + TAIL_SHARE * self.compute_s) if sharing > 1 else 0.0

    def _sharing(self, nodes: int) -> float:
        return nodes * self.threads / self.cores / self.dilation


def not_carried(planned: Iterable[PlannedCell], estimates: Mapping[str, CellEstimate]) -> list[str]:
    """A line for each load among the cells to run that this machine will probably not carry: they get host-bound."""
    found: dict[str, None] = {}
    for item in planned:
        config, estimate = item.cell.config, estimates.get(item.cell.id)
        load = HostLoad.of(config, estimate) if item.runs and estimate is not None else None
        if load is None or load.is_carried(config.nodes):
            continue
        own_s, least_s = load.own_step_s(config.nodes), load.least_step_s(config.nodes)
        most = load.most_nodes
        carried = f"{most} node{'s' if most != 1 else ''} of {_duration(load.step_s)}, or " if most else ""
        slower = "try dilation: auto" if load.dilation == 1 else f"a dilation above {load.dilation:g}"
        # Slow motion needs a link, and takes nothing off what a node by itself computes.
        or_slower = f"; or {slower}" if most and config.link.shaped else ""
        found[
            f"host-bound: {config.nodes} nodes on {load.cores} processors; a step declared as {_duration(load.step_s)} "
            f"takes about {DURATION.show(own_s, 3)} without communication. This machine carries {carried}"
            f"{config.nodes} nodes of {_duration(_rounded_up(least_s))} (compute.step_time){or_slower}. All of it is "
            "an estimate: no-communication among the arms measures it, and tables mark with ⊙ where it came true"
        ] = None
    return list(found)


def _duration(seconds: float) -> str:
    return DURATION.format(float(f"{seconds:.2g}"))


def _rounded_up(seconds: float) -> float:
    """To two digits, never down."""
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / unit - 1e-9) * unit
