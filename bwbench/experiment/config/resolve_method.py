"""A method as somebody names it, resolved for a number of nodes and an optimizer, without any experiment around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell_config import Chain
from bwbench.experiment.config.combinations import method_refusals, remarks
from bwbench.experiment.config.component_parsing import ComponentOf
from bwbench.experiment.config.method_names import expand_preset
from bwbench.experiment.config.resolve import settle_collective, unknown_name, validated, where_written


class MethodConfig(BaseModel):
    """The keys of an experiment file that name a method, and the number of nodes; no presets, no ``auto``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(ge=1)
    algorithm: Annotated[Component, ComponentOf(ALGORITHMS)]
    collective: Annotated[Component, ComponentOf(COLLECTIVES)]
    compression: Chain


@dataclass(frozen=True)
class ResolvedMethod:
    """A point on the three axes.

    Attributes:
        nodes: as many as asked, 1 for what trains alone.
        idle: keys that were given and change nothing here.
        warnings: what may not have been meant.
        notes: what was decided, and why.
    """

    nodes: int
    algorithm: Component
    collective: Component
    compression: tuple[Component, ...]
    idle: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Point:
    """What the checks of combinations look at."""

    nodes: int
    algorithm: Component
    collective: Component
    compression: tuple[Component, ...]
    optimizer: Component


def resolve_method(asked: Mapping[str, Json], num_nodes: int, optimizer: Component | None = None) -> ResolvedMethod:
    """The components that ``asked`` names, in the words of experiment files and with their messages. Imports no torch.

    Args:
        asked: ``algorithm``, ``collective`` and ``compression`` in any spelling; what is None or missing is chosen.
        optimizer: the one that is there, under the name and with the options that experiment files know. Without one
            combinations are not checked, each component alone is.

    Raises ConfigError with everything that is wrong: unknown names and options, combinations that make no sense, an
    optimizer that the method does not go with.
    """
    expanded = expand_preset({**asked, "nodes": num_nodes})
    content: JsonObject = {key: value for key, value in expanded.content.items() if key in MethodConfig.model_fields}
    findings = unknown_name(expanded, asked.get("algorithm"))
    notes = settle_collective(content, may_fail=False)
    refused = {finding.loc[0] for finding in findings}
    config, errors = validated(content, MethodConfig)
    findings += [where_written(error, expanded) for error in errors if not refused & set(error.loc[:1])]
    if config is not None and not findings and optimizer is not None:
        point = _Point(config.nodes, config.algorithm, config.collective, config.compression, optimizer)
        findings += method_refusals(point)
        notes += [] if findings else remarks(point)
    if config is None or findings:
        raise ConfigError([Problem(finding.message) for finding in findings])
    return ResolvedMethod(
        nodes=config.nodes,
        algorithm=config.algorithm,
        collective=config.collective,
        compression=config.compression,
        idle=expanded.idle,
        warnings=expanded.warnings,
        notes=tuple(notes),
    )
