"""Averaging inside torch's DistributedDataParallel, with its own communication hooks: which one a codec stands for.

And torch's own post-local SGD: DistributedDataParallel at first, then a periodic average of the models.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pydantic import Field

from bwbench.base import emulated_time
from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.algorithm import BUCKET_BYTES, ELEMENT_BYTES, FIRST_BUCKET_BYTES, assign
from bwbench.methods.algorithms.buckets import check_averaged, trainable, watch_parameters
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, NoCompression, Shape
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.compression.fp16 import Fp16
from bwbench.methods.compression.powersgd import PowerSgd, PowerSgdConfig
from bwbench.methods.deferred import dist, nn, torch
from bwbench.methods.devices import device_of
from bwbench.methods.memory import State
from bwbench.methods.phases import LEAST_STEPS, TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

BYTES_PER_MIB = 1024 * 1024
FP16_BYTES = 2
# Torch's own default: a matrix is sent as factors where these are less than half as large.
MIN_COMPRESSION_RATE = 2
# The earliest that torch allows, as it puts buckets together anew after the first step. Ours are steps of the warm-up.
FIRST_COMPRESSED_STEP = 2
_REMEMBERED = ("error_dict", "p_memory_dict", "q_memory_dict")  # of torch's PowerSGDState
_EPSILON = 1e-8  # a gradient of zeros would be divided by its length; torch's own remedy


class DdpExchange(AbstractRunning):
    """DistributedDataParallel on the data network, as users run it.

    A backward pass ends when all buckets are averaged. How much of that was waiting cannot be seen from outside:
    estimated is what it took longer than a backward pass without communication: the one that was measured, changed by
    as much as the declared one has changed since then, where there is such a thing.

    Args:
        hook: state and function of a communication hook in place of the one that the codec stands for.
    """

    def __init__(
        self, context: Context, bucket_bytes: float | None, hook: tuple[Any, Callable[..., Any]] | None = None
    ) -> None:
        super().__init__(context)
        self.overlap_estimated = True
        # Names have come and gone since torch 2.4.
        known = inspect.signature(nn.parallel.DistributedDataParallel).parameters
        # Models here have no buffers that change, and a broadcast in every step would be charged to the method.
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {sync: False}
        if "init_sync" in known:  # replicas start equal by their seed; sending them over the link may take minutes
            options["init_sync"] = False
        shrink = context.shrink
        codec = context.make_codec()
        shapes = [tuple(parameter.shape) for parameter in trainable(context.model)]
        elements = [math.prod(shape) for shape in shapes]
        buckets = hook_buckets(elements, bucket_bytes, codec, shrink)  # torch's own follow the same rule
        self.bucket_bytes = [ELEMENT_BYTES * sum(elements[i] for i in bucket) for bucket in buckets]
        if len(buckets) == 1:  # torch's limit on the first bucket is another one where it is not told any
            bucket_bytes, shrink = max(bucket_bytes or 0, *self.bucket_bytes, BYTES_PER_MIB), 1.0
        if bucket_bytes is not None:
            options["bucket_cap_mb"] = bucket_bytes / shrink / BYTES_PER_MIB
        self._parameters = trainable(context.model)
        self._is_elsewhere = device_of(self._parameters[0]).elsewhere
        if not self._is_elsewhere:  # before DDP's own hooks, so that it sees what is sent
            watch_parameters(context.model, context.control, context.user_loop)
        plain = nn.parallel.DistributedDataParallel
        with default_buckets(shrink) if bucket_bytes is None else nullcontext(plain) as wrapper:
            self._ddp = self.module = wrapper(context.model, process_group=context.data_group, **options)
        self._called = False  # the model, in a way that a backward pass may follow
        self._ddp.register_forward_pre_hook(self._is_called)
        self._strides = [(parameter, parameter.stride()) for parameter in self._ddp.parameters()]
        assert context.data_group is not None
        if hook is not None:
            self._ddp.register_comm_hook(*hook)
        self._powersgd = None if hook else register_hook(self._ddp, codec, context.data_group)
        payloads = hook_payloads(shapes, bucket_bytes, codec, shrink)
        self._traffic = context.collective.traffic(context.members.size, payloads)
        self._plain_backward_s = self._backward_s = self._begin_mono_s = 0.0  # the first beyond what is declared

    def begin_step(self) -> None:
        """As torch's optimizers do it. Raises RuntimeError where DDP would mix up gradients, and says nothing."""
        if any(parameter.stride() != strides for parameter, strides in self._strides):
            raise RuntimeError(
                "parameters lie in memory in another order than when training began, as after "
                "model.to(memory_format=...), and torch's DDP keeps to the first one; convert the model before"
            )
        self._ddp.zero_grad(set_to_none=True)

    @property
    def averages_gradients(self) -> bool:
        """Always."""
        return True

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """``no_sync`` for all but the last micro-step."""
        return nullcontext() if last else self._ddp.no_sync()

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """Backward and averaging were one: how long both took. Raises RuntimeError where there was no averaging."""
        if not self._called:
            raise RuntimeError(
                "the backward pass belongs to no call of the model, and torch's DDP averages in those alone; call "
                "model(...) rather than parts or methods of it, or use collective='ring'"
            )
        self._called = False
        if self._is_elsewhere:
            check_averaged(self._parameters, self._context)
        emulated_time.catch_up(of_libraries=True)
        self._begin_mono_s = now_s = emulated_time.monotonic()
        if backward_began_mono_s is not None:
            self._begin_mono_s = backward_began_mono_s
        self._backward_s = now_s - self._begin_mono_s

    def finish(self) -> ExchangeReport:
        """Nothing left to wait for; splits the backward pass into computing and waiting."""
        waited_s = max(0.0, self._backward_s - self._plain_backward_s - self._declared_s())
        return ExchangeReport(
            ready_mono_s=self._begin_mono_s + self._backward_s - waited_s,
            exposed_s=waited_s,
            hidden_s=waited_s,
            payload_bytes=round(self._traffic.payload_bytes_per_rank[self._context.members.place]),
        )

    def pass_of_zeros(self) -> None:
        """DDP averages inside of its own passes only: one around nothing, with gradients of zero."""
        inner, parameters = self._ddp.module, trainable(self._context.model)
        plain_forward = inner.forward
        inner.forward = lambda: None
        try:
            self._ddp()
        finally:
            inner.forward = plain_forward
        torch.autograd.backward(parameters, [torch.zeros_like(parameter) for parameter in parameters])

    def stand_by(self) -> None:
        """DDP puts its buckets together anew in the first forward pass after a backward pass, on all ranks."""
        self._ddp.reducer._rebuild_buckets()

    def rehearse(self, plain_backward_s: float) -> None:
        """Nothing is exchanged rarely; from now on it is known what of a backward pass is computing."""
        self._plain_backward_s = plain_backward_s - self._declared_s()

    def reset(self) -> None:
        """Forget residual and factors of PowerSGD. Steps taken stay counted, since DDP's buckets stay as they are."""
        self.load_state_dict({})

    def state_dict(self) -> State:
        """Copies of residual and factors of PowerSGD; empty for the others."""
        return {name: value.clone() for name, kept in self._remembered().items() for value in kept.values()}

    def sending_state(self) -> State:
        """All of it."""
        return self.state_dict()

    def restore_sending(self, state: State) -> None:
        """Take back what ``sending_state`` gave."""
        self.load_state_dict(state)

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave. A new process begins with two steps without compression all the same."""
        for name, kept in self._remembered().items():
            kept.clear()
            if name in state:
                kept[0] = state[name].to(self._parameters[0].device, copy=True)

    def _declared_s(self) -> float:
        """Of the present backward pass, what is declared."""
        declared = self._context.declared_backward_s
        return 0.0 if declared is None else declared()

    def _is_called(self, module: torch.nn.Module, inputs: object) -> None:
        self._called = self._called or torch.is_grad_enabled()

    def _remembered(self) -> dict[str, dict[int, torch.Tensor]]:
        """What torch's PowerSGD remembers from step to step, by name and bucket; nothing for the others."""
        return {} if self._powersgd is None else {name: getattr(self._powersgd, name) for name in _REMEMBERED}


