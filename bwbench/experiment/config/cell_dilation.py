"""Slow motion: how much a cell's time is stretched, what ``dilation: auto`` stands for, what cannot be stretched.

With ``dilation: K`` links, declared computing and our own software take K times as long, and the training clock shows
the machine's seconds divided by K (``base/emulated_time.py``). So a cell keeps its meaning, and the machine has K times
as long for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.base.step_time import SteadyStepTime
from bwbench.base.units import DURATION
from bwbench.experiment.config.cell_config import CellConfig, ComputeConfig
from bwbench.experiment.config.step_trace import read_step_trace
from bwbench.methods.compression.chain import nest
from bwbench.methods.traffic import Traffic
from bwbench.network.backend_choice import relay_limit_bps
from bwbench.network.link.dilation import cannot_dilate
from bwbench.network.link.shrunk_link import cannot_shrink

AUTO = "auto"
# Of a node that shares a processor: what follows in a step on its computing (optimizer, books, waking up) and is done
# by one node after the other, fitted to published cells (``plan/carried.py``); and the share of a step that it may be.
TAIL_S, TOLERANCE = 2.75e-3, 0.03
RELAY_SHARE = 0.5  # of what the relay will hardly carry more of: so much leaves it on time
MOST_MACHINE_S = 2 * 86400.0


def auto_dilation(config: CellConfig, num_cores: int | None = None) -> tuple[float, str]:
    """The least power of two with which this machine carries the nodes and their link, and why.

    It depends on nodes, step time and link alone: all arms of a comparison get the same one.
    """
    cores = num_cores or os.cpu_count() or 1
    sharing = config.nodes * config.compute.threads / cores
    needs = {"nothing is short": 1.0}
    if sharing > 1:
        needs[f"{config.nodes} nodes share {cores} processors"] = sharing
        if step_s := _shortest_step_s(config.compute):
            text = f"what {config.nodes} nodes do one after another is to be short beside {DURATION.format(step_s)}"
            needs[text] = sharing * TAIL_S / (TOLERANCE * step_s)
    if config.link.shaped and config.nodes > 1:
        # A link that cannot be divided is refused for that reason, once all keys are there.
        link = config.link if cannot_shrink(config.link, config.shrink) else config.link_as_made
        total_bps = sum(node.up_bps for node in link.nodes(config.nodes))
        if link.air is not None:
            total_bps = link.air.capacity_bps(link.base.up_bps)
        text = f"{config.nodes} nodes may send all at once, and the relay is to carry that"
        needs[text] = total_bps / (RELAY_SHARE * relay_limit_bps(link, config.nodes, cores))
    why = max(needs, key=lambda text: needs[text])
    factor = 2.0 ** max(0, math.ceil(math.log2(needs[why]) - 1e-9))
    return factor, f"dilation: auto is {factor:g}: {why}"


def dilation_refusals(config: CellConfig) -> Iterator[str]:
    """Why a cell cannot run with its dilation."""
    factor = config.dilation
    if factor == 1.0:
        return
    what = f"dilation: {factor:g} stretches time"
    if config.launcher != "local":
        yield f"{what}, and on hosts of their own time runs as it does; use launcher: local, or leave it out"
    if config.compute.virtual:
        yield f"{what}, and the times of virtual nodes say nothing; leave one of them out"
    elif not config.compute.declared:
        yield f"{what}, and computing that is not declared takes what it takes; declare compute.step_time"
    if not config.link.shaped and config.nodes > 1:
        yield f"{what}, and a link that is not shaped takes what it takes; give it a bandwidth, or leave dilation out"
    if (reason := cannot_dilate(config.link.tcp.congestion_control)) is not None:
        yield f"{what}, and link.tcp.congestion_control: {reason}"
    if (kept := ALGORITHMS.load(config.algorithm.name).fixed_time) is not None:
        yield f"{what}, and algorithm {config.algorithm.name!r} keeps a time of the machine: {kept}"
    if factor * config.shrink < 1.0 and _sends_in_background(config):
        yield (
            f"dilation: {factor:g} makes time run faster, and what this method sends while its nodes compute would not "
            "overlap with that as it does; use 1 or more"
        )
    yield from _too_long(config)


def _shortest_step_s(compute: ComputeConfig) -> float:
    """Of the node that computes fastest, on average or by its trace at best; 0 where nothing is declared."""
    found = [
        one.mean_s if isinstance(one, SteadyStepTime) else min(read_step_trace(one).step_times_s)
        for one in compute.declared
    ]
    return min(found, default=0.0)


def _sends_in_background(config: CellConfig) -> bool:
    collective = config.collective.build(COLLECTIVES)
    found: Traffic = config.algorithm.build(ALGORITHMS).traffic(
        [(1024,)], config.nodes, collective, lambda: nest(config.compression)
    )
    return found.in_background


def _too_long(config: CellConfig) -> Iterator[str]:
    steps = math.ceil(config.limit.samples / config.global_batch)
    step_s = _shortest_step_s(config.compute)
    least_s, what = steps * step_s, f"{steps} steps of {DURATION.format(step_s)}"
    if config.limit.time_s is not None and config.limit.time_s < least_s:
        least_s, what = config.limit.time_s, f"limit.time of {DURATION.format(config.limit.time_s)}"
    if (machine_s := least_s * config.dilation) > MOST_MACHINE_S and config.dilation > 1:
        yield (
            f"dilation: {config.dilation:g} makes {machine_s / 86400:.1f} days of this cell, by its {what}; at most "
            f"{MOST_MACHINE_S / 86400:.0f} days: dilation {_rounded_down(MOST_MACHINE_S / least_s):g}, or a lower limit"
        )


def _rounded_down(value: float) -> float:
    """To two digits, never up."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit
