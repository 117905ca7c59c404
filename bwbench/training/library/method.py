"""What a user asks for, resolved by the code that reads experiment files: equal words, equal messages."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError

from bwbench.base.component import Component, ComponentConfig
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.plain_data import JsonObject
from bwbench.experiment.config.combinations import MethodConfig, momentum_doubt, refusals
from bwbench.experiment.config.component_parsing import split_spelling
from bwbench.experiment.config.resolve import resolve_method

# Of torch's classes in experiment files; of Muon ours has the same name as its own.
_NAMES = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "Muon": "muon"}
_SWITCHES = ("momentum", "amsgrad", "maximize", "capturable", "differentiable")  # methods ask for these
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

    def to_json(self) -> JsonObject:
        """The three keys as they would stand in an experiment file, every default filled in."""
        return {
            "algorithm": self.algorithm.to_json(),
            "collective": self.collective.to_json(),
            "compression": [codec.to_json() for codec in self.compression],
        }


def choose(
    algorithm: Any, collective: Any, compression: Any, optimizer: torch.optim.Optimizer, num_ranks: int
) -> Method:
    """The components of a method in any spelling of an experiment file, for this optimizer with its options.

    Raises ConfigError with everything that is wrong: unknown names and options, combinations that make no sense, an
    optimizer that the method does not go with.
    """
    asked = {"algorithm": algorithm, "collective": _for_this_machine(collective), "compression": compression}
    by_group = [resolve_method(asked, max(num_ranks, _MIN_NODES), component) for component in components_of(optimizer)]
    resolved = by_group[0]
    config = resolved.config
    if num_ranks > 1 and config.nodes != num_ranks:
        raise ConfigError(
            f"algorithm {config.algorithm.name!r} trains on 1 node, and this is one of {num_ranks} processes; "
            f"start one process, or choose another algorithm"
        )
    said = [warning for group in by_group for warning in group.warnings]
    said += [f"{key!r} changes nothing here" for key in resolved.idle if key in asked]
    return Method(config.algorithm, config.collective, config.compression, resolved.notes, tuple(dict.fromkeys(said)))


class LaterOptions:
    """Notices options that a method does not go with, and that the optimizer gets while training.

    ``param_groups`` and ``load_state_dict`` can change them at any time. Rates, and how large a momentum is, may go up
    and down in every step; what counts is whether there is one.
    """

    def __init__(self, method: Method, optimizer: torch.optim.Optimizer, num_ranks: int) -> None:
        self._method, self._optimizer, self._num_ranks = method, optimizer, num_ranks
        self._accepted = self._switched_on()
        self._said = list(method.warnings)

    def check(self) -> None:
        """A few lookups a step. Raises ConfigError, or warns, where ``distribute`` would have done so."""
        if (found := self._switched_on()) == self._accepted:
            return
        method, nodes = self._method, max(self._num_ranks, _MIN_NODES)
        for component in components_of(self._optimizer):
            config = MethodConfig.model_construct(
                nodes=nodes,
                algorithm=method.algorithm,
                collective=method.collective,
                compression=method.compression,
                optimizer=component,
            )
            if findings := refusals(config):
                raise ConfigError([Problem(finding.message) for finding in findings])
            if (doubt := momentum_doubt(config)) is not None and doubt not in self._said:
                self._said.append(doubt)
                warnings.warn(doubt, stacklevel=2)
        self._accepted = found

    def _switched_on(self) -> list[list[str]]:
        return [[key for key in _SWITCHES if group.get(key)] for group in self._optimizer.param_groups]


def components_of(optimizer: torch.optim.Optimizer) -> list[Component]:
    """Each parameter group's optimizer as experiment files would name it: torch's own options are its options.

    An optimizer that they do not know has the name of its class, and so has one that steps in its own way.
    """
    step = inspect.unwrap(type(optimizer).step)  # torch wraps it at the first use
    kinds = (kind for kind in type(optimizer).__mro__ if "step" in vars(kind))
    names = (_NAMES.get(kind.__name__) for kind in kinds if inspect.unwrap(vars(kind)["step"]) is step)
    name = next((name for name in names if name is not None), type(optimizer).__name__)
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return [Component(name, OptimizerOptions(**group)) for group in groups]


class OptimizerOptions(ComponentConfig):
    """Options of an optimizer of torch's, by the names that torch gives them."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, protected_namespaces=())


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
