"""What ``distribute`` returns: the state of a training loop that is the user's own."""

from __future__ import annotations

import atexit
import enum
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import MethodType, TracebackType
from typing import Any

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm, ExchangeReport
from bwbench.methods.algorithms.saved_state import load_saved_state, saved_state
from bwbench.training.library.backward_watch import BackwardWatch
from bwbench.training.library.groups import Groups
from bwbench.training.library.host_copies import HostCopies
from bwbench.training.library.method import Method

_TAKEN: set[int] = set()  # ids of the optimizers and parameters that open handles hold


class Phase(enum.Enum):
    """Where the loop is within an optimizer step."""

    BETWEEN = "between two steps"
    BEGUN = "gradients are being collected"
    AVERAGED = "the gradients are those to step with"


class Distributed:
    """A model and an optimizer whose ``backward``, ``step`` and ``zero_grad`` keep this rank in step with its peers.

    All ranks take the same number of optimizer steps, and call ``drain``, ``state_dict`` and ``close`` at the same
    point. For one thread.

    Attributes:
        method: what was asked for, resolved.
        rank, world_size: of this process, among those that train together.
        payload_bytes: sent by this rank so far, as the codecs count it; without headers, as of the last step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], method: Method) -> None:
        taken = {id(optimizer), *map(id, parameters)}
        if taken & _TAKEN:
            raise ConfigError(
                "the model or the optimizer has been given to distribute() already; distribute a whole model with one "
                "optimizer (several parameter groups are fine), and close() the handle first to begin anew"
            )
        _TAKEN.update(taken)
        self.method = method
        self.payload_bytes = 0
        self._taken = taken
        self._optimizer, self._parameters = optimizer, parameters
        self._phase = Phase.BETWEEN
        self._clean = False  # the gradients are zero: ``zero_grad`` was called since the last step
        self._local = False  # inside ``no_sync``
        self._drained = True
        self._stepping: dict[str, Any] | None = None
        self._closed = False
        self._in_backward: AbstractContextManager[None] | None = None
        self._watch = BackwardWatch(parameters, self._backward_begins, self._backward_ends)

    def attach(
        self,
        algorithm: AbstractAlgorithm,
        groups: Groups,
        host: HostCopies | None,
        undo: Callable[[], None],
    ) -> None:
        """Take charge of the optimizer. For ``distribute`` alone, once the algorithm has got the model.

        Args:
            undo: called on close.
        """
        self._algorithm, self._groups, self._host, self._undo = algorithm, groups, host, undo
        self.rank, self.world_size = groups.rank, groups.size
        self._plain_step, self._plain_zero_grad = self._optimizer.step, self._optimizer.zero_grad
        own_step, own_zero_grad = self._step, self._zero_grad

        # Functions bound to the optimizer, and with the attributes of what they replace: schedulers look for both.
        @functools.wraps(self._plain_step)
        def step(optimizer: torch.optim.Optimizer, closure: Any = None, **options: Any) -> Any:
            return own_step(closure, options)

        @functools.wraps(self._plain_zero_grad)
        def zero_grad(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:
            own_zero_grad(set_to_none)

        self._optimizer.step = MethodType(step, self._optimizer)  # type: ignore[method-assign]
        self._optimizer.zero_grad = MethodType(zero_grad, self._optimizer)  # type: ignore[method-assign]
        atexit.register(self._close_at_exit)

    def __enter__(self) -> Distributed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(together=error is None)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of the passes inside are added up on this rank only: all micro-steps of a step but the last one.

        Put forward and backward pass inside.
        """
        if self._local:
            yield
            return
        self._wake_up()
        self._begin_step(None)
        self._local = True
        try:
            with self._algorithm.micro_step(last=False):
                yield
        finally:
            self._local = False

    def drain(self) -> None:
        """Wait until nothing is on its way, and start nothing before the next step: before evaluations and saving."""
        if not self._drained:
            self.payload_bytes += self._algorithm.drain()
            self._drained = True

    def state_dict(self) -> dict[str, Any]:
        """Everything that this rank remembers besides model and optimizer: residuals, momenta, references. Drains.

        Each rank has its own: save it by rank, beside the model and the optimizer of that rank. Plain numbers, text and
        tensors, which ``torch.load(..., weights_only=True)`` reads.
        """
        self.drain()
        return saved_state(self._algorithm, self.rank, self.world_size, self.method.to_json())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what ``state_dict`` gave; load the model and the optimizer first.

        Gradients are zero afterwards. Raises ValueError where the state is another rank's, or of another method or
        number of ranks.
        """
        self.drain()
        load_saved_state(self._algorithm, state, self.rank, self.world_size, self.method.to_json())
        self._plain_zero_grad(set_to_none=False)
        self._phase, self._clean = Phase.BETWEEN, True

    def close(self, together: bool = True) -> None:
        """End communication; the model stays as it is, and may be trained on without peers. Safe to call twice.

        Args:
            together: all ranks close now, and wait for one another; False after an error.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._close_at_exit)
        try:
            if together and not self._watch.unfinished:
                self.drain()
        finally:
            self._watch.close()
            self._algorithm.close()
            self._undo()
            _TAKEN.difference_update(self._taken)
            self._groups.leave(together)

    def _backward_begins(self, first: nn.Parameter) -> None:
        if self._phase is Phase.AVERAGED:
            raise RuntimeError(
                "a second backward pass after the gradients were averaged, and before optimizer.step(): put all but "
                "the last one of a step inside 'with handle.no_sync():', throw gradients away with "
                "optimizer.zero_grad(), and use checkpoint(..., use_reentrant=False) to recompute activations"
            )
        self._wake_up()
        self._begin_step(first)
        if not self._local:
            self._in_backward = self._algorithm.micro_step(last=True)
            self._in_backward.__enter__()

    def _backward_ends(self) -> None:
        if self._in_backward is not None:
            self._in_backward.__exit__(None, None, None)
            self._in_backward = None
            self._finish()

    def _wake_up(self) -> None:
        if self._drained:
            self._algorithm.resume()
            self._drained = False

    @torch.no_grad()
    def _begin_step(self, first: nn.Parameter | None) -> None:
        """Tell the algorithm, whatever gradients there are already being kept.

        That happens at the first gradient, not in ``zero_grad``: between two steps nothing is on its way, and the user
        may load a checkpoint.

        Args:
            first: the parameter that has just got its gradient.
        """
        if self._phase is not Phase.BETWEEN:
            return
        candidates = [p for p in self._parameters if p is first] if self._clean else self._parameters
        kept = [(p, p.grad.clone()) for p in candidates if p.grad is not None]
        self._algorithm.clear_gradients()
        for parameter, gradient in kept:
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.copy_(gradient)
        self._phase = Phase.BEGUN

    @torch.no_grad()
    def _finish(self) -> None:
        """Wait until the gradients are those to step with."""
        if self._host is not None:
            self._host.fetch()
        self._algorithm.check_gradients()
        self._count(self._algorithm.finish())
        if self._host is not None:
            self._host.give_back()
        self._phase = Phase.AVERAGED

    def _step(self, closure: Any, options: dict[str, Any]) -> Any:
        if self._closed:
            return self._plain_step(closure, **options)
        if self._stepping is not None:  # the algorithm's update calls the optimizer's step
            return self._plain_step(**self._stepping)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_backward()
        self._wake_up()
        self._begin_step(None)  # no parameter had a gradient: zeros count as well, and the others wait for them
        if self._phase is Phase.BEGUN:
            self._finish()
        self._stepping = options
        try:
            self._algorithm.update()
            self._count(self._algorithm.after_update())
        finally:
            self._stepping = None
        self._phase, self._clean = Phase.BETWEEN, False
        return loss

    def _zero_grad(self, set_to_none: bool) -> None:
        """Zero in place, because gradients are views into buckets; a step whose gradients were averaged is skipped."""
        if self._closed:
            self._plain_zero_grad(set_to_none)
            return
        self._check_backward()
        self._plain_zero_grad(set_to_none=False)
        self._clean = True
        if self._phase is Phase.AVERAGED:
            self._phase = Phase.BETWEEN

    def _check_backward(self) -> None:
        if self._watch.unfinished:
            raise RuntimeError(
                "the last backward pass ended with an error, so that this rank is no longer in step with its peers; "
                "go on from a checkpoint"
            )

    def _count(self, report: ExchangeReport | None) -> None:
        if report is not None:
            self.payload_bytes += report.payload_bytes

    def _close_at_exit(self) -> None:
        self.close(together=not hasattr(sys, "last_value"))  # after an error, nobody waits for the others
