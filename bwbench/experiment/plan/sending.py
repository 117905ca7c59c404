"""What a cell sends in a step, as its components themselves say; and what a named method does on a model of any size.

A collective says how many bytes each rank sends and receives, and how many messages follow one another.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.combinations import NamedMethod
from bwbench.experiment.config.resolve import resolve_method
from bwbench.methods.compression.chain import nest
from bwbench.methods.traffic import Traffic

GRADIENT_BYTES = 4  # of an element, fp32


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


def traffic_of(config: NamedMethod, parameter_shapes: Sequence[tuple[int, ...]]) -> Traffic:
    """Payload of one step, by what the components themselves say."""
    algorithm = config.algorithm.build(ALGORITHMS)
    collective = config.collective.build(COLLECTIVES)
    traffic: Traffic = algorithm.traffic(parameter_shapes, config.nodes, collective, lambda: nest(config.compression))
    return traffic


def sending_key(config: CellConfig, parameter_shapes: Sequence[tuple[int, ...]]) -> str:
    """The same for cells that send the same: nodes, method and model."""
    parts = (config.algorithm, config.collective, *config.compression)
    return f"{config.nodes} {parameter_shapes} {[part.to_json() for part in parts]}"


@dataclass(frozen=True)
class NamedTraffic:
    """Where a name stands on the three axes, and what it sends.

    Attributes:
        algorithm, collective: their names.
        codec: names of the codecs, joined by ``+``.
        num_nodes: as many as asked, 1 for what trains alone.
        payload_bytes_per_rank: sent in one optimizer step by the rank that sends most; the mean over a period where
            steps differ. None where the name does not go with this many nodes.
    """

    algorithm: str
    collective: str
    codec: str
    num_nodes: int
    payload_bytes_per_rank: float | None


def named_traffic(name: str, num_parameters: int, num_nodes: int) -> NamedTraffic:
    """Of a preset or an algorithm with its default options; imports no torch.

    Args:
        num_parameters: as one square matrix, as large as it gets, and one vector that holds the rest.

    Raises ConfigError where the name has options without a default.
    """
    try:
        method = resolve_method({"algorithm": name}, num_nodes).config
    except ConfigError as error:
        raise ConfigError(f"{name}: {'; '.join(map(str, error.problems))}") from None
    payload = None
    with contextlib.suppress(ConfigError, ValueError):  # e.g. pairs among an odd number of nodes
        payload = max(traffic_of(method, shapes_of(num_parameters)).payload_bytes_per_rank, default=0.0)
    return NamedTraffic(
        algorithm=method.algorithm.name,
        collective=method.collective.name,
        codec="+".join(component.name for component in method.compression),
        num_nodes=method.nodes,
        payload_bytes_per_rank=payload,
    )


def shapes_of(num_parameters: int) -> list[tuple[int, ...]]:
    """A square matrix and what is left over as a vector."""
    side = math.isqrt(num_parameters)
    rest = num_parameters - side * side
    return [(side, side), (rest,)] if rest else [(side, side)]
