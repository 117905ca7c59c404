"""What every algorithm offers: what it says of itself, what it does on a rank, and what it remembers there.

An algorithm decides when replicas agree, and on what. The class that is registered (``AbstractAlgorithm``) only says
so: it is built from its options, and plans ask it without torch. ``attach`` gives it a model and an optimizer, and the
result (``AbstractRunning``) is one rank at work: a few verbs for the training loop, and a state for checkpoints.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.units import Memory
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Members, Round
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, Shape
from bwbench.methods.deferred import dist, torch
from bwbench.methods.memory import State, remember, remembered
from bwbench.methods.phases import Phase
from bwbench.methods.roles import Role
from bwbench.methods.traffic import Traffic
from bwbench.records.schema import Chosen

FIRST_BUCKET_BYTES = 1024 * 1024  # as torch's DDP: a small first one, so that sending begins early in the backward
BUCKET_BYTES = 25 * 1024 * 1024  # as torch's DDP
ELEMENT_BYTES = 4
Agreement: TypeAlias = Literal["after every step", "after a round", "never"]
NonFinite: TypeAlias = Literal["nan", "inf"]


class BucketsConfig(ComponentConfig):
    """Of a method that has no other option, and what others add theirs to.

    Attributes:
        bucket_bytes: size of a bucket, as fp32. None takes torch's own sizes: 1 MiB for the first, 25 MiB for the
            others. Each one costs the latency, the messages and the codec calls of a whole exchange.
    """

    bucket_bytes: Memory | None = Field(None, alias="bucket")


class AbstractAlgorithm(abc.ABC):
    """What a method says of itself. Built from its options, ``cls(options)``; imports no torch before ``attach``.

    Attributes:
        Config: the class of its options.
        needs_peers: makes no sense on one node.
        sends: uses a collective and a codec; otherwise both are ``none``.
        averages_partially: can use a collective that is not exact (gossip).
        preferred_collective: name of the collective that it is made for; ``collective: auto`` takes it where it fits.
        optimizers: names of the optimizers that it works with; empty for all.
        rates: learning rates that a search begins with, three or more, rising, where its own rule makes those of the
            optimizer the wrong ones; empty takes these.
        replicas_equal: when all ranks hold the same bits, with default options but for lengths of time and an exact
            collective: ``after every step``; ``after a round``, which is a step that is its own ``agreement_step``; or
            ``never``.
        role: what the arm is in a comparison: a ``method`` that could be used, the ``reference`` of one node alone, or
            the ``headroom`` that averages at no cost.
        mean_of: what it averages over all ranks in every step, where it does nothing else; None for all others. Arms
            that average the same up to rounding are kin: they learn alike, and only their times differ.
        steps_alike: there is one kind of steps, for ``phases``.
        virtual: works where the ranks are threads of one process that take turns (virtual nodes): what it computes does
            not depend on time, it starts no threads but a ``Communicator``'s and no processes, and keeps nothing
            outside of its objects.
        fixed_time: what takes the machine's time whatever the training's is, and what to do; None where nothing does.
        tells_rate: what is sent are gradients, each for the very next update, and codecs are told its learning rate.
        copies: fp32 copies of the model that a rank holds at most, parameters and gradients among them; without what
            optimizer, codecs and collective hold.
        keeps_residual: keeps that of its codec whatever its options say.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    needs_peers: ClassVar[bool] = True
    sends: ClassVar[bool] = True
    averages_partially: ClassVar[bool] = False
    preferred_collective: ClassVar[str | None] = None
    optimizers: ClassVar[tuple[str, ...]] = ()
    rates: ClassVar[tuple[float, ...]] = ()
    replicas_equal: ClassVar[Agreement] = "after every step"
    role: ClassVar[Role] = "method"
    mean_of: ClassVar[str | None] = None
    steps_alike: ClassVar[bool] = False
    tells_rate: ClassVar[bool] = False
    keeps_residual: ClassVar[bool] = False
    virtual: ClassVar[bool] = False
    fixed_time: ClassVar[str | None] = None
    copies: float = 5.0

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()

    @property
    def bucket_bytes(self) -> float | None:
        """The size of its buckets that was asked for; None for torch's own."""
        size: float | None = getattr(self.options, "bucket_bytes", None)
        return size

    @classmethod
    def missing(cls) -> str | None:
        """What has to be installed before this algorithm can run here; None where nothing has."""
        return None

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """Why this algorithm cannot use ``collective``; None where it can."""
        if not cls.sends and collective.needs_peers:
            return "this algorithm sends nothing over the link; use collective: none"
        if cls.sends and not collective.needs_peers:
            return "this algorithm needs a collective that sends something"
        if cls.sends and not collective.exact and not cls.averages_partially:
            return "it averages over some of the ranks only, and this algorithm needs the mean over all"
        return None

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Why what this algorithm sends cannot be sent with ``codec``; None where it can."""
        return None

    @classmethod
    def accepts_optimizer(cls, name: str, options: ComponentConfig) -> str | None:
        """Why this algorithm cannot work with an optimizer of this name and these options; None where it can."""
        if not cls.optimizers or name in cls.optimizers:
            return None
        return f"it has its own update rule, which belongs to {' or '.join(cls.optimizers)}"

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """Payload of one optimizer step, the mean over a period where steps differ. Pure.

        By default one exchange of every bucket; nothing where nothing is sent.

        Args:
            parameter_shapes: shape of each parameter tensor, in the model's order.
            make_codec: a codec without error feedback, not prepared yet.
        """
        if not self.sends:
            return Traffic.none(num_nodes)
        return collective.traffic(num_nodes, bucket_payloads(parameter_shapes, self.bucket_bytes, make_codec))

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Which kinds of steps there are, so that a few of each can stand for all of them. Pure.

        Empty, the default where not all are alike, says nothing about it: times to accuracy then cannot be composed.
        """
        return (Phase("training"),) if self.steps_alike else ()

    def takes_gradients_as_sent(self, collective: AbstractCollective) -> bool:
        """Whether nobody looks at a gradient before its bucket is sent, and at parameters never. Pure.

        Then both may lie on torch's meta device where nothing is learnt: ``Context.write_gradient`` gives the values.
        """
        return False

    def depends_on_link(self) -> str | None:
        """Why what a step computes depends on the link's speed; None where it only takes longer or shorter. Pure."""
        return None

    def for_timing(self) -> ComponentConfig:
        """Options with which a short run meets steps of every kind, each taking as long as with its own options. Pure.

        Phases that have an end are shortened to ``LEAST_STEPS``, rounds that wait at once come more often.
        """
        return self.options

    def as_searched(self) -> ComponentConfig:
        """Options with which its learning rate is searched, where there is no link. Pure.

        Its own, unless they leave something open that follows from what a link does.
        """
        return self.options

    @abc.abstractmethod
    def attach(self, context: Context) -> AbstractRunning:
        """The method at work on this rank, in charge of the model's gradients. Sends nothing to speak of.

        Raises ConfigError where the method cannot work with what the context holds.
        """


