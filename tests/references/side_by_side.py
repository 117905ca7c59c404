"""A user's loop on several ranks beside a reference that is given the same gradients: how far apart they get.

Every rank computes its gradients at its own weights, and they are kept before anything is averaged. The reference is
run on these afterwards, so that what is compared is the method alone: its own parameters would give gradients that
differ in the last bit, and one such bit chooses another entry or another level of a codec once in a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bwbench import distribute
from bwbench.base.registry import COMPRESSIONS
from bwbench.training.loop.muon import Muon
from tests.references.replicas import Replicas, Roundtrip
from tests.references.rules import Tensors
from tests.unit.training.library.together import together

STEPS = 26
Rate = Callable[[int], float]  # of a step, counted from 0, as a part of the learning rate


def falling(end: float) -> Rate:
    """From 1 exponentially to ``end``."""
    return lambda step: end ** (step / (STEPS - 1))


@dataclass(frozen=True)
class Optimizer:
    """One of torch's, and the rule of the references that it is."""

    kind: type[torch.optim.Optimizer]
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)
    rule: str = "sgd"


SGD = Optimizer(torch.optim.SGD, 0.2)
MOMENTUM = Optimizer(torch.optim.SGD, 0.05, {"momentum": 0.9, "weight_decay": 0.01})
NESTEROV = Optimizer(torch.optim.SGD, 0.05, {"momentum": 0.8, "nesterov": True})
# An epsilon well above the rounding of a gradient near zero, which Adam would divide by itself.
ADAM = Optimizer(torch.optim.Adam, 0.03, {"weight_decay": 0.01, "eps": 1e-4}, "adam")
ADAMW = Optimizer(torch.optim.AdamW, 0.03, {"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-4}, "adamw")


MUON = Optimizer(Muon, 0.02, {"weight_decay": 0.1, "eps": 1e-4}, "muon")


@dataclass(frozen=True)
class Method:
    """What ``distribute`` is asked for, and how the loop around it looks.

    Attributes:
        rate: of each step, as a part of the optimizer's learning rate.
        clip: the norm that the user clips ``p.grad`` to between backward pass and step.
        twin: gradients come from a copy of the model, where torch's DDP would miss a backward pass.
    """

    algorithm: Any
    collective: Any = None
    compression: Any = None
    optimizer: Optimizer = SGD
    rate: Rate = falling(0.2)
    clip: float | None = None
    twin: bool = False


@dataclass(frozen=True)
class Setting:
    """What a reference is made from.

    Attributes:
        parameters: by rank and tensor, equal on all ranks.
        order: in which the tensors lie in a bucket: that in which a backward pass gives their gradients.
    """

    parameters: list[Tensors]
    optimizer: Optimizer

    @property
    def order(self) -> list[int]:
        return list(reversed(range(len(self.parameters[0]))))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for tensor in self.parameters[0]]

    @property
    def ranks(self) -> int:
        return len(self.parameters)

    def plain(self, kind: Callable[..., Replicas], **options: Any) -> Replicas:
        """A reference that has its own use for the optimizer's options."""
        return kind(self.parameters, self.optimizer.lr, **{"order": self.order, **options})

    def ruled(self, kind: Callable[..., Replicas], **options: Any) -> Replicas:
        """A reference that uses a direction as the optimizer does."""
        return self.plain(kind, rule=self.optimizer.rule, **self.optimizer.options, **options)


class SmallModel(nn.Module):
    """A convolution, two layers: 698 parameters in tensors of 4, 2 and 1 dimensions, one bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 6, 3)
        self.hidden = nn.Linear(24, 20)
        self.last = nn.Linear(20, 4)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))

    def forward(self, pictures: Tensor) -> Tensor:
        return self.last(self.hidden(self.convolution(pictures).flatten(1).tanh()).tanh())


def loss_of(model: nn.Module, rank: int, step: int) -> Tensor:
    """Of another batch for each rank and step."""
    pictures = torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(1000 * rank + step))
    return (model(pictures) - 3 * pictures[:, 0, :, 0].sin() - 0.2 * rank).pow(2).mean()


@dataclass(frozen=True)
class Trained:
    """By step, rank and tensor: the gradients of each rank alone, and its parameters after the step."""

    setting: Setting
    gradients: list[list[Tensors]]
    parameters: list[list[Tensors]]


def train(method: Method, ranks: int, steps: int = STEPS) -> Trained:
    """A user's loop."""
    optimizer = method.optimizer

    def loop(rank: int) -> tuple[list[Tensors], list[Tensors]]:
        model = SmallModel()
        twin = deepcopy(model) if method.twin else model
        own = optimizer.kind(model.parameters(), lr=optimizer.lr, **optimizer.options)
        gradients, parameters = [], []
        with distribute(
            model, own, method.algorithm, collective=method.collective, compression=method.compression
        ) as handle:
            for step in range(steps):
                for group in own.param_groups:
                    group["lr"] = optimizer.lr * method.rate(step)
                own.zero_grad()
                if method.twin:
                    twin.load_state_dict(model.state_dict())
                gradients.append(list(torch.autograd.grad(loss_of(twin, rank, step), list(twin.parameters()))))
                loss_of(model, handle.rank, step).backward()
                if method.clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), method.clip)
                own.step()
                parameters.append([parameter.detach().clone() for parameter in model.parameters()])
        return gradients, parameters

    results = together(ranks, loop)
    begin = [[parameter.detach().clone() for parameter in SmallModel().parameters()] for _ in range(ranks)]
    gradients, parameters = (
        [[result[which][step] for result in results] for step in range(steps)] for which in range(2)
    )
    return Trained(Setting(begin, optimizer), gradients, parameters)


