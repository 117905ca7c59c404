"""What every codec offers: a gradient in, bytes for the wire out, and back."""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bwbench.base.component import ComponentConfig

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


class AbstractCodec(abc.ABC):
    """Decides which bytes of a gradient go on the wire. Built from its options: ``cls(options)``; imports no torch.

    Attributes:
        Config: the class of its options.
        biased: what ``decode(encode(x))`` loses is not zero on average, so that without error feedback it would be
            lost for good. Such a codec is wrapped in ErrorFeedback unless its options say ``error_feedback: false``.
        lossless: every value arrives as it was sent.
        sums_on_ring: the size of a payload depends on the number of elements alone, and a receiver may decode a part,
            add its own values and encode again. Needed by every collective that adds on the way.
        carries: its payload holds fp32 values that another codec may encode, the next one of a chain: ``inner``.
        keeps_residual: keeps what it leaves out itself and adds it to what it gets next, so it needs no ErrorFeedback.
        linear: its messages are sums of numbers, which any exact collective may form (``AbstractLinearCodec``).
        late_residual: most of a gradient arrives many steps late; a momentum in the optimizer multiplies that.
        inner: encodes the values that this codec carries; None sends them as they are.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    biased: ClassVar[bool] = False
    lossless: ClassVar[bool] = False
    sums_on_ring: ClassVar[bool] = True
    carries: ClassVar[bool] = False
    keeps_residual: ClassVar[bool] = False
    late_residual: ClassVar[bool] = False
    linear: bool = False

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()
        self.inner: AbstractCodec | None = None

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

        Exact where ``sums_on_ring`` is true, else what to expect of a gradient.
        """

    @abc.abstractmethod
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The payload of ``x``.

        Args:
            x: float values of any shape, dtype and layout; taken as fp32 and flattened. Not changed.

        Returns:
            uint8 of shape [num_bytes]. It may share memory with ``x``, which must stay as it is until it is sent.
        """

    @abc.abstractmethod
    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values of a payload.

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

    def fresh(self) -> AbstractCodec:
        """A codec with the same options, prepared alike, that remembers nothing; itself where there is no memory."""
        if self.inner is None or (inner := self.inner.fresh()) is self.inner:
            return self
        other = copy.copy(self)
        other.inner = inner
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


def as_flat_fp32(x: torch.Tensor) -> torch.Tensor:
    """``x`` as a contiguous fp32 vector; the same memory where it is one already."""
    import torch

    return x.detach().reshape(-1).to(torch.float32).contiguous()
