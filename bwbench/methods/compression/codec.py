"""What every codec offers: a gradient in, bytes for the wire out, and back.

Beside the base class stand the codec that changes nothing, and the base of those whose messages are plain sums.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias, Union

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import on_host
from bwbench.methods.deferred import torch

Shape = tuple[int, ...]
# Replaces an fp32 vector by its mean over all ranks, the same bits everywhere. A collective gives it to a codec.
AverageMessage = Callable[["torch.Tensor"], None]
Rate: TypeAlias = Union[float, "torch.Tensor"]  # a learning rate, or one for each element: fp32 of shape [num_elements]
ALIGNMENT_BYTES = 8  # of the messages inside a payload, so that they can be read as any type of number


class AbstractCodec(abc.ABC):
    """Decides which bytes of a gradient go on the wire. Built from its options: ``cls(options)``; imports no torch.

    Attributes:
        Config: the class of its options.
        biased: what ``decode(encode(x))`` loses is not zero on average, so that without error feedback it would be
            lost for good. Such a codec is wrapped in ErrorFeedback unless its options say ``error_feedback: false``.
        lossless: every value arrives as it was sent.
        rounds: every value arrives as it was sent but for rounding, to half precision at the coarsest: training goes
            as without, and arms that differ in nothing else are kin. Without loss it is declared by ``lossless``.
        sums_on_ring: the size of a payload depends on the number of elements alone, and a receiver may decode a part,
            add its own values and encode again. Needed by every collective that adds on the way.
        carries: its payload holds fp32 values that another codec may encode, the next one of a chain: ``inner``.
        keeps_residual: keeps what it leaves out itself and adds it to what it gets next, so it needs no ErrorFeedback.
        linear: its messages are sums of numbers, which any exact collective may form (``AbstractLinearCodec``).
        late_residual: most of a gradient arrives many steps late; a momentum in the optimizer multiplies that.
        inner: encodes the values that this codec carries; None sends them as they are.
        follows_rate: what it remembers depends on ``rate``, which has to be told it.
        rate: the learning rate of the update that the next input goes into; set by whoever runs the codec.
        kept_copies: fp32 copies of what it encodes that it remembers from one call to the next.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    biased: ClassVar[bool] = False
    lossless: ClassVar[bool] = False
    rounds: ClassVar[bool] = False
    sums_on_ring: ClassVar[bool] = True
    carries: ClassVar[bool] = False
    keeps_residual: ClassVar[bool] = False
    late_residual: ClassVar[bool] = False
    linear: bool = False
    follows_rate: bool = False
    kept_copies: float = 0.0
    rate: Rate = 1.0

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()
        self.inner: AbstractCodec | None = None

    @property
    def value_codec(self) -> AbstractCodec:
        """What encodes the values that this codec carries: ``inner``, or nothing does."""
        return _PLAIN if self.inner is None else self.inner

    @classmethod
    def accepts_optimizer(cls, options: ComponentConfig) -> str | None:
        """Why this codec does not go with an optimizer of these options; None where it does. Pure."""
        return None

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Learn what will be encoded; called once, before anything is. Imports no torch.

        Args:
            shapes: of the tensors that lie behind one another in the flat vectors to come; their elements add up to
                its length.
            rank: of this node, for codecs whose random numbers have to differ between nodes.
            bucket: number of the bucket, for codecs whose random numbers have to differ between buckets.
        """
        if self.inner is not None:
            self.inner.prepare((), rank, bucket)

    @abc.abstractmethod
    def payload_bytes(self, num_elements: int) -> int:
        """Bytes of the payload of a tensor of ``num_elements``, known without encoding it.

        Exact where ``sums_on_ring`` is true, and where it is ``max_payload_bytes``; else what to expect of a gradient.
        """

    @abc.abstractmethod
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The payload of ``x``. Random numbers come from a generator of the codec's own, seeded by rank, bucket and a
        number of the call that ``state_dict`` keeps.

        Args:
            x: float values of any shape, dtype and layout; taken as fp32 and flattened. Not changed.

        Returns:
            uint8 of shape [num_bytes]. It may share memory with ``x``, which must stay as it is until it is sent.
        """

    @abc.abstractmethod
    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values of a payload, the same bits on every rank.

        Who decodes is mostly another rank's codec, which has encoded another tensor or none. So it uses the payload,
        the options, and the shapes and bucket of ``prepare``; nothing that ``encode`` has left here, and no rank.

        Args:
            payload: uint8 of shape [num_bytes], as ``encode`` gave it; its storage offset is a multiple of 8 bytes.
            num_elements: length of the tensor that was encoded.

        Returns:
            fp32 of shape [num_elements]. It may share memory with ``payload``.
        """

    def payloads(self, num_elements: int) -> list[int]:
        """Bytes of every message that one exchange of ``num_elements`` takes, in order: one for most codecs."""
        return [self.payload_bytes(num_elements)]

    def max_payload_bytes(self, num_elements: int) -> int:
        """No payload of ``num_elements`` is larger than this: what a receiver has to make room for."""
        return self.payload_bytes(num_elements)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the values of a payload to ``total``, fp32 of shape [num_elements]."""
        total += self.decode(payload, total.numel())

    def encode_keeping_excess(self, x: torch.Tensor, excess: torch.Tensor) -> torch.Tensor | None:
        """The payload of ``x - excess``, and that of it which is too much left in ``excess``: for error feedback.

        What ``excess -= x``, ``encode(-excess)`` and ``decode_add(payload, excess)`` would leave, to the same bits, in
        fewer passes. None where a codec has no such way, as most, and nothing is changed.

        Args:
            x, excess: fp32 of shape [num_elements], contiguous, in host memory.
        """
        return None

    def fresh(self) -> AbstractCodec:
        """A codec with the same options, prepared alike, that remembers nothing."""
        other = copy.copy(self)
        other.inner = None if self.inner is None else self.inner.fresh()
        other.load_state_dict({})
        return other

    def answering(self) -> AbstractCodec:
        """As ``fresh``, for means on their way back: without what belongs to gradients alone, such as a momentum."""
        return self.fresh()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What the codec, and ``inner``, remember from one call to the next; empty for most."""
        return {} if self.inner is None else {f"inner.{key}": value for key, value in self.inner.state_dict().items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict forgets everything."""
        inside = {key.removeprefix("inner."): value for key, value in state.items() if key.startswith("inner.")}
        if self.inner is not None:
            self.inner.load_state_dict(inside)
        if len(inside) < len(state) or (inside and self.inner is None):
            raise ValueError(f"{type(self).__name__} keeps no such state, got {sorted(state)}")


