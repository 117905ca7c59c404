"""What ``distribute`` returns: the state of a training loop that is the user's own."""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MethodType
from typing import Any

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractRunning, ExchangeReport
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.memory import SavedMethod, State, load_saved_state, saved_state
from bwbench.training.library.gradients import HandleGradients
from bwbench.training.library.groups import ScriptGroups
from bwbench.training.library.host_copies import HostCopies
from bwbench.training.library.method import LaterOptions, Method
from bwbench.training.library.model_buffers import ModelBuffers
from bwbench.training.library.moment import Moment
from bwbench.training.library.parameter_memory import ParameterMemory
from bwbench.training.library.step_message import absent_named, heard, tell_step
from bwbench.training.library.uneven import UnevenLoop
from bwbench.training.library.uneven_steps import AbstractUnevenSteps, do_nothing

_NO_PASS = -1  # torch's number of the backward pass that is running, where none is
_TAKEN: set[int] = set()  # ids of the optimizers and parameters that open handles hold


class Distributed(AbstractUnevenSteps):
    """A model and an optimizer whose ``backward``, ``step`` and ``zero_grad`` keep this rank in step with its peers.

    All ranks take the same number of optimizer steps, but inside of ``join``, and call ``drain``, ``state_dict`` and
    ``close`` at the same point. For one thread.

    Attributes:
        method: what was asked for, resolved.
        rank, world_size: of this process, among those that train together.
        payload_bytes: sent by this rank so far, as the codecs count it; without headers, as of the last step.
        gradients: of the parameters that were trainable when the handle was made.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], method: Method
    ) -> None:
        taken = {id(optimizer), *map(id, parameters)}
        if taken & _TAKEN:
            raise ConfigError(
                "the model or the optimizer has been given to distribute() already; distribute a whole model with one "
                "optimizer (several parameter groups are fine), and close() the handle first to begin anew"
            )
        _TAKEN.update(taken)
        self.method = method
        self._taken = taken
        self._model, self._optimizer, self._parameters = model, optimizer, parameters
        self._plain_step: Callable[..., Any] = optimizer.step
        self._plain_zero_grad = optimizer.zero_grad
        self.gradients = HandleGradients(model, optimizer, parameters)
        self._memory = ParameterMemory(model, parameters)
        self.payload_bytes = 0
        self._num_begun = 0  # steps
        self._closed = False
        self._moment = Moment.BETWEEN
        self._clean = False  # the gradients are zero: ``zero_grad`` was called since the last step
        self._local = False  # inside ``no_sync``
        self._drained = True
        self._counts_as_used = True  # what a backward pass reaches, unless the method passes zeros of its own
        self._stepping: Callable[[], object] | None = None  # the optimizer's step, inside the method's update
        self._averaging = False  # the gradients of the present step are means over all ranks
        self._owes_step = False  # one that was skipped here, and in which the others may wait for this rank
        self._before_sending: State = {}  # what is remembered of sending, as it was when the step began
        self._sending: AbstractContextManager[None] | None = None
        self._uneven: UnevenLoop | None = None  # inside ``join``
        self._in_backward = False  # also: the pass ended with an error, so that the end was never heard of
        # Before anything else hooks into the parameters: hooks run in the order in which they were registered.
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._gradient_is_there, index))  # type: ignore[no-untyped-call]
            for index, parameter in enumerate(parameters)
        ]

    def attach(
        self,
        running: AbstractRunning,
        groups: ScriptGroups,
        host: HostCopies | None,
        buffers: ModelBuffers,
        undo: Callable[[], None],
    ) -> None:
        """Take charge of the optimizer. For ``distribute`` alone, once the method works on the model.

        Args:
            host: what the method works on in place of the parameters.
            buffers: of the model, agreed on with the parameters.
            undo: called on close.
        """
        self._running, self._groups, self._host, self._undo = running, groups, host, undo
        self._buffers, self._agreed = buffers, True
        self.rank, self.world_size = groups.data.rank(), groups.data.size()
        self.gradients.placed()
        self._options = LaterOptions(self.method, self._optimizer, self.world_size)
        self._memory.placed()

        # Functions bound to the optimizer, and with the attributes of what they replace: schedulers look for both.
        @functools.wraps(self._plain_step)
        def step(optimizer: torch.optim.Optimizer, closure: Any = None, **options: Any) -> Any:
            return self._plain_step(closure, **options) if self._closed else self._step(closure, options)

        @functools.wraps(self._plain_zero_grad)
        def zero_grad(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 (torch's)
            if self._closed:
                self._plain_zero_grad(set_to_none)
            else:
                self._zero_grad(set_to_none)

        self._optimizer.step = MethodType(step, self._optimizer)  # type: ignore[method-assign]
        self._optimizer.zero_grad = MethodType(zero_grad, self._optimizer)  # type: ignore[method-assign]
        atexit.register(self._close_at_exit)

    def let_go(self) -> None:
        """Leave model and optimizer to others. For ``distribute`` alone, where it ends with an error."""
        for hook in self._hooks:
            hook.remove()
        _TAKEN.difference_update(self._taken)

    def __enter__(self) -> Distributed:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
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
            with self._running.micro_step(last=False):
                yield
        finally:
            self._local = False

    @property
    def nonfinite(self) -> str | None:
        """Which gradients of the last step were nan or infinite, and on which ranks; None where all were finite."""
        return self.gradients.nonfinite

    def drain(self) -> None:
        """Wait until nothing is on its way, and start nothing before the next step: before evaluations and saving."""
        if self._uneven is not None and not self._closed:
            raise RuntimeError("inside of handle.join() ranks are not all at the same point: drain and save behind it")
        self._set_aside()
        if not self._drained:
            self.payload_bytes += self._running.drain()
            self._drained = True
            if not self._agreed:
                self._agree()

    def state_dict(self) -> SavedMethod:
        """Everything that this rank remembers besides model and optimizer: residuals, momenta, references. Drains.

        Each rank has its own: save it by rank, beside the model and the optimizer of that rank. Plain numbers, text and
        tensors, which ``torch.load(..., weights_only=True)`` reads.
        """
        self.drain()
        return saved_state(self._running, self.rank, self.world_size, self.method.to_json())

    def load_state_dict(self, state: SavedMethod) -> None:
        """Take back what ``state_dict`` gave; load the model and the optimizer first.

        Gradients are zero or None afterwards. Raises ValueError where the state is another rank's, or of another method
        or number of ranks.
        """
        self.drain()
        load_saved_state(self._running, _on_host(state), self.rank, self.world_size, self.method.to_json())
        self._plain_zero_grad(set_to_none=False)
        self.gradients.cleared()
        self._moment, self._clean = Moment.BETWEEN, True

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
            if together and not self._in_backward:
                self.drain()
        finally:
            self.let_go()
            self._running.close()
            try:
                self._undo()
            finally:
                self._groups.leave(together=together)

    def _close_at_exit(self) -> None:
        self.close(together=not hasattr(sys, "last_value"))  # after an error, nobody waits for the others

    def _step(self, closure: Any, options: Mapping[str, object]) -> Any:
        """The optimizer's ``step``: the gradients first, then the method's update."""
        if self._stepping is not None:  # the algorithm's update calls the optimizer's step
            return self._stepping()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_backward()
        self._average()
        plain_step = functools.partial(self._plain_step, **options)
        if self._moment is Moment.SET_ASIDE and not self._averaging:
            plain_step()  # the method has had its turn
        elif _found_inf(self._optimizer):  # a GradScaler leaves it to a fused step to do nothing
            self._skip()
        else:
            if self._moment is Moment.SET_ASIDE:
                self._swap_memory()
            if self._uneven is not None and self._averaging:
                self._uneven.tell(stepping=True)
            self._update(plain_step)
        self._moment, self._clean = Moment.BETWEEN, False
        return loss

    def _average(self) -> None:
        """Gradients that no backward pass has averaged: zeros count as well, and the others wait for them."""
        if self._moment in (Moment.BETWEEN, Moment.BEGUN):
            self._step_is_due()
            self._wake_up()
            self._begin_step(None)
            # Zeros that are a mean use nothing; torch's own average of models asks for gradients, be they zero.
            self._counts_as_used = not self._running.averages_gradients
            try:
                self._running.pass_of_zeros()
            finally:
                self._counts_as_used = True
        if self._moment is Moment.BEGUN:
            self._finish()

    def _update(self, step: Callable[[], object]) -> None:
        """The method's update, with ``step`` for the optimizer's, and what follows it."""
        self._memory.take_back()
        self._stepping = step
        try:
            self._running.update()
            self._count(self._running.after_update())
        finally:
            self._stepping = None
        self._agreed = False
        if self._running.agrees_now:
            self._agree()

    def _zero_grad(self, set_to_none: bool) -> None:  # noqa: FBT001 (torch's)
        """As torch does it; a step begins with zeros in its buckets. One whose gradients were there is skipped."""
        self._check_backward()
        self._skip()
        self._plain_zero_grad(set_to_none=set_to_none)
        self._clean = True
        if set_to_none:
            self.gradients.cleared()

    def _skip(self) -> None:
        """Gradients that were there are not stepped with.

        Where they were averaged, all ranks skip, and what was sent counts as not sent. Otherwise the others do not know
        of it: this rank takes part in what follows an update, though not before the next backward pass is over, for
        a forward pass may be between.
        """
        if self._moment is Moment.AVERAGED:
            if self._averaging:
                self._running.restore_sending(self._before_sending)
                if self._uneven is not None:
                    self._uneven.tell(stepping=False)
            else:
                self._owes_step = True
        if self._moment in (Moment.AVERAGED, Moment.SET_ASIDE):
            self._moment = Moment.BETWEEN

    def _set_aside(self) -> None:
        """Take a step that has not been taken so far for skipped; nothing of it is owed to the others from now on."""
        self._pay_step()
        if self._moment is Moment.AVERAGED:
            if self._averaging:
                self._swap_memory()
            else:
                self._update(do_nothing)
            self._moment = Moment.SET_ASIDE

    def _swap_memory(self) -> None:
        now = self._running.sending_state()
        self._running.restore_sending(self._before_sending)
        self._before_sending = now

    def _pay_step(self) -> None:
        if self._owes_step:
            self._owes_step = False
            self._update(do_nothing)

    def _gradient_is_there(self, index: int, parameter: torch.Tensor) -> None:
        """Notice begin and end of a backward pass, inside of it: what is raised there is raised by ``backward()``."""
        if self._counts_as_used:
            self.gradients.used.add(index)
        if self._in_backward:
            return
        self._in_backward = True
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)  # as torch's DDP and FSDP do it
        assert isinstance(parameter, nn.Parameter)
        try:
            self._backward_begins(parameter)
        except BaseException:  # refused: this pass has changed nothing but this rank's own gradients
            self._in_backward = False
            raise

    def _backward_begins(self, first: nn.Parameter) -> None:
        if self._moment in (Moment.AVERAGED, Moment.SET_ASIDE):
            if self.gradients.cleared_by_hand(first):
                if not self._averaging or self._before_sending:
                    self._memory.check_unchanged()
                self._skip()
        if self._moment in (Moment.AVERAGED, Moment.SET_ASIDE):
            raise RuntimeError(
                "a second backward pass after the gradients were averaged, and before optimizer.step(): put all but "
                "the last one of a step inside 'with handle.no_sync():', throw gradients away with "
                "optimizer.zero_grad(), and use checkpoint(..., use_reentrant=False) to recompute activations"
            )
        if not self._local:
            self._step_is_due()
        self._wake_up()
        self._begin_step(first)
        if not self._local:
            self._sending = self._running.micro_step(last=True)
            self._sending.__enter__()

    def _backward_ends(self) -> None:
        if self._sending is None:
            self._in_backward = False
            return
        self._sending.__exit__(None, None, None)
        self._sending = None
        if isinstance(self._running.module, nn.parallel.DistributedDataParallel):  # has its own end, queued after ours
            torch.autograd.Variable._execution_engine.queue_callback(self._gradients_are_there)
        else:
            self._gradients_are_there()

    def _gradients_are_there(self) -> None:
        self._in_backward = False
        self._finish()

    def _wake_up(self) -> None:
        if self._drained:
            self._running.resume()
            self._drained = False

    @torch.no_grad()
    def _begin_step(self, first: nn.Parameter | None) -> None:
        """Tell the algorithm, whatever gradients there are already being kept.

        That happens at the first gradient, not in ``zero_grad``: between two steps nothing is on its way, and the user
        may load a checkpoint.

        Args:
            first: the parameter that has just got its gradient.
        """
        if self._moment is not Moment.BETWEEN:
            return
        self.gradients.check()
        self._options.check()
        self._memory.take_back()
        candidates = self.gradients.brought(first) if self._clean else self._parameters
        kept = [(p, p.grad.clone()) for p in candidates if p.grad is not None]
        self._num_begun += 1
        self._before_sending = self._running.sending_state() if self._running.averages_gradients else {}
        self._running.begin_step()
        for parameter, gradient in kept:
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = gradient
            else:
                parameter.grad.copy_(gradient.to_dense())
        self.gradients.placed()
        self._moment = Moment.BEGUN

    @torch.no_grad()
    def _finish(self) -> None:
        """Wait until the gradients are those to step with."""
        if self._host is not None:
            self._host.fetch()
        self._pay_step()
        if self._uneven is not None:
            self._running.stand_by()
            self._uneven.meet()
        self._averaging = self._running.averages_gradients
        self._running.gradients_ready()
        seen = self.gradients.seen()
        telling = tell_step(self._groups.control, seen) if self._averaging else None
        with absent_named(telling, self.rank, self._num_begun):
            self._count(self._running.finish())
            everywhere = heard(telling, seen.numel()) if telling is not None else seen.unsqueeze(0)
        if self._host is not None:
            self._host.give_back()
        ranks = range(self.world_size) if telling is not None else [self.rank]
        self.gradients.settle(everywhere, ranks, self._num_begun, self._running)
        if self._averaging and self._uneven is not None:
            self._uneven.scale_gradients()
        self._memory.remember()
        self._moment = Moment.AVERAGED

    def _check_backward(self) -> None:
        if self._in_backward and torch._C._current_graph_task_id() != _NO_PASS:
            raise RuntimeError(
                "optimizer.step() and zero_grad() inside of the backward pass, as in a hook, where gradients are not "
                "averaged yet; call them after backward(), with one optimizer for all parameters"
            )
        if self._in_backward:
            raise RuntimeError(
                "the last backward pass ended with an error, so that this rank is no longer in step with its peers; "
                "go on from a checkpoint"
            )

    def _agree(self) -> None:
        """All ranks are here: they make their buffers equal, and hear of gradients that were not finite elsewhere."""
        if not self._averaging:
            untold = self.gradients.untold()
            everywhere = heard(tell_step(self._groups.control, untold), untold.numel())
            self.gradients.hear(everywhere, self.rank, self._num_begun)
        ranks = range(self.world_size) if self._uneven is None else self._uneven.trainers
        self.payload_bytes += self._buffers.agree(ranks)
        self._agreed = True

    def _count(self, report: ExchangeReport | None) -> None:
        if report is not None:
            self.payload_bytes += report.payload_bytes


def _on_host(state: SavedMethod) -> SavedMethod:
    """The same, wherever ``torch.load(..., map_location=...)`` has put it: what is wanted elsewhere is copied there."""
    return {**state, "algorithm": {key: moved_to_host(value) for key, value in state["algorithm"].items()}}


def _found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a ``GradScaler`` has left word for a fused step that it has nothing finite to step with."""
    found: torch.Tensor | None = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