def bare(codec: AbstractCodec) -> AbstractCodec:
    """The codec without error feedback around it: torch's hooks bring their own."""
    return codec.codec if isinstance(codec, ErrorFeedback) else codec


@contextmanager
def default_buckets(shrink: float) -> Iterator[type[nn.parallel.DistributedDataParallel]]:
    """The class whose objects, made inside, have torch's own two sizes of buckets divided by ``shrink``.

    Torch has a limit of its own for the first bucket only where it is told no size. That limit is a number that users
    may set (``_DEFAULT_FIRST_BUCKET_BYTES``); the other one is read from the attribute that the constructor has set.
    """
    from torch import distributed

    plain = nn.parallel.DistributedDataParallel
    if shrink == 1:
        yield plain
        return
    size = math.ceil(BUCKET_BYTES / shrink)
    kept: Any = property(lambda _: size, lambda _, told: None)
    shrunk: Any = type("ShrunkDistributedDataParallel", (plain,), {"bucket_bytes_cap": kept})
    settings: Any = distributed  # its stubs leave out what is needed here
    before = settings._DEFAULT_FIRST_BUCKET_BYTES
    settings._DEFAULT_FIRST_BUCKET_BYTES = math.ceil(FIRST_BUCKET_BYTES / shrink)
    try:
        yield shrunk
    finally:
        settings._DEFAULT_FIRST_BUCKET_BYTES = before