class Control(Protocol):
    """The control path, as an algorithm sees it: free of charge, beside the shaped link."""

    def barrier(self) -> None:
        """Wait until every rank is here."""

    def meet(self, clock: Clock) -> float:
        """As ``barrier``, on the training clock; the seconds of it that the last one was waited for."""

    def average(self, values: torch.Tensor) -> None:
        """Replace ``values`` by their mean over all ranks, the same bits everywhere."""

    def diverged(self, what: str) -> None:
        """Something of the present step is not finite here: let training end, on all ranks, saying so.

        To be called before this rank sends what it has found wanting, from any thread.
        """


def average_over(group: dist.ProcessGroup | None, values: torch.Tensor) -> None:
    """What ``Control.average`` does, over a group of the control path; None is one rank, and nothing to do."""
    if group is not None:
        group.allreduce([values]).wait()
        values /= group.size()


class UserLoop(Protocol):
    """A training loop that is not ours: gradients may change between backward pass and update, or be thrown away."""

    def non_finite(self, parameter: int, kind: NonFinite) -> None:
        """The gradient of a parameter, counted among the trainable ones, is not finite on this rank; from any thread.

        To be called before ``finish``. Nothing ends: what becomes of such a step is the user's.
        """


class Clock(Protocol):
    """The training clock, as an algorithm sees it."""

    def held(self) -> AbstractContextManager[None]:
        """The clock stands still inside."""

    def now_s(self) -> float:
        """Training seconds so far."""

    def put_forward(self, to_s: float) -> None:
        """While it is held: show ``to_s``, unless that is earlier than what it shows."""


