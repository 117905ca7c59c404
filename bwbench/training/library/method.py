"""What a user asks for, resolved by the code that reads experiment files: equal words, equal messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.registry import ALGORITHMS, OPTIMIZERS
from bwbench.experiment.config.component_parsing import split_spelling
from bwbench.experiment.config.resolve import resolve

_MIN_NODES = 2  # a script that is tried out in one process names the method that it will use on several


@dataclass(frozen=True)
class Method:
    """A point on the three axes.

    Attributes:
        notes: what was decided for the user, and why.
        warnings: what the user may not have meant.
    """

    algorithm: Component
    collective: Component
    compression: tuple[Component, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The three keys as they would stand in an experiment file, every default filled in."""
        return {
            "algorithm": self.algorithm.to_json(),
            "collective": self.collective.to_json(),
            "compression": [codec.to_json() for codec in self.compression],
        }


def choose(
    algorithm: Any, collective: Any, compression: Any, optimizer: torch.optim.Optimizer, num_ranks: int
) -> Method:
    """The components of a method in any spelling of an experiment file.

    Raises ConfigError with everything that is wrong: unknown names and options, combinations that make no sense, an
    optimizer that the algorithm's update rule does not know.
    """
    raw = {
        "algorithm": algorithm,
        "collective": _for_this_machine(collective),
        "compression": compression,
        "nodes": max(num_ranks, _MIN_NODES),
        "link": "unshaped",
        "model": "logistic",  # this and the data set have to be there, and have no influence
        "dataset": "synthetic",
        "optimizer": _name_of(optimizer) or "sgd",
    }
    resolved = resolve({key: value for key, value in raw.items() if value is not None}, (), Path.cwd(), combine=True)
    if resolved.config is None:
        raise ConfigError([Problem(finding.message) for finding in resolved.findings])
    config = resolved.config
    if num_ranks > 1 and config.nodes != num_ranks:
        raise ConfigError(
            f"algorithm {config.algorithm.name!r} trains on 1 node, and this is one of {num_ranks} processes; "
            f"start one process, or choose another algorithm"
        )
    known = ALGORITHMS.load(config.algorithm.name).optimizers
    if known and _name_of(optimizer) not in known:
        raise ConfigError(
            f"algorithm {config.algorithm.name!r} has its own update rule, which belongs to {' or '.join(known)}; "
            f"the optimizer is a {type(optimizer).__name__}"
        )
    warnings = [*resolved.warnings, *(f"{key!r} changes nothing here" for key in resolved.idle if key in _ASKED)]
    return Method(config.algorithm, config.collective, config.compression, resolved.notes, tuple(warnings))


_ASKED = ("collective", "compression")


def _for_this_machine(collective: Any) -> Any:
    """``hierarchical`` without ``workers_per_host``: the processes that torchrun has started on this machine."""
    try:
        spelling = split_spelling(collective, "collective")
    except ValidationError:  # None, or a mistake that is said later on
        return collective
    workers = os.environ.get("LOCAL_WORLD_SIZE", "")
    written = isinstance(collective, Mapping) and isinstance(collective.get("hierarchical"), int)  # {hierarchical: 4}
    if written or spelling.name != "hierarchical" or "workers_per_host" in spelling.options:
        return collective
    if not workers.isdigit() or int(workers) < 2:
        return collective
    return {"hierarchical": {**spelling.options, "workers_per_host": int(workers)}}


def _name_of(optimizer: torch.optim.Optimizer) -> str | None:
    """The name under which experiment files know this kind of optimizer; None for any other."""
    names = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw"}
    name = names.get(type(optimizer).__name__)
    return name if name in OPTIMIZERS else None
