"""What a cell will send and how long it should take, from its link, its payload and the speed of computing: all that
can be said before any cell has run. What finished cells teach stands in ``plan/calibration.py``.

A collective says how many bytes each rank sends and receives, and how many messages follow one another. A link of its
own for every node carries its busiest direction; one shared air carries everything, and twice, because a frame between
two stations goes through the access point. Left out are software time per message and retransmissions, which make it
slower, and overlap with the backward pass, which makes it faster.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell import CellConfig
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.describe import Description, Request, describe
from bwbench.experiment.plan.overhead import WARM_UP_STEPS, evaluation_s, start_up_s, verification_s
from bwbench.methods.compression.chain import nest
from bwbench.methods.traffic import ACK_PER_PAYLOAD, WIRE_PER_PAYLOAD, Traffic, transfer_time_s

GRADIENT_BYTES = 4  # of an element, fp32


@dataclass(frozen=True)
class Estimate:
    """Prediction for one cell. Bytes are per optimizer step.

    Attributes:
        num_parameters: of the model.
        payload_bytes_per_step: sent by all ranks together.
        payload_bytes_per_rank: sent by the rank that sends most.
        wire_bytes_per_step: frames with payload, headers included, all ranks together; without acknowledgements.
        ack_bytes_per_step: acknowledgements.
        compute_s: computing of one step, padding included; ``unpadded_s`` without, ``padded_to_s`` what is declared.
        communication_s: what the link takes for one step, on average over a period.
        in_background: sent while the nodes compute.
        step_s: of one step: nothing is assumed to overlap, but for methods that send in the background.
        warm_up_steps: first steps of the method that send whole gradients, ``warm_up_step_s`` each.
        steps: until the limit.
        predicted_s: training clock until the limit; a target that is reached earlier ends a cell earlier.
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
    steps: int
    predicted_s: float
    overhead_s: float
    validation_s: float
    test_s: float


@dataclass(frozen=True)
class Sending:
    """What a method puts on the network.

    Attributes:
        traffic: of a step, on average over a period.
        warm_up_steps: first steps that differ; ``warm_up`` is the traffic of each.
        rounds_per_step: exchanges of which an average step has a share: 1 where every step ends in one.
    """

    traffic: Traffic
    warm_up_steps: int = 0
    warm_up: Traffic | None = None
    rounds_per_step: float = 1.0


def estimate_cells(cells: Sequence[Cell]) -> dict[str, Estimate]:
    """The estimate of each cell by its id.

    Raises:
        ConfigError: a model cannot be made for its data set.
        LaunchError: the process that measures models failed.
    """
    requests = {cell.id: request_of(cell.config) for cell in cells}
    described = describe(list(dict.fromkeys(requests.values())))
    sending: dict[str, Sending] = {}
    estimates = {}
    for cell in cells:
        found = described[requests[cell.id]]
        key = _sending_key(cell.config, found)
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


def sending_of(config: CellConfig, parameter_shapes: Sequence[tuple[int, ...]]) -> Sending:
    """Payload of all kinds of steps, by what the components themselves say."""
    traffic = traffic_of(config, parameter_shapes)
    phases = config.algorithm.build(ALGORITHMS).phases(parameter_shapes)
    if not phases:
        return Sending(traffic)
    rounds = len(phases[-1].exchanges) / phases[-1].period or 1.0  # where nothing is ever sent, it does not matter
    steps = sum(phase.num_steps for phase in phases if phase.num_steps is not None)
    if not steps:
        return Sending(traffic, rounds_per_step=rounds)
    size = GRADIENT_BYTES * sum(math.prod(shape) for shape in parameter_shapes)
    whole: Traffic = config.collective.build(COLLECTIVES).traffic(config.nodes, [size])
    return Sending(traffic, steps, whole, rounds)


def traffic_of(config: CellConfig, parameter_shapes: Sequence[tuple[int, ...]]) -> Traffic:
    """Payload of one step, by what the components themselves say."""
    algorithm = config.algorithm.build(ALGORITHMS)
    collective = config.collective.build(COLLECTIVES)
    traffic: Traffic = algorithm.traffic(parameter_shapes, config.nodes, collective, lambda: nest(config.compression))
    return traffic


def estimate(config: CellConfig, description: Description, sending: Sending, num_cores: int | None = None) -> Estimate:
    """Put together what is known. Pure, but for ``num_cores``, which is that of this machine by default."""
    cores = num_cores or os.cpu_count() or 1
    traffic = sending.traffic
    contention = max(1.0, config.nodes * config.compute.threads / cores)  # nodes that share cores take turns
    unpadded_s = description.compute_s * config.accumulate * contention
    compute_s = max(unpadded_s, config.compute.step_time_s or 0.0)
    communication_s = transfer_time_s(config.link, traffic)
    step_s = max(compute_s, communication_s) if traffic.in_background else compute_s + communication_s
    steps = math.ceil(config.limit.samples / config.global_batch)
    whole_s = transfer_time_s(config.link, sending.warm_up) if sending.warm_up is not None else 0.0
    warm_up_steps = min(steps, sending.warm_up_steps)
    warm_up_step_s = compute_s + whole_s
    # Methods that average now and then rehearse that once, besides the first steps as they come.
    rehearsed_s = communication_s / sending.rounds_per_step if sending.rounds_per_step < 1 else 0.0
    every_step_s = whole_s if sending.warm_up_steps else communication_s if sending.rounds_per_step >= 1 else 0.0
    warming_up_s = WARM_UP_STEPS * (unpadded_s + every_step_s) + rehearsed_s
    training_s = warm_up_steps * warm_up_step_s + (steps - warm_up_steps) * step_s
    return Estimate(
        num_parameters=description.num_parameters,
        payload_bytes_per_step=traffic.total_bytes,
        payload_bytes_per_rank=max(traffic.payload_bytes_per_rank, default=0.0),
        wire_bytes_per_step=traffic.total_bytes * WIRE_PER_PAYLOAD,
        ack_bytes_per_step=traffic.total_bytes * ACK_PER_PAYLOAD,
        compute_s=compute_s,
        unpadded_s=unpadded_s,
        padded_to_s=config.compute.step_time_s or 0.0,
        communication_s=communication_s,
        in_background=traffic.in_background,
        step_s=step_s,
        warm_up_steps=warm_up_steps,
        warm_up_step_s=warm_up_step_s,
        steps=steps,
        predicted_s=min(training_s, config.limit.time_s or math.inf),
        overhead_s=start_up_s(config, description, cores)
        + verification_s(config.link, config.nodes, cores)
        + warming_up_s,
        validation_s=evaluation_s(config, description, description.num_validation, cores),
        test_s=evaluation_s(config, description, description.num_test, cores),
    )


def request_of(config: CellConfig) -> Request:
    """What the describing process is asked about a cell."""
    return Request.of(config.model, config.dataset.source, config.plugins, config.batch_size, config.compute.threads)


def _sending_key(config: CellConfig, description: Description) -> str:
    parts = (config.algorithm, config.collective, *config.compression)
    return f"{config.nodes} {description.parameter_shapes} {[part.to_json() for part in parts]}"
