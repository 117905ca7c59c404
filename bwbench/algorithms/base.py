"""What every algorithm offers the training loop: when replicas agree, and on what."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from bwbench.collectives.base import AbstractCollective
from bwbench.compression.base import AbstractCodec
from bwbench.config.component import ComponentConfig
from bwbench.plan.traffic import Traffic

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


class Control(Protocol):
    """The control path, as an algorithm sees it: free of charge, beside the shaped link."""

    def barrier(self) -> None:
        """Wait until every rank is here."""

    def average(self, values: torch.Tensor) -> None:
        """Replace ``values`` by their mean over all ranks, the same bits everywhere."""


class Clock(Protocol):
    """The training clock, as an algorithm sees it."""

    def held(self) -> AbstractContextManager[None]:
        """The clock stands still inside."""


@dataclass(frozen=True)
class Context:
    """What the training loop gives an algorithm.

    Attributes:
        model: the replica of this rank, initialised equally on all ranks.
        collective: connected to the data network where there are peers.
        make_codec: a new codec; called once a bucket, for residuals belong to buckets.
        data_group: process group of the data network; None on one node.
        control: barrier and average on the control path.
        clock: the training clock.
    """

    model: torch.nn.Module
    collective: AbstractCollective
    make_codec: Callable[[], AbstractCodec]
    data_group: dist.ProcessGroup | None
    control: Control
    clock: Clock


@dataclass(frozen=True)
class ExchangeReport:
    """What agreeing cost in one step, in seconds of the training clock.

    Attributes:
        ready_mono_s: monotonic time at which this rank's own gradients were all there.
        exposed_s: the loop stood still for communication, codec work not counted.
        codec_s: the loop stood still while this rank encoded, decoded or added.
        hidden_s: the part of ``exposed_s`` that passed inside ``backward`` already (an estimate, torch's DDP).
        payload_bytes: sent by this rank.
    """

    ready_mono_s: float
    exposed_s: float = 0.0
    codec_s: float = 0.0
    hidden_s: float = 0.0
    payload_bytes: int = 0


class AbstractAlgorithm(abc.ABC):
    """Decides when replicas agree and on what. Built from its options, ``cls(options)``, without torch.

    The loop calls, in every optimizer step: ``clear_gradients``; for each micro-step ``micro_step`` around the forward
    pass and ``backward``; ``finish``; then it updates the parameters. All ranks do so the same number of times.

    Attributes:
        Config: the class of its options.
        needs_peers: makes no sense on one node.
        sends: uses a collective and a codec; otherwise both are ``none``.
        overlap_estimated: exposed time is an estimate, because waiting hides inside torch.
        plain_backward_s: what a backward pass takes without communication; the loop measures it while warming up.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    needs_peers: ClassVar[bool] = True
    sends: ClassVar[bool] = True

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()
        self.overlap_estimated = False
        self.plain_backward_s = 0.0

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """Why this algorithm cannot use ``collective``; None where it can."""
        if not cls.sends and collective.needs_peers:
            return "this algorithm sends nothing over the link; use collective: none"
        if cls.sends and not collective.needs_peers:
            return "this algorithm needs a collective that sends something"
        return None

    @abc.abstractmethod
    def traffic(
        self, parameter_elements: Sequence[int], num_nodes: int, collective: AbstractCollective, codec: AbstractCodec
    ) -> Traffic:
        """Payload of one optimizer step. Pure.

        Args:
            parameter_elements: elements of each parameter tensor, in the model's order.
        """

    @abc.abstractmethod
    def attach(self, context: Context) -> None:
        """Take charge of the model's gradients."""

    @property
    @abc.abstractmethod
    def module(self) -> Callable[..., torch.Tensor]:
        """What the loop calls in the forward pass: the model, or what wraps it."""

    @property
    @abc.abstractmethod
    def bucket_bytes(self) -> list[int]:
        """Sizes of the buckets that are averaged, as fp32, in the order in which they are sent."""

    @abc.abstractmethod
    def clear_gradients(self) -> None:
        """Begin an optimizer step."""

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Stands around one forward and backward pass; communication begins in the last micro-step only."""
        return nullcontext()

    @abc.abstractmethod
    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass; sending may begin while it runs."""

    @abc.abstractmethod
    def finish(self) -> ExchangeReport:
        """Wait until the gradients are those to step with.

        Raises what a communication thread raised, as soon as it did.
        """

    def drain(self) -> None:  # noqa: B027 (synchronous algorithms have nothing in flight between steps)
        """Wait until nothing of this rank is on its way."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget what was learnt while warming up: residuals and counters."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """End threads. Safe to call twice."""
