"""What a handle does for a loop with uneven batches: ``join``, and the steps of a rank that has no more data."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bwbench.base import registry
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractRunning
from bwbench.training.library.groups import ScriptGroups
from bwbench.training.library.method import Method
from bwbench.training.library.moment import Moment
from bwbench.training.library.uneven import UnevenLoop


class AbstractUnevenSteps(abc.ABC):
    """The part of a handle that knows of uneven batches. The handle itself has what a step consists of."""

    method: Method
    world_size: int
    _model: nn.Module
    _optimizer: torch.optim.Optimizer
    _parameters: Sequence[nn.Parameter]
    _running: AbstractRunning
    _groups: ScriptGroups
    _plain_step: Callable[..., Any]
    _moment: Moment
    _closed: bool
    _averaging: bool
    _owes_step: bool
    _uneven: UnevenLoop | None

    @contextmanager
    def join(
        self, *, divide_by_initial_world_size: bool = True, throw_on_early_termination: bool = False
    ) -> Iterator[None]:
        """Around a loop for which ranks may have different numbers of batches, or none; all ranks enter it.

        A rank whose loop has ended takes part in the steps of the others until all have ended: with gradients of zero,
        and with the parameters that it has where a method leaves gradients local. After an error nobody is waited for.

        Args:
            divide_by_initial_world_size: gradients are means over all ranks, those without data counted as zeros; False
                takes the mean over those that have data.
            throw_on_early_termination: as soon as one rank has no more data, RuntimeError on all of them.
        """
        if self._uneven is not None or self._moment not in (Moment.BETWEEN, Moment.BEGUN):
            raise RuntimeError("handle.join() begins between two steps, and not inside of another one")
        if self.world_size == 1 or self._closed:
            yield
            return
        if not (divide_by_initial_world_size or self._replicas_stay_equal):
            raise ConfigError(
                f"join(divide_by_initial_world_size=False) is for methods that average gradients in every step, and "
                f"{self.method.algorithm.name!r} averages parameters, those of ranks without data too; leave it out"
            )
        self._uneven = UnevenLoop(
            self._groups.control,
            self._optimizer,
            self._parameters,
            divides_by_all=divide_by_initial_world_size,
            throws=throw_on_early_termination,
        )
        try:
            yield
            if not self._closed:
                self._outlast(self._uneven)
        finally:
            self._uneven = None

    def _step_is_due(self) -> None:
        if self._uneven is not None:
            # The others may wait for what is owed, and it can be paid only when the backward pass is over.
            self._uneven.step_is_due(may_wait=not self._owes_step)

    def _outlast(self, loop: UnevenLoop) -> None:
        """Take part in the steps of the ranks that still have data, until none has."""
        self._check_backward()
        self._skip()
        self._pay_step()
        while True:
            self._running.stand_by()
            begun = loop.meet_without_data(begun=self._moment is Moment.BEGUN)
            if not loop.trainers:
                break
            self._step_without_data(loop)
        if begun:  # a rank has gradients of an unfinished step, whose begin may wait for the others
            self._wake_up()
            self._begin_step(None)
        if loop.uneven and self._replicas_stay_equal:
            loop.make_equal(self._model)

    def _step_without_data(self, loop: UnevenLoop) -> None:
        """One step with what was accumulated for it, which is nothing but in the first."""
        if self._moment is Moment.BETWEEN:
            self._zero_grad(set_to_none=True)
        self._average()
        if not self._averaging:
            self._update(do_nothing)
        elif loop.hear():
            self._update(self._plain_step)
        else:
            self._skip()
        self._moment = Moment.BETWEEN

    @property
    def _replicas_stay_equal(self) -> bool:
        algorithm = registry.ALGORITHMS.load(self.method.algorithm.name)
        return bool(algorithm.replicas_equal == "after every step")

    @abc.abstractmethod
    def _average(self) -> None:
        """Make the gradients those to step with, without a backward pass."""

    @abc.abstractmethod
    def _update(self, step: Callable[[], object]) -> None:
        """The method's update, with ``step`` for the optimizer's, and what follows it."""

    @abc.abstractmethod
    def _skip(self) -> None:
        """Gradients that were there are not stepped with."""

    @abc.abstractmethod
    def _pay_step(self) -> None:
        """Take part in what follows an update that this rank has skipped."""

    @abc.abstractmethod
    def _zero_grad(self, set_to_none: bool) -> None:  # noqa: FBT001 (torch's)
        """As the optimizer's."""

    @abc.abstractmethod
    def _begin_step(self, first: nn.Parameter | None) -> None:
        """Begin a step, unless one has begun."""

    @abc.abstractmethod
    def _wake_up(self) -> None:
        """Go on after ``drain``."""

    @abc.abstractmethod
    def _check_backward(self) -> None:
        """Raise RuntimeError where a backward pass has failed."""


def do_nothing() -> None:
    """An optimizer's step that is skipped."""
