"""What a trial has in place of its parts where only the shapes of a model are real: the module, and an optimizer that
does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch

from bwbench.base import registry
from bwbench.base.step_time import SteadyStepTime
from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.real_size import skips_its_warm_up
from bwbench.experiment.config.step_trace import read_step_trace
from bwbench.training.models.shapes import ShapesConfig
from bwbench.training.models.shapes_module import ShapesModule


def shapes_module(config: CellConfig, rank: int) -> ShapesModule | None:
    """The module of a rank, shrunk as the cell is, whose steps take what they are declared to on average until each
    says its own; None where the model is one that learns.

    Its gradients have no memory where the method sends each before anybody looks at it.
    """
    model = config.shapes
    if model is None:
        return None
    algorithm = config.algorithm.build(registry.ALGORITHMS)
    as_sent = algorithm.takes_gradients_as_sent(config.collective.build(registry.COLLECTIVES))
    options = cast("ShapesConfig", config.model.options)
    module = ShapesModule(
        model, options, rank, shrink=config.shrink, accumulate=config.accumulate, in_memory=not as_sent
    )
    declared = config.compute.step_time_of(rank)
    if isinstance(declared, SteadyStepTime):
        module.begin_step(declared.mean_s)
    elif declared is not None:
        times_s = read_step_trace(declared).step_times_s
        module.begin_step(sum(times_s) / len(times_s))
    return module


def skipped_steps(config: CellConfig, model: torch.nn.Module) -> int:
    """How many steps at the begin are not taken at all."""
    if not skips_its_warm_up(config):
        return 0
    algorithm = config.algorithm.build(registry.ALGORITHMS)
    phases = algorithm.phases([tuple(parameter.shape) for parameter in model.parameters()])
    return sum(phase.num_steps or 0 for phase in phases)


class IdleOptimizer(torch.optim.SGD):
    """Leaves parameters as they are, which nobody looks at: writing them would take memory for each node."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(parameters, lr=1.0)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Nothing."""
