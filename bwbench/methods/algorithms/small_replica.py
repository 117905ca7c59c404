"""A tiny model that ranks in threads train with any algorithm, step by step; for contracts and tests."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, AbstractRunning, Clock, Context, average_over
from bwbench.methods.collectives import AbstractCollective, Members
from bwbench.methods.compression import build_codec
from bwbench.methods.deferred import dist, nn, torch

_BUILDING = threading.Lock()  # a cache alone lets all threads that come first build at once
SHAPES = [(30, 6), (30,), (20, 30), (20,), (2, 20), (2,)]  # of the parameters


@cache
def _initial() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 30), nn.Tanh(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 2))


def replica() -> nn.Module:
    """The same on every rank; threads share torch's random state, so that seeding in each would race."""
    with _BUILDING:
        return copy.deepcopy(_initial())


def vector(model: nn.Module) -> torch.Tensor:
    """All parameters behind one another, a copy."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).clone()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, different on every rank and in every step."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(8, 6, generator=generator)
    return inputs, inputs[:, :2].sin() + 0.1 * rank


def loss_of(model: Callable[..., torch.Tensor], rank: int, step: int) -> torch.Tensor:
    """Of one batch."""
    inputs, targets = batch(rank, step)
    return (model(inputs) - targets).square().mean()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """With momentum, so that the optimizer has a state."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def codec_chain(*names: str) -> list[Component]:
    """Codecs with their default options."""
    return [Component(name, COMPRESSIONS.load(name).Config()) for name in names]


class _Control:
    """The control path; averages through a group of its own."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group

    def barrier(self) -> None:
        if self._group is not None:
            self._group.barrier().wait()

    def meet(self, clock: Clock) -> float:  # noqa: ARG002 (it does not run)
        self.barrier()
        return 0.0

    def average(self, values: torch.Tensor) -> None:
        average_over(self._group, values)

    def diverged(self, what: str) -> None:
        raise AssertionError(what)


class _Clock:
    """Does not run."""

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def now_s(self) -> float:
        return 0.0

    def put_forward(self, to_s: float) -> None:
        """Nothing: it does not run."""


@dataclass
class SmallReplica:
    """One rank of a training run.

    Attributes:
        running: the algorithm at work here.
        trajectory: all parameters after each step.
        payload_bytes: reported so far.
        exposed_s: reported so far.
    """

    rank: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    algorithm: AbstractAlgorithm
    running: AbstractRunning
    collective: AbstractCollective
    trajectory: list[torch.Tensor] = field(default_factory=list)
    payload_bytes: int = 0
    exposed_s: float = 0.0
    num_steps: int = 0

    def train(self, steps: int, accumulate: int = 1) -> None:
        """Take optimizer steps as the training loop does."""
        for _ in range(steps):
            self.num_steps += 1
            self.running.begin_step()
            for micro_step in range(accumulate):
                last = micro_step == accumulate - 1
                with self.running.micro_step(last=last):
                    loss = loss_of(self.running.module, self.rank, self.num_steps + 100 * micro_step)
                    torch.autograd.backward(loss / accumulate)
            self.running.gradients_ready()
            reports = [self.running.finish()]
            self.running.update()
            if (more := self.running.after_update()) is not None:
                reports.append(more)
            self.payload_bytes += sum(report.payload_bytes for report in reports)
            self.exposed_s += sum(report.exposed_s for report in reports)
            self.trajectory.append(vector(self.model))

    def drain(self) -> None:
        """As before an evaluation."""
        self.payload_bytes += self.running.drain()


def attached(
    group: dist.ProcessGroup | None,
    rank: int,
    algorithm: AbstractAlgorithm,
    collective: str | AbstractCollective = "ring",
    codecs: Sequence[str] = ("none",),
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
) -> SmallReplica:
    """A replica whose algorithm is ready to train."""
    model = replica()
    ours: AbstractCollective = COLLECTIVES.load(collective)() if isinstance(collective, str) else collective
    if group is not None:
        ours.connect(group)
    optimizer = make_optimizer(model)
    chain = codec_chain(*codecs)
    members = Members.all_of(group)
    context = Context(model, optimizer, ours, lambda: build_codec(chain), group, _Control(group), _Clock(), members)
    running = algorithm.attach(context)
    running.resume()
    return SmallReplica(rank, model, optimizer, algorithm, running, ours)
