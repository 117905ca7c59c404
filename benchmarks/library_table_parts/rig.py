"""A user's script, written once and run in three ways: under torch's DDP, under ``distribute``, and as the plain truth.

The truth is one process that forms the mean of all ranks' gradients itself, with nothing but torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TIMEOUT_S = 15.0  # of a message, in both libraries
METHOD = "ring"  # fp32, as exact as DDP
TRUTH, DDP, BWBENCH = "truth", "DDP", "bwbench"
LOCAL_SGD: Any = {"method": {"local-sgd": {"period": 1}}, "options": {"compression": "none"}}  # as good as gradients
Work = Callable[["Rig"], None]


@dataclass(frozen=True)
class Case:
    """A script.

    Attributes:
        truth: whether plain training can say what is right; otherwise the ranks do what does not fit together.
        names: a pattern that the message of a refusal holds; with ``truth`` as well, if it may be refused.
        warning: a warning that holds ``names`` is enough.
        lost: the rank, first or last, that ends by itself or does what the others do not: they end with an error.
        tolerance: the largest difference to the truth that is right, relative to the largest value.
        method, options: of ``distribute``.
        ddp: options of torch's DistributedDataParallel, as its documentation asks for them.
    """

    name: str
    group: str
    work: Work
    truth: bool = True
    names: str = ""
    warning: bool = False
    lost: Literal["", "first", "last"] = ""
    tolerance: float = 1e-5
    method: Any = METHOD
    options: dict[str, Any] = field(default_factory=dict)
    ddp: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(name: str, **facts: Any) -> Callable[[Work], Work]:
    """Register the function below as a case; its module is its group."""

    def register(work: Work) -> Work:
        assert name not in CASES, name
        CASES[name] = Case(name, work.__module__.rpartition(".")[2].removeprefix("cases_"), work, **facts)
        return work

    return register


class Rig:
    """What a case does instead of choosing a library.

    Attributes:
        rank: of this process; 0 in the truth.
        handle: of ``distribute``.
        found: what is compared with the truth, by name.
        buffers: of each rank, in the truth.
    """

    def __init__(self, case: Case, arm: str, rank: int, num_ranks: int) -> None:
        self.case, self.arm, self.rank, self.num_ranks = case, arm, rank, num_ranks
        self.handle: Any = None
        self.wrapped: Any = None
        self.found: dict[str, torch.Tensor] = {}
        self.buffers: dict[int, dict[str, torch.Tensor]] = {}

    def distribute(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, method: Any = None, **options: Any
    ) -> nn.Module:
        """What the forward pass goes through from now on."""
        if self.arm == DDP:
            self.wrapped = DistributedDataParallel(model, **self.case.ddp)
            return self.wrapped
        if self.arm == BWBENCH:
            from bwbench import distribute

            options = self.case.options | options
            self.handle = distribute(model, optimizer, method or self.case.method, timeout_s=TIMEOUT_S, **options)
        return model

    @property
    def ranks(self) -> list[int]:
        """Whose batches this process sees."""
        return list(range(self.num_ranks)) if self.arm == TRUTH else [self.rank]

    def backward(self, loss: Callable[[int], torch.Tensor | None], **options: Any) -> None:
        """Forward and backward pass of a rank's batch; in the truth of all, whose mean is what counts.

        A loss of None: this rank has none.
        """
        for rank in self.ranks:
            value = loss(rank)
            if value is not None:
                (value / len(self.ranks)).backward(**options)

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """Of micro-steps."""
        if self.arm == TRUTH:
            return contextlib.nullcontext()
        return (self.wrapped if self.arm == DDP else self.handle).no_sync()

    def join(self) -> contextlib.AbstractContextManager[Any]:
        """Around a loop of unequal length."""
        if self.arm == TRUTH:
            return contextlib.nullcontext()
        return (self.wrapped if self.arm == DDP else self.handle).join()

    @contextlib.contextmanager
    def buffers_of(self, rank: int, model: nn.Module) -> Iterator[None]:
        """Each rank's own buffers, in the process that plays all ranks."""
        if self.arm != TRUTH:
            yield
            return
        if not self.buffers:
            self.buffers = {each: _copies(model) for each in self.ranks}
        for name, value in model.named_buffers():
            value.copy_(self.buffers[rank][name])
        yield
        self.buffers[rank] = _copies(model)

    def keep(self, model: nn.Module) -> None:
        """Compare these parameters."""
        self.keep_tensors(dict(model.named_parameters(remove_duplicate=True)))

    def keep_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """Compare these values."""
        for name, tensor in tensors.items():
            value = tensor.detach().clone()
            value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            self.found[name.removeprefix("module.")] = value.double().cpu().contiguous()


def _copies(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


def net(seed: int = 0) -> nn.Sequential:
    """Some 300 parameters, the same on all ranks."""
    return seeded(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)), seed)


def seeded(model: nn.Module, seed: int = 0) -> Any:
    """Values that depend on nothing but the seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model


def batch(rank: int, step: int, *shape: int) -> torch.Tensor:
    """Another one for each rank and step: [4, 6] without a shape."""
    generator = torch.Generator().manual_seed(1000 * rank + step + 1)
    return torch.randn(shape or (4, 6), generator=generator)


def loss_of(outputs: torch.Tensor) -> torch.Tensor:
    """Some loss with a minimum away from zero."""
    return (outputs - 0.5).pow(2).mean()


def train(
    rig: Rig,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int = 4,
    before: Callable[[int], None] = lambda step: None,
    clip: float | None = None,
    inputs: Callable[[int, int], torch.Tensor] = batch,
    **options: Any,
) -> None:
    """The loop of every tutorial."""
    forward = rig.distribute(model, optimizer, **options)
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(inputs(rank, step))))  # noqa: B023
        if clip is not None:
            rig.keep_tensors({f"norm {step}": nn.utils.clip_grad_norm_(model.parameters(), clip)})
        optimizer.step()
    rig.keep(model)


def sgd(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9} | options)


def adamw(model: nn.Module, **options: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.02, "weight_decay": 0.1} | options)