def hook_buckets(
    parameter_elements: Sequence[int], bucket_bytes: float | None, codec: AbstractCodec, shrink: float = 1.0
) -> list[list[int]]:
    """Indices of the parameters of each of DDP's buckets, whose sizes are divided by ``shrink``.

    All in one for PowerSGD: on gloo torch's hook waits inside a callback of the thread that would serve the next
    bucket, so that two or more hang or mix their messages.
    """
    if isinstance(bare(codec), PowerSgd):
        return [list(reversed(range(len(parameter_elements))))]
    return assign(parameter_elements, bucket_bytes, shrink)


def hook_payloads(
    parameter_shapes: Sequence[Shape], bucket_bytes: float | None, codec: AbstractCodec, shrink: float = 1.0
) -> list[int]:
    """Bytes of every vector that DDP averages in one step, in order; sizes of buckets divided by ``shrink``. Pure."""
    codec = bare(codec)
    if isinstance(codec, PowerSgd):
        plain = left = right = 0  # what is no matrix worth it, all left factors, all right factors
        for shape in parameter_shapes:
            rows, cols = shape[0] if shape else 1, math.prod(shape[1:])
            rank = min(rows, cols, codec.options.rank)
            if (rows + cols) * rank * MIN_COMPRESSION_RATE < rows * cols:
                left, right = left + rows * rank, right + cols * rank
            else:
                plain += rows * cols
        return [ELEMENT_BYTES * length for length in (plain, left, right)]
    element_bytes = FP16_BYTES if isinstance(codec, Fp16) else ELEMENT_BYTES
    elements = [math.prod(shape) for shape in parameter_shapes]
    return [element_bytes * sum(elements[i] for i in bucket) for bucket in assign(elements, bucket_bytes, shrink)]


def register_hook(ddp: nn.parallel.DistributedDataParallel, codec: AbstractCodec, group: dist.ProcessGroup) -> Any:
    """Give DDP the hook that ``codec`` stands for, on ``group``; returns what PowerSGD works with, else None."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    options = bare(codec).options
    state: Any = None
    if isinstance(options, PowerSgdConfig):
        if torch.cuda.is_available() and next(ddp.parameters()).device.type == "cpu":
            raise ConfigError(
                "torch's PowerSGD hook waits for the GPU wherever there is one, and fails with a model on the "
                "processor; move the model there, start with CUDA_VISIBLE_DEVICES= in the environment, or use "
                "'powersgd'"
            )
        state = powerSGD_hook.PowerSGDState(
            process_group=group,
            matrix_approximation_rank=options.rank,
            start_powerSGD_iter=FIRST_COMPRESSED_STEP,
            min_compression_rate=MIN_COMPRESSION_RATE,
            use_error_feedback=bool(options.error_feedback),
            orthogonalization_epsilon=_EPSILON,
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif isinstance(bare(codec), Fp16):
        ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)
    return state


_ITERATIONS, _STEPS = "iterations", "steps"  # keys in the state dict


class TorchPostLocalSgdConfig(ComponentConfig):
    """Options of ``torch-post-local-sgd``.

    Attributes:
        warmup: steps at the begin in which DDP averages the gradients.
        period: steps from one average of the models to the next.
    """

    warmup: int = Field(100, ge=0)
    period: int = Field(16, ge=2)


class TorchPostLocalSgd(AbstractAlgorithm):
    """``post_localSGD_hook`` and ``PeriodicModelAverager`` of torch.distributed, after Lin et al. 2020.

    As ``PostLocalSGDOptimizer`` does it: the averager is called after each step of the optimizer. Gradients stay on
    their rank after the warm-up (``post_local_gradient_allreduce=False``): every node has one process here, so that the
    group of its own machine, which torch would average them in, has one member; and on a machine without GPU torch
    cannot make that group.
    """

    Config = TorchPostLocalSgdConfig
    copies = 4.0  # parameters, gradients, DDP's buckets, and all parameters behind one another
    options: TorchPostLocalSgdConfig
    replicas_equal = "after a round"
    virtual = True

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """Torch's own all-reduce alone: the hook and the averager call it themselves."""
        return None if collective.wraps_model else "it is torch's own code, which calls torch's all-reduce itself"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """None: the averager sends fp32."""
        return None if codec is NoCompression else "torch's averager sends parameters as they are"

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One all-reduce of all parameters every ``period`` steps; the warm-up left out."""
        size = ELEMENT_BYTES * sum(math.prod(shape) for shape in parameter_shapes)
        return collective.traffic(num_nodes, [size]).scaled(1 / self.options.period)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Gradients at first, then local steps; torch averages models in the very first of them."""
        rounds = Phase("rounds", period=self.options.period, exchanges=(1,))
        return (Phase("warm-up", self.options.warmup), rounds) if self.options.warmup else (rounds,)

    def for_timing(self) -> ComponentConfig:
        """With a short warm-up, and models are averaged more often."""
        shorter = {"warmup": min(self.options.warmup, LEAST_STEPS), "period": min(self.options.period, TIMED_PERIOD)}
        return self.options.model_copy(update=shorter)

    def attach(self, context: Context) -> AbstractRunning:
        """Wrap the model, register the hook, make the averager."""
        return RunningTorchPostLocalSgd(context, self.options)


