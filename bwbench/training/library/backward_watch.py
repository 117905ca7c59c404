"""Noticing where a backward pass begins and ends, in a training loop that calls ``loss.backward()`` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn


class BackwardWatch:
    """Calls ``begins`` at the first gradient of a backward pass and ``ends`` when it is over, both inside of it.

    Make it before anything else hooks into the parameters: hooks run in the order in which they were registered. What
    ``begins`` and ``ends`` raise is raised by ``backward()``.

    Args:
        parameters: those whose gradients count.
        begins: gets the parameter that has its gradient already.
        ends: gets nothing; all gradients of this pass are there.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], begins: Callable[[nn.Parameter], None], ends: Callable[[], None]
    ) -> None:
        self._begins, self._ends = begins, ends
        self.unfinished = False  # also: the pass ended with an error, so that the end was never heard of
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._gradient)  # type: ignore[no-untyped-call]
            for parameter in parameters
        ]

    def close(self) -> None:
        """Notice nothing any more. Safe to call twice."""
        for hook in self._hooks:
            hook.remove()

    def _gradient(self, parameter: torch.Tensor) -> None:
        if self.unfinished:
            return
        self.unfinished = True
        torch.autograd.Variable._execution_engine.queue_callback(self._over)  # as torch's DDP and FSDP do it
        assert isinstance(parameter, nn.Parameter)
        try:
            self._begins(parameter)
        except BaseException:  # refused: this pass has changed nothing but this rank's own gradients
            self.unfinished = False
            raise

    def _over(self) -> None:
        self.unfinished = False
        self._ends()
