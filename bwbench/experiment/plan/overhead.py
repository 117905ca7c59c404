"""What a cell takes beside its training: starting workers, measuring the link twice, evaluations. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from bwbench.experiment.config.cell import CellConfig
from bwbench.experiment.plan.describe import Description
from bwbench.network.link import Link
from bwbench.network.probe import probe_plan

FIXED_S = 0.5  # namespaces, the relay, records
WORKER_START_S = 0.5  # of one processor: what workers import besides, and their connecting
PROBE_START_S = 0.3  # of one processor, for each node's probe
LEAD_S = 0.03  # from telling the probes to start until they do
WARM_UP_STEPS = 2  # of a worker, before its clock starts
MOST_REMEMBERED = 1024  # links


def start_up_s(config: CellConfig, description: Description, num_cores: int) -> float:
    """Seconds until all workers can begin: they share the processors, each of them uses one."""
    return FIXED_S + (description.start_s + WORKER_START_S) * max(1.0, config.nodes / num_cores)


def verification_s(link: Link, num_nodes: int, num_cores: int) -> float:
    """Seconds of both measurements of the link, before the training and behind it."""
    if num_nodes == 1:
        return 0.0
    known = _Known(link.model_dump_json(exclude_defaults=True), link)
    return 2 * (_probing_s(known, num_nodes) + PROBE_START_S * max(1.0, num_nodes / num_cores))


def num_evaluations(config: CellConfig, steps: int) -> int:
    """Evaluations on the validation split in a training of so many steps: at its begin, on the grid, at its end."""
    samples, batch, every = steps * config.global_batch, config.global_batch, float(config.evaluate.every_samples)
    on_grid = min(steps, math.floor(samples / every))  # at most one a step
    last_is_on_grid = samples // every > (samples - batch) // every
    return 1 + on_grid + (0 if last_is_on_grid else 1)


def evaluation_s(config: CellConfig, description: Description, num_samples: int, num_cores: int) -> float:
    """Seconds of an evaluation on a split of so many samples, of which each node takes its share."""
    at_a_time = max(1.0, min(config.nodes, num_cores / config.compute.threads))
    return num_samples * description.sample_s / at_a_time


@dataclass(frozen=True)
class _Known:
    """A link by what it says: many cells have equal ones."""

    text: str
    link: Link = field(compare=False)


@lru_cache(maxsize=MOST_REMEMBERED)
def _probing_s(known: _Known, num_nodes: int) -> float:
    """One measurement, as ``network/probe/verify.py`` does it: round trips, loss, rate."""
    link = known.link
    pairs = probe_plan.pairs_of(link, num_nodes)
    each_s = max((probe_plan.num_pings(pair) * pair.rtt_s for pair in pairs), default=0.0)
    total_s = each_s * len(probe_plan.ping_groups(pairs, num_nodes, link.medium == "shared"))
    flows = probe_plan.rate_flows(link, num_nodes)
    total_s += LEAD_S + max(flow.duration_s + flow.listen_s for flow in flows) + probe_plan.drain_s(link, flows)
    if (losses := probe_plan.loss_flows(link, num_nodes)) is not None:
        total_s += LEAD_S + max(flow.duration_s + flow.listen_s for flow in losses)
    if (alone := probe_plan.alone_flow(link, num_nodes)) is not None:
        flow = alone[1]
        total_s += LEAD_S + flow.duration_s + flow.listen_s + probe_plan.drain_s(link, [flow] * num_nodes)
    return total_s