class RunningTorchPostLocalSgd(DdpExchange):
    """One rank of ``torch-post-local-sgd``: torch's wrapper, hook and averager."""

    def __init__(self, context: Context, options: TorchPostLocalSgdConfig) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        group = context.data_group
        self._warmup, self._period = options.warmup, options.period
        state: Any = PostLocalSGDState  # untyped in torch
        self._state = state(group, None, self._warmup, post_local_gradient_allreduce=False)
        super().__init__(context, None, (self._state, post_localSGD_hook))
        self._averager = PeriodicModelAverager(self._period, self._warmup, group)
        whole = context.collective.traffic(context.members.size, [sum(self.bucket_bytes)])
        self._round_bytes = round(whole.payload_bytes_per_rank[context.members.place])

    @property
    def averages_gradients(self) -> bool:
        """While warming up."""
        return bool(self._averager.step < self._warmup)

    def finish(self) -> ExchangeReport:
        """Nothing left to wait for; what the backward pass has waited for is estimated, as for ``ddp``."""
        if self._averager.step < self._warmup:
            return super().finish()
        return ExchangeReport(ready_mono_s=emulated_time.monotonic())

    def after_update(self) -> ExchangeReport | None:
        """The averager's turn."""
        begin, sends = emulated_time.monotonic(), averages_after(self._averager.step, self._warmup, self._period)
        self._averager.average_parameters(self._context.optimizer.param_groups)
        emulated_time.catch_up(of_libraries=True)
        if not sends:
            return None
        return ExchangeReport(begin, exposed_s=emulated_time.monotonic() - begin, payload_bytes=self._round_bytes)

    def agreement_step(self, step: int) -> int:
        """The step in which models are averaged next."""
        return next_agreement(step, self._warmup, self._period)

    @property
    def agrees_now(self) -> bool:
        """By the averager's own count."""
        return self.agreement_step(self._averager.step) == self._averager.step

    def rehearse(self, plain_backward_s: float) -> None:
        """One average of the models."""
        from torch.distributed.algorithms.model_averaging.utils import average_parameters

        super().rehearse(plain_backward_s)
        assert self._context.data_group is not None
        average_parameters(self._context.model.parameters(), self._context.data_group)

    def reset(self) -> None:
        """Begin with the warm-up."""
        self._state.iter = self._averager.step = 0

    def state_dict(self) -> dict[str, torch.Tensor]:
        """How far the warm-up and the period are."""
        return {_ITERATIONS: torch.tensor(self._state.iter), _STEPS: torch.tensor(self._averager.step)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._state.iter, self._averager.step = int(state[_ITERATIONS]), int(state[_STEPS])


def next_agreement(step: int, warmup: int, period: int) -> int:
    """The first step from ``step`` on, counted from 1, in which gradients or models are averaged."""
    while step > warmup and not averages_after(step - 1, warmup, period):
        step += 1
    return step


def averages_after(step: int, warmup: int, period: int) -> bool:
    """Whether torch's averager averages in its step number ``step``, from 0."""
    return step >= warmup and (step - warmup) % period == 0
