"""Ranks with different numbers of batches: who still has data, and what the others need to know to keep in step.

A rank whose loop has ended takes part in the steps of those that go on: with zeros, and without data of its own. Two
messages a step are enough. When a step is due all ranks tell each other whether they have data for it (8 bytes). The
first of those that have tells those that have not what its user made of the gradients: whether it steps at all, with
which learning rates, and how large each gradient was after clipping and unscaling (8 bytes a parameter).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives.telling import Telling, tell_all
from bwbench.methods.collectives.transport import Members
from bwbench.training.loop.replica import digest

_DATA_TAG, _STEP_TAG = (1 << 21) + 1, (1 << 21) + 2  # beyond those of buckets, votes and the message of a step
_NO_DATA, _BEGUN, _HAS_DATA = range(3)


class UnevenLoop:
    """One loop inside of ``handle.join()``, on one rank.

    Args:
        group: of the control path.
        divides_by_all: gradients are means over all ranks, not only over those that have data.
        throws: the first rank without data ends the loop on all ranks.

    Attributes:
        trainers: ranks that have data for the step that is due, or was due last.
        uneven: some rank had data when another one had none.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        *,
        divides_by_all: bool,
        throws: bool,
    ) -> None:
        self._group, self._optimizer, self._parameters = group, optimizer, parameters
        self._divides_by_all, self._throws = divides_by_all, throws
        self._rank, self._size = group.rank(), group.size()
        self._last_trainers = self.trainers = list(range(self._size))
        self._ended = False  # this rank has no more data
        self._due = False  # a step that this rank has announced
        self._telling: Telling | None = None  # the announcement, before the others are heard
        self.uneven = False

    def step_is_due(self, *, may_wait: bool) -> None:
        """This rank has data for the next step, and says so; ``meet`` hears what the others say.

        Raises RuntimeError, as long as nothing has been sent, where one rank without data is to end the loop.

        Args:
            may_wait: nobody waits for this rank before it comes to ``meet``.
        """
        if self._ended or self._due:
            return
        self._telling = self._say(_HAS_DATA)
        if self._throws and may_wait:
            self._hear()
        self._due = True

    def meet(self) -> None:
        """Hear who has data for the step that is due; raises RuntimeError as ``step_is_due``."""
        self._due = False
        self._hear()

    def meet_without_data(self, *, begun: bool) -> bool:
        """The same for a rank whose loop has ended. Returns whether any rank has begun a step.

        Args:
            begun: this rank has begun a step that it has not completed.
        """
        self._ended = True
        return self._hear_of_data(self._say(_BEGUN if begun else _NO_DATA))

    def scale_gradients(self) -> None:
        """Make means over all ranks those over the ranks that have data, where that is asked for."""
        if self._divides_by_all or len(self.trainers) == self._size:
            return
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(self._size / len(self.trainers))

    def tell(self, *, stepping: bool) -> None:
        """The step that was due is taken now, or skipped: those without data hear of it from the first that has."""
        if self._rank != self.trainers[0] or not self._others:
            return
        message = torch.tensor(
            [float(stepping), *_numbers(self._optimizer), *_norms(self._parameters)], dtype=torch.float64
        )
        for work in [self._group.send([message], rank, _STEP_TAG) for rank in self._others]:
            work.wait()

    def hear(self) -> bool:
        """Whether the others take the step: learning rates and gradients here are then as there."""
        numbers, norms = _numbers(self._optimizer), _norms(self._parameters)
        message = torch.empty(1 + len(numbers) + len(norms), dtype=torch.float64)
        self._group.recv([message], self.trainers[0], _STEP_TAG).wait()
        stepping, *told = message.tolist()
        if not stepping:
            return False
        _take_numbers(self._optimizer, iter(told))
        for parameter, own, theirs in zip(self._parameters, norms, told[len(numbers) :], strict=True):
            if parameter.grad is not None and own not in (0.0, theirs):
                parameter.grad.mul_(theirs / own)
        return True

    @torch.no_grad()
    def make_equal(self, model: nn.Module) -> None:
        """Give all ranks parameters, buffers and optimizer of one that trained to the end, each where they differ."""
        state = self._optimizer.state_dict()["state"]
        kept: list[list[torch.Tensor]] = [[*model.parameters()], [*model.buffers()], [*tensors_in(state)]]
        own = torch.frombuffer(bytearray(b"".join(digest(enumerate(part)) for part in kept)), dtype=torch.uint8)
        digests = tell_all(self._group, Members.all_of(self._group), own, _DATA_TAG).wait().view(self._size, 3, -1)
        differ = [not bool((digests[:, part] == digests[0, part]).all()) for part in range(3)]
        for tensor in [*(kept[0] if differ[0] else ()), *(kept[1] if differ[1] else ())]:
            if tensor.numel():
                host = moved_to_host(tensor)
                self._group.broadcast(host.reshape(-1).view(torch.uint8), self._last_trainers[0]).wait()
                tensor.copy_(host)
        if differ[2]:
            state = self._from_source(state)
            self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self._size) if rank not in self.trainers]

    def _say(self, word: int) -> Telling:
        return tell_all(self._group, Members.all_of(self._group), torch.tensor([word]), _DATA_TAG)

    def _hear(self) -> None:
        if self._telling is not None:
            telling, self._telling = self._telling, None
            self._hear_of_data(telling)

    def _hear_of_data(self, telling: Telling) -> bool:
        said = telling.wait().view(-1).tolist()
        self.trainers = [rank for rank, word in enumerate(said) if word == _HAS_DATA]
        if self.trainers and self._others:
            if self._throws:
                raise RuntimeError(
                    f"rank {self._others[0]} has no more data, and rank {self.trainers[0]} has: the loop ends on all "
                    "ranks, as handle.join(throw_on_early_termination=True) asks for"
                )
            self.uneven = True
        self._last_trainers = self.trainers or self._last_trainers
        return any(word != _NO_DATA for word in said)

    def _from_source(self, content: object) -> Any:
        """What the source has in place of ``content``: plain numbers and tensors."""
        packed = io.BytesIO()
        torch.save(content, packed)
        size, source = torch.tensor([packed.tell()]), self._last_trainers[0]
        self._group.broadcast(size, source).wait()
        data = bytearray(int(size))
        if self._rank == source:
            data[:] = packed.getbuffer()
        self._group.broadcast(torch.frombuffer(data, dtype=torch.uint8), source).wait()
        return torch.load(io.BytesIO(data), weights_only=True)


