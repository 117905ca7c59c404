"""How long a cell should take, from its link, its payload and the speed of computing: training, starting workers,
measuring the link twice, evaluations. All that can be said before any cell has run; what finished cells teach stands in
``plan/calibration.py``.

A link of its own for every node carries its busiest direction; one shared air carries everything, and twice, because a
frame between two stations goes through the access point. What others send over the nodes' links is taken off the
rates, as far as its mean is told. Left out are software time per message and retransmissions, which make it slower, and
overlap with the backward pass, which makes it faster; and what ``not_reckoned_with`` says.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.cell_config import LEFT_OUT, CellConfig
from bwbench.experiment.config.real_size import skips_its_warm_up
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.described_models import Description, describe
from bwbench.experiment.plan.sending import Sending, sending_of
from bwbench.experiment.plan.slowest_node import mean_step_s
from bwbench.methods.phases import WARM_UP_STEPS
from bwbench.methods.traffic import ack_per_payload, added, transfer_time_s, wire_bytes
from bwbench.network.link import Link
from bwbench.network.probe import probe_plan

FIXED_S = 0.5  # namespaces, the relay, records
WORKER_START_S = 0.5  # of one processor: what workers import besides, and their connecting
PROBE_START_S = 0.3  # of one processor, for each node's probe
LEAD_S = 0.03  # from telling the probes to start until they do


@dataclass(frozen=True)
class CellEstimate:
    """Prediction for one cell. Bytes are per optimizer step.

    Attributes:
        num_parameters: of the model.
        payload_bytes_per_step: sent by all ranks together.
        payload_bytes_per_rank: sent by the rank that sends most.
        wire_bytes_per_step: frames, with headers and what gloo sends beside each message, all ranks together; without
            acknowledgements.
        ack_bytes_per_step: acknowledgements.
        compute_s: computing of one step, padding included; ``unpadded_s`` without, ``padded_to_s`` what is declared: of
            the node that is waited for, on average.
        communication_s: what the link takes for one step, on average over a period.
        in_background: sent while the nodes compute.
        step_s: of one step: nothing is assumed to overlap, but for methods that send in the background.
        warm_up_steps: first steps of the method that send whole gradients, ``warm_up_step_s`` each.
        first_exchange: the step in which nodes send anything for the first time; None where nobody says.
        steps: until the limit.
        predicted_s: of the machine, training until the limit; a target that is reached earlier ends a cell earlier.
        overhead_s: start-up, warm-up off the clock, and both measurements of the link.
        validation_s: one evaluation on the validation split; ``test_s`` the one on the test split.
    """

    num_parameters: int
    payload_bytes_per_step: float
    payload_bytes_per_rank: float
    wire_bytes_per_step: float
    ack_bytes_per_step: float
    compute_s: float
    unpadded_s: float
    padded_to_s: float
    communication_s: float
    in_background: bool
    step_s: float
    warm_up_steps: int
    warm_up_step_s: float
    first_exchange: int | None
    steps: int
    predicted_s: float
    overhead_s: float
    validation_s: float
    test_s: float


def estimate_cells(cells: Sequence[Cell]) -> dict[str, CellEstimate]:
    """The estimate of each cell by its id. Raises ConfigError and LaunchError as ``describe``."""
    # By nodes, model, method and whether there are sites: cells that have these alike send the same.
    sending: dict[str, Sending] = {}
    estimates = {}
    for cell, found in zip(cells, describe([cell.config for cell in cells]), strict=True):
        parts = (cell.config.algorithm, cell.config.collective, *cell.config.compression)
        has_sites = bool(cell.config.link.sites)
        key = f"{cell.config.nodes} {found.parameter_shapes} {[part.to_json() for part in parts]} {has_sites}"
        if key not in sending:
            try:
                sending[key] = sending_of(cell.config, found.parameter_shapes)
            except Exception as error:
                if not cell.config.plugins:
                    raise
                text = f"{type(error).__name__}: {error}"
                raise ConfigError(f"{cell.slug}: the payload of a step cannot be estimated: {text}") from error
        estimates[cell.id] = estimate(cell.config, found, sending[key])
    return estimates


def estimate(
    config: CellConfig, description: Description, sending: Sending, num_cores: int | None = None
) -> CellEstimate:
    """Put together what is known. Pure, but for ``num_cores``, which is that of this machine by default."""
    cores = num_cores or os.cpu_count() or 1
    processes = config.nodes
    if config.compute.virtual:  # its nodes take turns, however many processors there are
        cores, processes = config.compute.threads, 1
    traffic, full = sending.traffic, config.link.full_frame
    # Nodes that share cores take turns, for which slow motion gives them time.
    contention = max(1.0, config.nodes * config.compute.threads / cores / config.dilation)
    unpadded_s = description.compute_s * config.accumulate * contention
    steps = math.ceil(config.limit.samples / config.global_batch)
    step_times = config.compute.step_times(config.nodes)
    padded_to_s = mean_step_s(step_times, steps, _steps_between_waits(config, sending))
    compute_s = max(unpadded_s, padded_to_s)
    communication_s = sum(transfer_time_s(config.link, part, beside_others=True) for part in sending.step)
    step_s = max(compute_s, communication_s) if traffic.in_background else compute_s + communication_s
    whole_s = sum(transfer_time_s(config.link, part, beside_others=True) for part in sending.warm_up)
    payload_bytes = added(*(part.payload_bytes_per_rank for part in sending.step))
    warm_up_steps = 0 if skips_its_warm_up(config) else min(steps, sending.warm_up_steps)
    warm_up_step_s = compute_s + whole_s
    # Methods that average now and then rehearse that once, besides the first steps as they come.
    rehearsed_s = communication_s / sending.rounds_per_step if sending.rounds_per_step < 1 else 0.0
    every_step_s = whole_s if sending.warm_up_steps else communication_s if sending.rounds_per_step >= 1 else 0.0
    passes_s = _declared_backward_s(config, padded_to_s) * (WARM_UP_STEPS + 1 / config.accumulate)
    warming_up_s = config.dilation * (WARM_UP_STEPS * (unpadded_s + every_step_s) + rehearsed_s + passes_s)
    # Until all workers can begin: they share the processors, each of them uses one.
    start_up_s = FIXED_S + (description.start_s + WORKER_START_S) * max(1.0, processes / cores)
    verification_s = _verification_s(config.link_as_made.dilated(config.dilation), config.nodes, cores)
    training_s = warm_up_steps * warm_up_step_s + (steps - warm_up_steps) * step_s
    return CellEstimate(
        num_parameters=description.num_parameters,
        payload_bytes_per_step=sum(payload_bytes),
        payload_bytes_per_rank=max(payload_bytes, default=0.0),
        wire_bytes_per_step=sum(wire_bytes(part, full) for part in sending.step),
        ack_bytes_per_step=sum(payload_bytes) * ack_per_payload(full),
        compute_s=compute_s,
        unpadded_s=unpadded_s,
        padded_to_s=padded_to_s,
        communication_s=communication_s,
        in_background=traffic.in_background,
        step_s=step_s,
        warm_up_steps=warm_up_steps,
        warm_up_step_s=warm_up_step_s,
        first_exchange=sending.first_exchange,
        steps=steps,
        predicted_s=min(training_s, config.limit.time_s or math.inf) * config.dilation,
        overhead_s=start_up_s + verification_s + warming_up_s,
        validation_s=evaluation_s(config, description, description.num_validation, cores),
        test_s=evaluation_s(config, description, description.num_test, cores),
    )


def not_reckoned_with(configs: Iterable[CellConfig]) -> list[str]:
    """A line for each thing about links that no prediction reckons with, though it makes steps longer."""
    links = [config.link for config in configs]
    endless = {one.kind: None for link in links for one in link.cross_traffic if not one.has_mean}
    least = sorted({link.demand.least for link in links if link.demand is not None})
    lines = []
    if endless:
        lines.append(
            f"times: connections of others that send for ever ({' and '.join(endless)}) take what they get of a link, "
            "which no predicted time takes off it. Finished cells on such a link correct that"
        )
    if least:
        shares = " or ".join(f"{100 * share:.3g} %" for share in least)
        lines.append(
            "times: rates that follow what is sent (demand) are taken as if all of the rate were there at once; an "
            f"exchange after a silence begins with {shares} of it. Finished cells on such a link correct that"
        )
    return lines


def _declared_backward_s(config: CellConfig, step_s: float) -> float:
    """What backward passes of a step take that nobody computes, those of a model of shapes: while warming up too."""
    return float(getattr(config.model.options, "backward", 0.0)) * step_s if config.learns_nothing else 0.0


def _steps_between_waits(config: CellConfig, sending: Sending) -> float:
    """After how many steps the nodes wait for the slowest of them; at the latest before an evaluation."""
    between_evaluations = max(1.0, float(config.evaluate.every_samples) / config.global_batch)
    if not sending.waits:
        return between_evaluations
    return min(between_evaluations, max(1.0, 1 / sending.rounds_per_step))


def _verification_s(link: Link, num_nodes: int, num_cores: int) -> float:
    """Seconds of both measurements of the link, before the training and behind it."""
    if num_nodes == 1:
        return 0.0
    key = link.model_dump_json(exclude_defaults=True), num_nodes
    if key not in _PROBED:
        _PROBED[key] = _probing_s(link, num_nodes)
    return 2 * (_PROBED[key] + PROBE_START_S * max(1.0, num_nodes / num_cores))


def num_evaluations(config: CellConfig, steps: int) -> int:
    """Evaluations on the validation split in a training of so many steps: at its begin, on the grid, at its end."""
    samples, batch, every = steps * config.global_batch, config.global_batch, float(config.evaluate.every_samples)
    on_grid = min(steps, math.floor(samples / every))  # at most one a step
    last_is_on_grid = samples // every > (samples - batch) // every
    return 1 + on_grid + (0 if last_is_on_grid else 1)


def num_tests(config: CellConfig, steps: int) -> int:
    """Evaluations on the test split, likewise; those around arrivals are left out, since nobody knows when they are."""
    return num_evaluations(config, steps) if config.evaluate.test == "always" else 1


def evaluation_s(config: CellConfig, description: Description, num_samples: int, num_cores: int) -> float:
    """Seconds of an evaluation on a split of so many samples, of which each node takes its share; twice where the
    average of the weights is evaluated as well."""
    at_a_time = max(1.0, min(config.nodes, num_cores / config.compute.threads))
    times = 1 if config.weight_average.name == LEFT_OUT["weight_average"] else 2
    return times * num_samples * description.sample_s / at_a_time


_PROBED: dict[tuple[str, int], float] = {}  # by link and nodes: many cells have equal ones


def _probing_s(link: Link, num_nodes: int) -> float:
    """One measurement, as ``network/probe/verification.py`` does it: round trips, loss, rate; of sites in rounds."""
    total_s = 0.0
    for pairs in probe_plan.rounds_of(link, num_nodes):
        each_s = max((probe_plan.num_pings(pair) * pair.rtt_s for pair in pairs), default=0.0)
        groups = probe_plan.ping_groups(pairs, len(pairs) or num_nodes, is_shared=link.medium == "shared")
        total_s += each_s * len(groups)
        flows = probe_plan.rate_flows(link, num_nodes, pairs)
        total_s += LEAD_S + max(flow.duration_s + flow.listen_s for flow in flows)
        total_s += probe_plan.drain_s(link, flows, pairs)
        if (losses := probe_plan.loss_flows(link, num_nodes, pairs)) is not None:
            total_s += LEAD_S + max(flow.duration_s + flow.listen_s for flow in losses)
    if (alone := probe_plan.alone_flow(link, num_nodes)) is not None:
        flow = alone[1]
        total_s += LEAD_S + flow.duration_s + flow.listen_s + probe_plan.drain_s(link, [flow] * num_nodes)
    return total_s