as_flat_fp32 = on_host  # under this name for codecs
MakeCodec: TypeAlias = Callable[[], AbstractCodec]  # a new one, bare or with error feedback, not prepared yet


class NoCompression(AbstractCodec):
    """Sends the memory of the tensor itself, without a copy on either side."""

    lossless = True

    def payload_bytes(self, num_elements: int) -> int:
        """4 bytes an element, exactly."""
        return 4 * num_elements

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The bytes of ``x``, sharing its memory."""
        return as_flat_fp32(x).view(torch.uint8)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values, sharing the payload's memory."""
        return payload.view(torch.float32)


_PLAIN = NoCompression()


class AbstractLinearCodec(AbstractCodec):
    """A codec that takes part in the averaging, because the mean of what all ranks send is the message of the mean.

    Low-rank factors and entries at positions that all ranks share are such: their sums do not fill in, and travel along
    a ring as dense vectors do. ``inner`` encodes the messages and must be a codec that the collective accepts.
    ``encode`` and ``decode`` are those of a rank on its own: the payload is its messages behind one another.
    """

    linear = True
    carries = True
    sums_on_ring = False  # its messages do, a payload does not

    @abc.abstractmethod
    def average(self, x: torch.Tensor, average_message: AverageMessage) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of ``x`` over all ranks as far as this codec can tell it, by one or more averaged messages.

        Collective: all ranks call it with equally long vectors.

        Args:
            x: fp32 of shape [num_elements]. Not changed.
            average_message: called once for each entry of ``payloads``, with vectors of those sizes.

        Returns:
            mean: fp32 of shape [num_elements], the same bits on every rank.
            sent: of the same shape, what of this rank's ``x`` has gone into the mean; the rest is a residual. What
                ``inner`` rounds away is not told apart.
        """

    @abc.abstractmethod
    def message_elements(self, num_elements: int) -> list[int]:
        """Lengths of the vectors that ``average`` averages, in order. Pure; imports no torch."""

    def payloads(self, num_elements: int) -> list[int]:
        """Bytes of each averaged message, as ``inner`` encodes it."""
        return [self.value_codec.payload_bytes(length) for length in self.message_elements(num_elements)]

    def _alone(self, messages: list[torch.Tensor]) -> AverageMessage:
        """An ``average_message`` of a rank on its own: keeps each payload, gives back what it decodes to."""

        def keep(message: torch.Tensor) -> None:
            messages.append(self.value_codec.encode(message).clone())
            message.copy_(self.value_codec.decode(messages[-1], message.numel()))

        return keep

    def _messages(self, payload: torch.Tensor, num_elements: int) -> list[torch.Tensor]:
        """The messages, fp32, in a payload: behind one another, each but the last padded to the alignment."""
        messages, offset = [], 0
        for length, size in zip(self.message_elements(num_elements), self.payloads(num_elements), strict=True):
            offset += -offset % ALIGNMENT_BYTES
            messages.append(self.value_codec.decode(payload[offset : offset + size], length))
            offset += size
        return messages