@dataclass(frozen=True)
class Context:
    """What a method gets to work with on one rank.

    Attributes:
        model: the replica of this rank, initialised equally on all ranks.
        optimizer: over the model's parameters.
        collective: connected to the data network where there are peers.
        make_codec: a new codec; use ``codec_of``, once a bucket, for residuals belong to buckets.
        data_group: process group of the data network; None on one node.
        control: barrier and average on the control path.
        clock: the training clock.
        members: who trains together, and this rank's place among them.
        shrink: bytes of a bucket are divided by it, as those of the model are (``shrink``).
        write_gradient: puts the gradient of a trainable parameter, by its number, into an fp32 vector of its length;
            where gradients lie on torch's meta device. None where they have memory of their own.
        declared_backward_s: what a backward pass of the present step is declared to take, where it waits and does not
            compute; None where it takes what it computes.
        user_loop: the loop is a user's own, not the harness's: what of gradients leaves in the update is taken when
            that is called, and values that are not finite are told to it and not to ``control``.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    collective: AbstractCollective
    make_codec: MakeCodec
    data_group: dist.ProcessGroup | None
    control: Control
    clock: Clock
    members: Members
    user_loop: UserLoop | None = None
    shrink: float = 1.0
    write_gradient: Callable[[int, torch.Tensor], None] | None = None
    declared_backward_s: Callable[[], float] | None = None

    def codec_of(self, shapes: Sequence[Shape], bucket: int) -> AbstractCodec:
        """The codec of a bucket that holds tensors of these shapes behind one another."""
        codec = self.make_codec()
        codec.prepare(shapes, self.members.place, bucket)
        return codec

    def forget(self, codecs: Sequence[AbstractCodec]) -> None:
        """Codecs and collective remember nothing, and nothing has been counted yet."""
        remember({}, codecs, self.collective)
        self.collective.reset()
        self.collective.meter.take()

    def rounds(self, num_buckets: int) -> list[Round]:
        """The round of each bucket, over all members, tagged with the bucket's number."""
        return [Round(number, self.members) for number in range(num_buckets)]


@dataclass(frozen=True)
class ExchangeReport:
    """What agreeing cost in one step, in seconds of the training clock.

    Attributes:
        ready_mono_s: monotonic time at which this rank's own gradients were all there.
        exposed_s: the loop stood still for communication, codec work not counted.
        codec_s: the loop stood still while this rank encoded, decoded or added.
        hidden_s: the part of ``exposed_s`` that passed inside ``backward`` already (an estimate, torch's DDP).
        payload_bytes: sent by this rank.
        chosen: what a method that adapts to its link has chosen in this step; None where nothing was.
    """

    ready_mono_s: float
    exposed_s: float = 0.0
    codec_s: float = 0.0
    hidden_s: float = 0.0
    payload_bytes: int = 0
    chosen: Chosen | None = None

    def plus(self, other: ExchangeReport) -> ExchangeReport:
        """Both of one step; ``ready_mono_s`` is that of the one that took longer."""
        longer = self if self.exposed_s >= other.exposed_s else other
        return ExchangeReport(
            ready_mono_s=longer.ready_mono_s,
            exposed_s=self.exposed_s + other.exposed_s,
            codec_s=self.codec_s + other.codec_s,
            hidden_s=self.hidden_s + other.hidden_s,
            payload_bytes=self.payload_bytes + other.payload_bytes,
            chosen=self.chosen or other.chosen,
        )


