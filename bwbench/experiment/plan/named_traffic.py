"""What a named way of training sends on a model of a given size, without any experiment around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.cell import CellConfig
from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.plan.estimate import traffic_of


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
    asked = {"algorithm": name, "nodes": num_nodes, "link": "unshaped", "model": "logistic", "limit": {"samples": 1}}
    resolved = resolve(asked, (), Path.cwd(), combine=False)
    if resolved.config is None:
        raise ConfigError(f"{name}: {'; '.join(finding.message for finding in resolved.findings)}")
    config = resolved.config
    return NamedTraffic(
        algorithm=config.algorithm.name,
        collective=config.collective.name,
        codec="+".join(component.name for component in config.compression),
        num_nodes=config.nodes,
        payload_bytes_per_rank=_payload(config, num_parameters),
    )


def shapes_of(num_parameters: int) -> list[tuple[int, ...]]:
    """A square matrix and what is left over as a vector."""
    side = math.isqrt(num_parameters)
    rest = num_parameters - side * side
    return [(side, side), (rest,)] if rest else [(side, side)]


def _payload(config: CellConfig, num_parameters: int) -> float | None:
    try:
        return max(traffic_of(config, shapes_of(num_parameters)).payload_bytes_per_rank, default=0.0)
    except (ConfigError, ValueError):  # e.g. pairs among an odd number of nodes
        return None