def _norms(parameters: Sequence[nn.Parameter]) -> list[float]:
    """Of each gradient; 0 where there is none."""
    return [0.0 if p.grad is None else float(torch.linalg.vector_norm(p.grad.detach())) for p in parameters]


def _numbers(optimizer: torch.optim.Optimizer) -> list[float]:
    """What schedulers change: learning rates, momenta and the like, of all parameter groups in a fixed order."""
    found: list[float] = []
    for group in optimizer.param_groups:
        for key in sorted(group):
            value = group[key]
            if _is_number(value):
                found.append(float(value))
            elif isinstance(value, tuple):
                found += [float(number) for number in value if _is_number(number)]
    return found


def _take_numbers(optimizer: torch.optim.Optimizer, told: Iterator[float]) -> None:
    """The inverse."""
    for group in optimizer.param_groups:
        for key in sorted(group):
            value = group[key]
            if isinstance(value, torch.Tensor) and _is_number(value):
                value.fill_(next(told))
            elif _is_number(value):
                group[key] = _changed(value, next(told))
            elif isinstance(value, tuple):
                group[key] = tuple(_changed(number, next(told)) if _is_number(number) else number for number in value)


def _changed(number: object, told: float) -> object:
    return number if number == told else told  # an int stays one


def _is_number(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def tensors_in(content: object) -> Iterator[torch.Tensor]:
    """All tensors inside nested mappings and sequences, in order."""
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from tensors_in(value)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from tensors_in(value)