class AbstractRunning(abc.ABC):
    """A method at work on one rank: what it does, and what it remembers there apart from parameters and optimizer.

    The loop calls, in every optimizer step: ``begin_step``; ``micro_step`` around each forward and backward pass;
    ``gradients_ready``; ``finish``; ``update``; ``after_update``. All ranks do so the same number of times.

    Around them: ``resume``, steps that warm up, ``rehearse``, ``drain``, ``reset``; ``resume``, training, ``drain``
    before each evaluation and ``resume`` behind it; at the end ``drain`` and ``close``. ``reset`` forgets what was
    learnt while warming up, residuals and counters, once the parameters are as at the begin. ``state_dict`` is asked
    after ``drain``; what it gave is taken back once parameters and optimizer have been restored.

    Attributes:
        module: what the loop calls in the forward pass: the model, or what wraps it.
        bucket_bytes: sizes of the buckets that are averaged, as fp32, in the order in which they are sent.
        overlap_estimated: exposed time is an estimate, because waiting hides inside torch.
    """

    _codecs: Sequence[AbstractCodec] = ()  # of what is sent; what they and the collective remember is the state
    _steps_key: ClassVar[str | None] = None  # in the state: of the number of steps, where a method counts them

    def __init__(self, context: Context) -> None:
        self._context = context
        self.module: Callable[..., torch.Tensor] = context.model
        self.bucket_bytes: list[int] = []
        self.overlap_estimated = False
        self._num_steps = 0

    @property
    def averages_gradients(self) -> bool:
        """Whether all ranks exchange gradients, or what is made of them, in the present step."""
        return False

    @abc.abstractmethod
    def begin_step(self) -> None:
        """Begin an optimizer step: gradients are zero."""

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """Stands around one forward and backward pass; sending begins in the last micro-step only, while it runs."""
        return nullcontext()

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:  # noqa: B027 (see below)
        """The last backward pass of the step is over: look for values that are not finite, unless that is done.

        They are reported by ``Control.diverged`` and set to zero. Whoever sends gradients looks at them before. In a
        loop of the user's they are reported to that, before this returns, and set to zero only where they are sent.

        Args:
            backward_began_mono_s: monotonic time at which that pass began; None where nobody has seen it begin.
        """

    @abc.abstractmethod
    def finish(self) -> ExchangeReport:
        """Wait until the gradients are those to step with.

        Raises what a communication thread raised, as soon as it did.
        """

    def update(self) -> None:
        """Update the parameters with the gradients that are there."""
        self._context.optimizer.step()

    def after_update(self) -> ExchangeReport | None:
        """What follows the update, e.g. averaging parameters; None where nothing was sent or waited for."""
        return None

    def agreement_step(self, step: int) -> int | None:
        """The first step from ``step`` on that no rank completes before all others have their gradients of ``step``.

        Ranks that want to stop ask for it there. None where there is no such step: they then stop at an evaluation.
        """
        return step

    def pass_of_zeros(self) -> None:  # noqa: B027 (most take gradients as they are)
        """In place of a backward pass, in a step in which this rank has nothing to add, where peers wait for one."""

    def stand_by(self) -> None:  # noqa: B027 (most do nothing there)
        """What peers wait for in a forward pass, on a rank that has none while it waits for them; between steps."""

    @property
    def agrees_now(self) -> bool:
        """All ranks agree in the step whose update is over, and nothing is on its way; the same on all ranks."""
        return self.agreement_step(self._num_steps) == self._num_steps

    def rehearse(self, plain_backward_s: float) -> None:  # noqa: B027 (who exchanges in every step has done so)
        """Exchange once off the clock what is exchanged rarely, so that connections are warm. Results are undone.

        Args:
            plain_backward_s: what a backward pass takes without communication.
        """

    def drain(self) -> int:
        """Wait until nothing of this rank is on its way, and start nothing before ``resume``.

        Returns the payload bytes that this rank has sent since its last report.
        """
        return 0

    def resume(self) -> None:  # noqa: B027 (most do nothing in the background)
        """Go on with what ``drain`` has stopped."""

    def sending_state(self) -> State:
        """What sending gradients changes on this rank: for a step that may be thrown away once they were sent."""
        return remembered(self._codecs, self._context.collective)

    def restore_sending(self, state: State) -> None:
        """Take back what ``sending_state`` gave: what was sent since then counts as not sent."""
        remember(state, self._codecs, self._context.collective)

    def reset(self) -> None:
        """Forget what was learnt while warming up: residuals, counters."""
        self._num_steps = 0
        self._context.forget(self._codecs)

    def pass_over(self, num_steps: int) -> None:
        """Count so many steps as taken, which nobody has: where what they would have taught does not matter."""
        self._num_steps = num_steps

    def state_dict(self) -> State:
        """What codecs and collective remember, and whatever else an update needs; on every rank its own."""
        counted = {} if self._steps_key is None else {self._steps_key: torch.tensor(self._num_steps)}
        return counted | remembered(self._codecs, self._context.collective)

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        if self._steps_key is not None:
            self._num_steps = int(state[self._steps_key])
        remember(state, self._codecs, self._context.collective)

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """End threads. Safe to call twice."""


def assign(parameter_elements: Sequence[int], bucket_bytes: float | None, shrink: float = 1.0) -> list[list[int]]:
    """Indices of the parameters of each bucket, in the order in which backward passes give gradients: last first.

    A bucket is full once it holds its size or more, as in torch's DDP.

    Args:
        parameter_elements: elements of each parameter, in the model's order.
        bucket_bytes: size of each bucket; None takes torch's defaults, 1 MiB for the first and 25 MiB for the others.
        shrink: all of these sizes are divided by it.
    """
    buckets: list[list[int]] = []
    current: list[int] = []
    size = 0
    for index in reversed(range(len(parameter_elements))):
        current.append(index)
        size += ELEMENT_BYTES * parameter_elements[index]
        limit = bucket_bytes or (BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES)
        if size >= limit / shrink:
            buckets.append(current)
            current, size = [], 0
    return [*buckets, current] if current else buckets


def bucket_payloads(parameter_shapes: Sequence[Shape], bucket_bytes: float | None, make_codec: MakeCodec) -> list[int]:
    """Bytes of every message that one exchange of all buckets takes, in order. Pure."""
    buckets = assign([math.prod(shape) for shape in parameter_shapes], bucket_bytes)
    return payloads_of([[parameter_shapes[index] for index in bucket] for bucket in buckets], make_codec)


def payloads_of(buckets: Sequence[Sequence[Shape]], make_codec: MakeCodec) -> list[int]:
    """The same for buckets that hold tensors of these shapes."""
    payloads = []
    for number, shapes in enumerate(buckets):
        codec = make_codec()
        codec.prepare(shapes, bucket=number)
        payloads += codec.payloads(sum(map(math.prod, shapes)))
    return payloads