Feed = Callable[[Replicas, list[Tensors]], list[Tensors]]
Path = Tensor  # parameters after every step: fp64 of shape [steps, ranks, parameters]


def path_of(trained: Trained) -> Path:
    """That of the program."""
    return torch.stack([_of_ranks(parameters) for parameters in trained.parameters])


def path_of_reference(
    trained: Trained,
    make: Callable[[Setting], Replicas],
    rate: Rate,
    dtype: torch.dtype = torch.float64,
    feed: Feed = lambda reference, gradients: gradients,
) -> Path:
    """That of a reference which is given the gradients of ``trained``."""
    setting = trained.setting
    reference = make(Setting([_in(dtype, tensors) for tensors in setting.parameters], setting.optimizer))
    path = []
    for step, gradients in enumerate(trained.gradients):
        reference.lr = setting.optimizer.lr * rate(step)
        reference.step(feed(reference, [_in(dtype, tensors) for tensors in gradients]))
        path.append(_of_ranks(reference.parameters))
    return torch.stack(path)


def differences(trained: Trained, found: Path, expected: Path) -> Tensor:
    """Largest difference of each parameter on any rank by each step, over the way of the one that went furthest.

    Of shape [steps, parameters].
    """
    way = (expected - _of_ranks(trained.setting.parameters)).abs().max()
    return (found - expected).abs().amax(1).cummax(0).values / way


def last_bits(tensors: Tensors, seed: int) -> Tensors:
    """The same, each value as far away as rounding leaves it: a normal draw of half an fp32 unit in the last place."""
    generator = torch.Generator().manual_seed(seed)
    half_a_unit = torch.finfo(torch.float32).eps / 2
    return [x * (1 + half_a_unit * torch.randn(x.shape, generator=generator, dtype=x.dtype)) for x in tensors]


def bits_equal(trained: Trained, step: int) -> bool:
    """Whether all ranks hold the same bits after a step."""
    first, *others = (torch.cat([tensor.reshape(-1) for tensor in tensors]) for tensors in trained.parameters[step])
    return all(torch.equal(first, other) for other in others)


def roundtrip(name: str, **options: Any) -> Roundtrip:
    """What a codec of the program makes of a vector, without memory."""
    kind = COMPRESSIONS.load(name)
    codec = kind(kind.Config(**options))

    def there_and_back(x: Tensor) -> Tensor:
        values = x.float().contiguous()
        return codec.decode(codec.encode(values), values.numel()).clone().to(x.dtype)

    return there_and_back


def _in(dtype: torch.dtype, tensors: Tensors) -> Tensors:
    return [tensor.to(dtype) for tensor in tensors]


def _of_ranks(parameters: list[Tensors]) -> Tensor:
    return torch.stack([_flat(tensors) for tensors in parameters])


def _flat(tensors: Tensors) -> Tensor:
    return torch.cat([tensor.reshape(-1).double() for tensor in tensors])
