"""What every codec offers: a gradient in, bytes for the wire out, and back."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bwbench.config.component import ComponentConfig

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


class AbstractCodec(abc.ABC):
    """Decides which bytes of a gradient go on the wire. Built from its options: ``cls(options)``; imports no torch.

    Attributes:
        Config: the class of its options.
        biased: what ``decode(encode(x))`` loses is not zero on average, so that without error feedback it would be
            lost for good. Such a codec is wrapped in ErrorFeedback unless its options say ``error_feedback: false``.
        sums_on_ring: the size of a payload depends on the number of elements alone, and a receiver may decode a part,
            add its own values and encode again. Needed by every collective that adds on the way.
        carries: its payload holds fp32 values that another codec may encode, the next one of a chain: ``inner``.
        linear: its messages are sums of numbers, which any exact collective may form (``AbstractLinearCodec``).
        inner: encodes the values that this codec carries; None sends them as they are.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    biased: ClassVar[bool] = False
    sums_on_ring: ClassVar[bool] = True
    carries: ClassVar[bool] = False
    linear: bool = False

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()
        self.inner: AbstractCodec | None = None

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
        return self

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What the codec remembers from one call to the next; empty for most."""
        return {}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")


def as_flat_fp32(x: torch.Tensor) -> torch.Tensor:
    """``x`` as a contiguous fp32 vector; the same memory where it is one already."""
    import torch

    return x.detach().reshape(-1).to(torch.float32).contiguous()
