"""Messages whose length the receiver cannot know: the payload behind its length, in one message.

gloo lets a message be shorter than the receive buffer, but does not say how long it was. With the length in front, a
receiver posts a buffer of the largest possible size and no extra message has to cross the link first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwbench.methods.collectives.segments import ALIGNMENT_BYTES
from bwbench.methods.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch

LENGTH_BYTES = ALIGNMENT_BYTES  # an int64


def buffer_bytes(codec: AbstractCodec, num_elements: int) -> int:
    """Room for any message of ``num_elements``."""
    if codec.sums_on_ring:
        return codec.payload_bytes(num_elements)
    return LENGTH_BYTES + codec.max_payload_bytes(num_elements)


def frame(codec: AbstractCodec, payload: torch.Tensor) -> torch.Tensor:
    """The message that carries ``payload``; the payload itself where its length is known anyway."""
    return payload if codec.sums_on_ring else pack(payload)


def unframe(codec: AbstractCodec, message: torch.Tensor) -> torch.Tensor:
    """The payload inside a message that ``frame`` has made, sharing its memory. Raises as ``unpack`` does."""
    return message if codec.sums_on_ring else unpack(message)


def pack(payload: torch.Tensor) -> torch.Tensor:
    """A message that says how long ``payload`` is, and holds a copy of it."""
    import torch

    message = torch.empty(LENGTH_BYTES + payload.numel(), dtype=torch.uint8)
    message[:LENGTH_BYTES].view(torch.int64)[0] = payload.numel()
    message[LENGTH_BYTES:] = payload
    return message


def unpack(message: torch.Tensor) -> torch.Tensor:
    """The payload inside a received message, sharing its memory.

    Raises RuntimeError where the message is none of ``pack``'s: ranks disagree about what they exchange.
    """
    import torch

    length = int(message[:LENGTH_BYTES].view(torch.int64)[0])
    if not 0 <= length <= message.numel() - LENGTH_BYTES:
        raise RuntimeError(f"a message claims {length} bytes in a buffer of {message.numel()}: the ranks disagree")
    return message[LENGTH_BYTES : LENGTH_BYTES + length]
