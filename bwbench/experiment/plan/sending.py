"""What a cell sends in a step, as its components say."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.combinations import NamedMethod
from bwbench.experiment.config.resolve import resolve_method
from bwbench.methods.collectives.collective import AbstractCollective, NoCollective
from bwbench.methods.compression.chain import nest
from bwbench.methods.compression.codec import AbstractCodec, NoCompression
from bwbench.methods.phases import first_exchange
from bwbench.methods.traffic import Traffic
from bwbench.network.link import Link


@dataclass(frozen=True)
class Sending:
    """What a method puts on the network.

    Attributes:
        traffic: of a step, on average over a period.
        inside: of such a step within hosts, beside ``traffic``, where that crosses a network; None where it does not.
        warm_up_steps: first steps that differ; ``warm_up`` is the traffic of each, one after the other.
        rounds_per_step: exchanges of which an average step has a share: 1 where every step ends in one.
        waits: whether nodes wait for others in an exchange.
        first_exchange: the step, counted from 1, in which anything is sent for the first time; None where nobody says.
    """

    traffic: Traffic
    inside: Traffic | None = None
    warm_up_steps: int = 0
    warm_up: tuple[Traffic, ...] = ()
    rounds_per_step: float = 1.0
    waits: bool = True
    first_exchange: int | None = None

    @property
    def step(self) -> tuple[Traffic, ...]:
        """All traffic of an average step, one after the other."""
        return (self.traffic,) if self.inside is None else (self.traffic, self.inside)


def sending_of(config: CellConfig, parameter_shapes: Sequence[tuple[int, ...]]) -> Sending:
    """Payload of all kinds of steps, by what the components themselves say."""
    traffic, inside = traffic_of(config, parameter_shapes), _inside_of(config, parameter_shapes)
    phases = config.algorithm.build(ALGORITHMS).phases(parameter_shapes)
    if not phases:  # whoever says nothing about its steps, and sends in the background, goes on without waiting
        return Sending(traffic, inside, waits=not traffic.in_background)
    rounds = len(phases[-1].exchanges) / phases[-1].period or 1.0  # where nothing is ever sent, it does not matter
    found = Sending(traffic, inside, rounds_per_step=rounds, first_exchange=first_exchange(phases))
    steps = sum(phase.num_steps for phase in phases if phase.num_steps is not None)
    if not steps:
        return found
    collective, whole = config.collective.build(COLLECTIVES), [_gradient_bytes(parameter_shapes)]
    warm_up = (collective.traffic(config.nodes, whole), collective.inside(config.nodes, whole, config.link))
    return replace(found, warm_up_steps=steps, warm_up=warm_up)


def traffic_of(config: NamedMethod, parameter_shapes: Sequence[tuple[int, ...]]) -> Traffic:
    """Payload of one step, by what the components themselves say."""
    algorithm = config.algorithm.build(ALGORITHMS)
    collective = config.collective.build(COLLECTIVES)
    traffic: Traffic = algorithm.traffic(parameter_shapes, config.nodes, collective, lambda: nest(config.compression))
    return traffic


def _inside_of(config: CellConfig, parameter_shapes: Sequence[tuple[int, ...]]) -> Traffic | None:
    """What of one step stays within hosts: as ``traffic_of``, of an exchange in fp32 that goes no farther."""
    inside = _Inside(config.collective.build(COLLECTIVES), config.link)
    if not inside.traffic(config.nodes, [_gradient_bytes(parameter_shapes)]).total_bytes:
        return None
    algorithm = config.algorithm.build(ALGORITHMS)
    traffic: Traffic = algorithm.traffic(parameter_shapes, config.nodes, inside, lambda: _dense(config.compression))
    return traffic


class _Inside(NoCollective):
    """Stands in for a collective: an exchange is what that one moves within hosts."""

    def __init__(self, whole: AbstractCollective, link: Link) -> None:
        super().__init__()
        self._whole, self._link = whole, link

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """Of buckets in fp32."""
        return self._whole.inside(num_nodes, bucket_payload_bytes, self._link)


def _dense(chain: Sequence[Component]) -> AbstractCodec:
    """Of a chain what decides how many numbers are averaged: a linear codec, or none. They are in fp32."""
    codec: AbstractCodec = nest(chain)
    if not codec.linear:
        return NoCompression()
    codec.inner = None
    return codec


def _gradient_bytes(parameter_shapes: Sequence[tuple[int, ...]]) -> int:
    return ELEMENT_BYTES * sum(math.prod(shape) for shape in parameter_shapes)


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
    side = math.isqrt(num_parameters)
    rest = num_parameters - side * side
    shapes: list[tuple[int, ...]] = [(side, side), (rest,)] if rest else [(side, side)]
    payload = None
    with contextlib.suppress(ConfigError, ValueError):  # e.g. pairs among an odd number of nodes
        payload = max(traffic_of(method, shapes).payload_bytes_per_rank, default=0.0)
    return NamedTraffic(
        algorithm=method.algorithm.name,
        collective=method.collective.name,
        codec="+".join(component.name for component in method.compression),
        num_nodes=method.nodes,
        payload_bytes_per_rank=payload,
    )
