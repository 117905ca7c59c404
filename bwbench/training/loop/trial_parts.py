"""The parts of one training run, put together from a cell: data, model, optimizer, algorithm."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import nn

from bwbench.base import registry
from bwbench.base.errors import ConfigError
from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.real_size import steps_idly
from bwbench.methods.algorithms import AbstractAlgorithm, AbstractRunning, Context
from bwbench.methods.algorithms.algorithm import ELEMENT_BYTES
from bwbench.methods.algorithms.buckets import ParameterBuffers, trainable
from bwbench.methods.collectives import AbstractCollective
from bwbench.methods.collectives.pacing import pace
from bwbench.methods.collectives.transport import Members
from bwbench.methods.compression import build_codec
from bwbench.records.environment import tcp_settings
from bwbench.records.schema import Start
from bwbench.training.datasets.dataset import Splits, data_folder
from bwbench.training.loop.clock import TrainingClock
from bwbench.training.loop.compute_device import connect_devices, device_for, device_name, tell_by_default
from bwbench.training.loop.feed import AnyFeed, BatchFeed, EmptyFeed, TensorSamples
from bwbench.training.loop.optimizers import AbstractOptimizer
from bwbench.training.loop.process_groups import Groups, group_timeout
from bwbench.training.loop.real_size import IdleOptimizer, shapes_module
from bwbench.training.loop.replica import seed_everything
from bwbench.training.loop.weight_averages import AbstractWeightAverage, AveragedWeights
from bwbench.training.models.shapes_module import ShapesModule


@dataclass(frozen=True)
class Trial:
    """Everything that the training loop works with on one rank.

    Attributes:
        method, collective: at work on the model.
        averaged: of the model's weights; None where nothing is averaged.
        make_feed: a feed at the begin of the first epoch; a new one each time.
        metrics: names that evaluations report; none where nothing is learnt.
        shapes: the model, where only its shapes are real; else None.
    """

    config: CellConfig
    groups: Groups
    clock: TrainingClock
    model: nn.Module
    schedule: AbstractOptimizer
    optimizer: torch.optim.Optimizer
    method: AbstractRunning
    collective: AbstractCollective
    averaged: AveragedWeights | None
    make_feed: Callable[[], AnyFeed]
    num_train: int
    validation: TensorSamples
    test: TensorSamples
    metrics: tuple[str, ...]
    shapes: ShapesModule | None = None

    @property
    def num_parameters(self) -> int:
        """Trained values of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)

    @property
    def declared_backward_s(self) -> float:
        """What a backward pass of the present step is declared to take; 0 where it takes what it computes."""
        return 0.0 if self.shapes is None else self.shapes.backward_s()

    @property
    def _backend(self) -> str | None:
        """Of an exchange on a GPU: torch's own, or that inside of a host."""
        place, group = next(self.model.parameters()), self.groups.data
        if self.collective.devices is not None:
            return "nccl"
        if place.device.type == "cpu" or group is None or self.config.collective.name != "torch":
            return None
        try:
            return str(group._get_backend(place.device).name())
        except RuntimeError:  # virtual nodes have no other
            return None

    def facts(self, plain_backward_s: float) -> Start:
        """What the record begins with, but for the moment; once warmed up.

        Args:
            plain_backward_s: what a backward pass took without communication.
        """
        return Start(
            pid=os.getpid(),
            rank=self.groups.control.rank,
            world_size=self.groups.control.size,
            num_parameters=self.num_parameters,
            gradient_bytes=ELEMENT_BYTES * self.num_parameters,
            global_batch=self.config.global_batch,
            num_train=self.num_train,
            num_validation=len(self.validation),
            num_test=len(self.test),
            bucket_bytes=tuple(self.method.bucket_bytes),
            threads=self.config.compute.threads,
            torch_version=str(torch.__version__),
            overlap_estimated=self.method.overlap_estimated,
            plain_backward_s=plain_backward_s,
            dilation=self.config.dilation if self.config.dilation != 1.0 else None,
            device=device_name(next(self.model.parameters())),
            backend=self._backend,
            shrink=self.config.shrink if self.config.shrink != 1.0 else None,
            waits=False if self.method.agreement_step(1) is None else None,
            tcp=tcp_settings(),
        )


