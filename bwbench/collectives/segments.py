"""How a message is cut, so that its first part is already on the way on while the last one still arrives."""

from __future__ import annotations

from bwbench.compression.base import AbstractCodec

# Below this a segment is little more than two frames: gloo's own messages (48 bytes of header, and an announcement of
# the receive buffer that is a frame of its own) would cost more than the pipeline gains.
SMALLEST_SEGMENT_BYTES = 4096
# A round of a ring takes the longer of (its chunk) and (one segment + the latency). Four segments leave no gap as soon
# as a chunk takes 4/3 of the latency; more of them cost processor time on every node and gain at most that third.
FEWEST_WHEN_LARGE = 4
# No larger, so that decoding and adding (1 GB/s and more) never hold up the link for long.
LARGEST_SEGMENT_BYTES = 256 * 1024
ALIGNMENT_BYTES = 8  # of payloads inside a buffer, so that they can be read as any type of number

Span = tuple[int, int]  # first element and the one after the last


def cut(begin: int, end: int, codec: AbstractCodec) -> list[Span]:
    """Spans of nearly equal length that cover ``begin`` to ``end``; none where that is empty.

    Depends on nothing but its arguments, so that sender and receiver cut alike.
    """
    num_elements = end - begin
    if num_elements <= 0:
        return []
    count = min(segment_count(codec.payload_bytes(num_elements)), num_elements)
    return [(begin + num_elements * i // count, begin + num_elements * (i + 1) // count) for i in range(count)]


def segment_count(payload_bytes: int) -> int:
    """How many segments a payload is cut into."""
    count = min(FEWEST_WHEN_LARGE, payload_bytes // SMALLEST_SEGMENT_BYTES)
    return max(1, count, -(-payload_bytes // LARGEST_SEGMENT_BYTES))


def chunks(num_elements: int, num_chunks: int) -> list[Span]:
    """``num_chunks`` spans of nearly equal length; some are empty where there are fewer elements."""
    return [(num_elements * i // num_chunks, num_elements * (i + 1) // num_chunks) for i in range(num_chunks)]


def aligned(num_bytes: int) -> int:
    """``num_bytes`` rounded up to the alignment of payloads."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
