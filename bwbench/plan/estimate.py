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

from bwbench.config.cell import CellConfig
from bwbench.config.codec_chain import nest
from bwbench.errors import ConfigError
from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, Link
from bwbench.network.link.node_link import path_between
from bwbench.plan.cell import Cell
from bwbench.plan.describe import Description, Request, describe
from bwbench.plan.overhead import WARM_UP_STEPS, evaluation_s, start_up_s, verification_s
from bwbench.plan.traffic import Traffic
from bwbench.registry import ALGORITHMS, COLLECTIVES

ACK_FRAME_BYTES = 66  # Ethernet 14, IP 20, TCP with timestamps 32
SEGMENTS_PER_ACK = 2  # TCP delays acknowledgements to one in two full segments
WIRE_PER_PAYLOAD = ETHERNET_FRAME_BYTES / TCP_PAYLOAD_BYTES
GRADIENT_BYTES = 4  # of an element, fp32
ACK_PER_PAYLOAD = ACK_FRAME_BYTES / SEGMENTS_PER_ACK / TCP_PAYLOAD_BYTES


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


def transfer_time_s(link: Link, traffic: Traffic) -> float:
    """Seconds that one step's messages take on the link; 0 on an unshaped one.

    ``medium: switched``: the direction that takes longest of any node, with the acknowledgements of what comes the
    other way, plus what cannot overlap. ``medium: shared``: the airtime of all frames of all nodes, acknowledgements
    too, up to the access point and down again. Rates that change count by their mean.
    """
    if not link.shaped:
        return 0.0
    pairs = list(zip(traffic.payload_bytes_per_rank, traffic.received_bytes_per_rank, strict=True))
    nodes = link.nodes(len(pairs))
    latency_s = max((path_between(src, dst).latency_s for src in nodes for dst in nodes if src is not dst), default=0.0)
    sending_s = 0.0
    if link.air is not None:
        stations = [number for number in range(len(pairs)) if number not in link.air.wired]
        for number in stations:
            (sent, received), phy_bps = pairs[number], nodes[number].up_bps
            up_s, down_s = link.air.contended_overhead_s(len(stations), phy_bps)
            sending_s += _airtime_s(sent, phy_bps, up_s, down_s) + _airtime_s(received, phy_bps, down_s, up_s)
    else:
        sending_s = traffic.serial_bytes * WIRE_PER_PAYLOAD * 8 / min(node.slowest_bps for node in nodes)
        sending_s += max(
            max(_line_s(sent, received, node.up_bps), _line_s(received, sent, node.down_bps))
            for node, (sent, received) in zip(nodes, pairs, strict=True)
        )
    return float(sending_s + traffic.rounds * latency_s)


def _line_s(data_bytes: float, back_bytes: float, rate_bps: float) -> float:
    """What one direction of a node's own line takes: payload, and the acknowledgements of what came the other way."""
    return (data_bytes * WIRE_PER_PAYLOAD + back_bytes * ACK_PER_PAYLOAD) * 8 / rate_bps


def _airtime_s(data_bytes: float, rate_bps: float, overhead_s: float, ack_overhead_s: float) -> float:
    """What payload between a station and the access point takes of the air, with the acknowledgements coming back."""
    frames = data_bytes / TCP_PAYLOAD_BYTES
    frame_s = overhead_s + ETHERNET_FRAME_BYTES * 8 / rate_bps
    return frames * (frame_s + (ack_overhead_s + ACK_FRAME_BYTES * 8 / rate_bps) / SEGMENTS_PER_ACK)


def request_of(config: CellConfig) -> Request:
    """What the describing process is asked about a cell."""
    return Request.of(config.model, config.dataset.source, config.plugins, config.batch_size, config.compute.threads)


def _sending_key(config: CellConfig, description: Description) -> str:
    parts = (config.algorithm, config.collective, *config.compression)
    return f"{config.nodes} {description.parameter_shapes} {[part.to_json() for part in parts]}"