def prepare(config: CellConfig, groups: Groups, splits: Splits | None = None) -> Trial:
    """Load data, build the model (equal on all ranks), hand its gradients to the algorithm.

    Args:
        splits: of the data set, where ranks of one process share them.

    Raises ConfigError where data is missing or does not fit the model or the batch size.
    """
    torch.set_num_threads(config.compute.threads)
    rank = groups.control.rank
    device = device_for(config, rank)
    dataset = config.dataset.source.build(registry.DATASETS)
    splits = dataset.load(data_folder()) if splits is None else splits
    partition = config.dataset.partition.build(registry.PARTITIONS)

    def make_feed() -> AnyFeed:
        if not dataset.metrics:
            return EmptyFeed()
        return BatchFeed(splits.train, partition, config.nodes, rank, config.batch_size, config.seed, place)

    seed_everything(config.seed)  # the same initial replica everywhere
    shapes = shapes_module(config, rank)
    model: nn.Module = shapes or config.model.build(registry.MODELS).build(dataset.spec()).to(device)
    place = next(model.parameters()).detach()[:0] if device.type != "cpu" else None
    make_feed()  # raises now where a batch is larger than a node's share
    seed_everything(config.seed, 1 + rank)  # dropout and the like: another stream on each rank
    average: AbstractWeightAverage = config.weight_average.build(registry.WEIGHT_AVERAGES)
    averaged = AveragedWeights(model, average) if average.counts is not None else None  # before its memory is moved
    schedule: AbstractOptimizer = config.optimizer.build(registry.OPTIMIZERS)
    clock = TrainingClock(groups.control.sent_bytes)
    algorithm: AbstractAlgorithm = config.algorithm.build(registry.ALGORITHMS)
    collective: AbstractCollective = config.collective.build(registry.COLLECTIVES)
    if groups.data is not None:
        link = config.link_as_made.dilated(config.dilation)  # what is sent is paced by the machine's time
        collective.connect(groups.data, link)
        if config.launcher != "local":  # hosts may have the very addresses of the emulated network
            pace(link, flows=0)
            # Nodes that we emulate have links of their own, past which NCCL would send.
            if not build_codec(config.compression).linear:
                connect_devices(collective, groups.data, device, tell_by_default, group_timeout())
    optimizer = schedule.build_for(model)
    idle = shapes is not None and steps_idly(algorithm)
    if idle:
        optimizer = IdleOptimizer(model.parameters())
    method = algorithm.attach(
        Context(
            model=model,
            optimizer=optimizer,
            collective=collective,
            make_codec=lambda: build_codec(config.compression),
            data_group=groups.data,
            control=groups.control,
            clock=clock,
            members=Members.all_of(groups.data),
            shrink=config.shrink,
            write_gradient=shapes.write_gradient if shapes is not None and not shapes.in_memory else None,
            declared_backward_s=shapes.backward_s if shapes is not None else None,
        )
    )
    if schedule.options.flat and not idle:
        flatten(optimizer, trainable(model))
    return Trial(
        config=config,
        groups=groups,
        clock=clock,
        model=model,
        schedule=schedule,
        optimizer=optimizer,
        method=method,
        collective=collective,
        averaged=averaged,
        make_feed=make_feed,
        num_train=len(splits.train),
        validation=TensorSamples(splits.validation, place),
        test=TensorSamples(splits.test, place),
        metrics=dataset.metrics,
        shapes=shapes,
    )


def flatten(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Have ``optimizer`` change stretches of parameters that lie behind one another as if each were one parameter.

    To be called once the algorithm has been attached: gradients lie in its buckets then, and parameters too where it
    averages those. Where it does not, they are moved into buffers here, in the order of the gradients. Either way
    memory is laid out once, and the stretches are views into it. Optimizers that work element by element (SGD, Adam,
    AdamW) take the same steps as before, to the bit.

    Args:
        optimizer: with one group of parameters and no state yet; gets other parameters.
        parameters: of the model, in its order; they stay what the model and the algorithm know.

    Returns:
        the stretches. Where parameters and gradients lie in different orders, each is a parameter of its own.

    Raises:
        ConfigError: the gradients lie in no buckets (torch's DistributedDataParallel).
    """
    if any(parameter.grad is None for parameter in parameters):
        raise ConfigError("a flat optimizer step needs gradients in buckets of ours, and torch's own exchange has none")
    ordered = sorted(parameters, key=lambda p: (_gradient(p).untyped_storage().data_ptr(), _gradient(p).data_ptr()))
    if all(parameter.untyped_storage().nbytes() == ELEMENT_BYTES * parameter.numel() for parameter in parameters):
        buckets = groupby(range(len(ordered)), key=lambda i: _gradient(ordered[i]).untyped_storage().data_ptr())
        ParameterBuffers(ordered, [list(bucket) for _, bucket in buckets])
    stretches: list[list[nn.Parameter]] = []
    for parameter in ordered:
        if stretches and _follows(parameter, stretches[-1][-1]):
            stretches[-1].append(parameter)
        else:
            stretches.append([parameter])
    flat: list[nn.Parameter] = []
    for stretch in stretches:  # one parameter over the memory of all, with a gradient over theirs
        shape = (sum(parameter.numel() for parameter in stretch),)
        flat.append(nn.Parameter(stretch[0].data.as_strided(shape, (1,))))
        flat[-1].grad = _gradient(stretch[0]).as_strided(shape, (1,))
    (group,) = optimizer.param_groups
    group["params"] = flat
    return flat


def _follows(parameter: nn.Parameter, before: nn.Parameter) -> bool:
    """Whether a parameter and its gradient lie right behind another one and its gradient."""
    return all(
        this.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
        and this.storage_offset() == last.storage_offset() + last.numel()
        for this, last in ((parameter.data, before.data), (_gradient(parameter), _gradient(before)))
    )


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
