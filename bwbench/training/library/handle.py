"""What ``distribute`` returns: the state of a training loop that is the user's own."""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import MethodType, TracebackType
from typing import Any

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractRunning
from bwbench.methods.memory import SavedMethod, load_saved_state, saved_state
from bwbench.training.library.groups import ScriptGroups
from bwbench.training.library.method import Method
from bwbench.training.library.replicas import HostCopies
from bwbench.training.library.user_steps import UserSteps

_TAKEN: set[int] = set()  # ids of the optimizers and parameters that open handles hold


class Distributed:
    """A model and an optimizer whose ``backward``, ``step`` and ``zero_grad`` keep this rank in step with its peers.

    All ranks take the same number of optimizer steps, and call ``drain``, ``state_dict`` and ``close`` at the same
    point. For one thread.

    Attributes:
        method: what was asked for, resolved.
        rank, world_size: of this process, among those that train together.
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
        self._taken = taken
        self._optimizer = optimizer
        self._closed = False
        self._steps = UserSteps(optimizer, parameters)

    def attach(
        self, running: AbstractRunning, groups: ScriptGroups, host: HostCopies | None, undo: Callable[[], None]
    ) -> None:
        """Take charge of the optimizer. For ``distribute`` alone, once the method works on the model.

        Args:
            undo: called on close.
        """
        self._running, self._groups, self._undo = running, groups, undo
        self.rank, self.world_size = groups.rank, groups.size
        self._steps.lead(running, host)
        plain_step, plain_zero_grad, steps = self._optimizer.step, self._optimizer.zero_grad, self._steps

        # Functions bound to the optimizer, and with the attributes of what they replace: schedulers look for both.
        @functools.wraps(plain_step)
        def step(optimizer: torch.optim.Optimizer, closure: Any = None, **options: Any) -> Any:
            return plain_step(closure, **options) if self._closed else steps.step(closure, options)

        @functools.wraps(plain_zero_grad)
        def zero_grad(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 (torch's)
            if self._closed:
                plain_zero_grad(set_to_none)
            else:
                steps.zero_grad()

        self._optimizer.step = MethodType(step, self._optimizer)  # type: ignore[method-assign]
        self._optimizer.zero_grad = MethodType(zero_grad, self._optimizer)  # type: ignore[method-assign]
        atexit.register(self._close_at_exit)

    def __enter__(self) -> Distributed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(together=error is None)

    @property
    def payload_bytes(self) -> int:
        """Sent by this rank so far, as the codecs count it; without headers, as of the last step."""
        return self._steps.payload_bytes

    def no_sync(self) -> AbstractContextManager[None]:
        """Gradients of the passes inside are added up on this rank only: all micro-steps of a step but the last one.

        Put forward and backward pass inside.
        """
        return self._steps.alone()

    def drain(self) -> None:
        """Wait until nothing is on its way, and start nothing before the next step: before evaluations and saving."""
        self._steps.drain()

    def state_dict(self) -> SavedMethod:
        """Everything that this rank remembers besides model and optimizer: residuals, momenta, references. Drains.

        Each rank has its own: save it by rank, beside the model and the optimizer of that rank. Plain numbers, text and
        tensors, which ``torch.load(..., weights_only=True)`` reads.
        """
        self.drain()
        return saved_state(self._running, self.rank, self.world_size, self.method.to_json())

    def load_state_dict(self, state: SavedMethod) -> None:
        """Take back what ``state_dict`` gave; load the model and the optimizer first.

        Gradients are zero afterwards. Raises ValueError where the state is another rank's, or of another method or
        number of ranks.
        """
        self.drain()
        load_saved_state(self._running, state, self.rank, self.world_size, self.method.to_json())
        self._steps.restart()

    def close(self, together: bool = True) -> None:  # noqa: FBT001, FBT002 (as scripts call it)
        """End communication; the model stays as it is, and may be trained on without peers. Safe to call twice.

        Args:
            together: all ranks close now, and wait for one another; False after an error.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._close_at_exit)
        try:
            if together and not self._steps.in_backward:
                self.drain()
        finally:
            self._steps.stop_watching()
            self._running.close()
            self._undo()
            _TAKEN.difference_update(self._taken)
            self._groups.leave(together=together)

    def _close_at_exit(self) -> None:
        self.close(together=not hasattr(sys, "last_value"))  # after an error, nobody waits for the others
