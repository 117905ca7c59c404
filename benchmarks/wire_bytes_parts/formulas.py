"""What every preset has to send, by the definition of its method: written down here anew, asking no code of bwbench.

Four nodes and the model ``cnn`` on 28x28. All bytes are those of all nodes together.

Sent for n bytes of payload, over all N nodes: ring, scatter-gather and parameter server 2(N-1)n, all-gather N(N-1)n
(n: what one node has to say), a pair Nn, both neighbours 2Nn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NODES = 4
SHAPES = ((16, 9), (32, 144), (128, 1568), (10, 128))  # of cnn's weights: outputs, inputs of one output
VECTORS = (16, 16, 16, 32, 32, 32, 128, 10)  # biases, and the two vectors of each GroupNorm
ELEMENTS = sum(rows * cols for rows, cols in SHAPES) + sum(VECTORS)  # 207,018
S = 4 * ELEMENTS  # bytes of the gradient as fp32

EVERYONE = 2 * (NODES - 1)  # ring, scatter-gather, parameter server
ALL_GATHER = NODES * (NODES - 1)
PAIR = NODES
NEIGHBOURS = 2 * NODES

# Bytes an element: the codes, and what goes with each block of elements.
BITS_16 = 2.0
INT8 = 1.0  # and two fp32 a message
INT4 = 1 / 2 + 2 / 128
INT2 = 1 / 4 + 8 / 512
SIGN = 1 / 8 + 4 / 1024
QSGD = 1 / 2 + 2 / 512  # 15 levels
TERNGRAD = 1 / 5 + 2 / 512
NATURAL = 1 + 2 / 4096
INT8_HEADER = 8
SPARSE_HEADER = 16
SUBSET_HEADER = 16  # which bucket, which step
VOTE = 8  # of each node to each other: whether async goes on

GLOO_HEADER = 48  # before each message; "I am ready to send" and "I am ready to receive" are two more on their own
LENGTH = 8  # before a message whose receiver cannot know how long it is
FRAME_HEADERS = 66  # Ethernet 14, IP 20, TCP with timestamps 32
SEGMENT = 1448  # TCP payload of a full frame


@dataclass(frozen=True)
class Exchange:
    """One average of everything that is sent together.

    Attributes:
        payload_bytes: by the formula.
        messages: that carry it; some methods cut theirs into pieces (docs/algorithms/ring.md).
        framed: messages say how long they are.
    """

    payload_bytes: float
    messages: int
    framed: bool = False

    @property
    def wire_bytes(self) -> float:
        """The payload with the headers of TCP/IP and those of gloo's messages; none is sent twice."""
        message = self.payload_bytes / self.messages + GLOO_HEADER + (LENGTH if self.framed else 0)
        ready = 2 * (GLOO_HEADER + FRAME_HEADERS)
        return self.messages * (message + FRAME_HEADERS * math.ceil(message / SEGMENT) + ready)


@dataclass(frozen=True)
class Method:
    """How a preset is run, and what it has to send.

    Attributes:
        exchange: of the method itself.
        steps: of the whole run, warm-up included.
        exchanges: in the steps after the warm-up; None: by time, an exchange and a vote each (``async``).
        options: of the preset: periods, which the formula knows, and warm-ups, whose defaults are too long.
        warm_up: steps with an exchange of another kind each, ``warm_up_exchange``.
    """

    exchange: Exchange
    steps: int = 24
    exchanges: float | None = 24
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = "sgd"
    warm_up: int = 0
    warm_up_exchange: Exchange | None = None


def index_bytes(entries: int, elements: int) -> float:
    """Of the places of entries in clusters, as those of gradients lie, in a Rice code.

    Of each gap b low bits and a one, and all gaps together a zero for each 2^b empty places, for the best b. Entries at
    random take the entropy, 5 % less: short gaps take b low bits like long ones.
    """
    return min(entries * (b + 1) + (elements - entries) / 2**b for b in range(32)) / 8


def packed(entries: int, elements: int, value_bytes: float = 4.0) -> float:
    """What one node says of so many of ``elements``."""
    return SPARSE_HEADER + entries * value_bytes + index_bytes(entries, elements)


def sparse(ratio: float, value_bytes: float = 4.0) -> float:
    """What one node says of the largest entries."""
    return packed(round(ratio * ELEMENTS), ELEMENTS, value_bytes)


def of_a_subset(seen: float, ratio: float, value_bytes: float) -> float:
    """What one node says of the largest of a random share: places are counted among those alone."""
    elements = round(seen * ELEMENTS)
    return SUBSET_HEADER + packed(round(ratio * elements), elements, value_bytes)


def frequencies(k: int, block: int) -> float:
    """What one node says of ``k`` frequencies of each block, or of all; a length is cut by its largest divisor."""

    def size(length: int) -> int:
        return max(divisor for divisor in range(1, block + 1) if length % divisor == 0)

    entries = 0
    for rows, cols in (*SHAPES, *((1, length) for length in VECTORS)):
        of_a_block = size(rows) * size(cols)
        entries += rows * cols // of_a_block * min(k, of_a_block)
    return packed(entries, ELEMENTS)


def low_rank(rank: int) -> int:
    """Bytes that PowerSGD averages: what is no matrix, all left factors, all right factors."""
    return 4 * (sum(VECTORS) + rank * sum(rows + cols for rows, cols in SHAPES))


# gloo's all-reduce is a ring of 2N segments, so that each rank sends 4(N-1) messages.
_GLOO_MESSAGES = NODES * 4 * (NODES - 1)
# Our ring: 2(N-1) rounds in which every rank sends a chunk, cut in four.
_RING_MESSAGES = NODES * 2 * (NODES - 1) * 4
_TWO_ROUNDS = 2 * NODES * (NODES - 1)

_GLOO = Exchange(EVERYONE * S, _GLOO_MESSAGES)
_RING = Exchange(EVERYONE * S, _RING_MESSAGES)
_RING_16 = Exchange(EVERYONE * BITS_16 * ELEMENTS, _RING_MESSAGES)
_LARGEST_1_PERCENT = Method(Exchange(ALL_GATHER * sparse(0.01), ALL_GATHER, framed=True))


def _scattered(bytes_per_element: float, pieces: int = 2, header: int = 0, framed: bool = True) -> Exchange:
    """Every chunk of 1/N to its owner and its mean back to all, cut in pieces."""
    messages = pieces * _TWO_ROUNDS
    return Exchange(EVERYONE * bytes_per_element * ELEMENTS + header * messages, messages, framed)


METHODS: dict[str, Method] = {
    "ddp": Method(_GLOO),
    "ddp-fp16": Method(Exchange(EVERYONE * BITS_16 * ELEMENTS, _GLOO_MESSAGES)),
    "ddp-powersgd": Method(Exchange(EVERYONE * low_rank(2), 3 * _GLOO_MESSAGES)),  # three vectors
    "ddp-post-local-sgd": Method(
        _GLOO, steps=40, exchanges=2, options={"warmup": 8, "period": 16}, warm_up=8, warm_up_exchange=_GLOO
    ),
    "ring": Method(_RING),
    "ring-fp16": Method(_RING_16),
    "ring-bf16": Method(_RING_16),
    "ring-unpaced": Method(_RING),
    "threshold": _LARGEST_1_PERCENT,
    "top-k": _LARGEST_1_PERCENT,
    "random-k": Method(Exchange(EVERYONE * 4 * round(0.1 * ELEMENTS), _RING_MESSAGES)),
    "dgc": _LARGEST_1_PERCENT,
    "dgc-int4": Method(Exchange(ALL_GATHER * sparse(0.01, INT4), ALL_GATHER, framed=True)),
    "cocktail-sgd": Method(Exchange(ALL_GATHER * of_a_subset(0.1, 0.1, INT4), ALL_GATHER, framed=True)),
    "demo": Method(Exchange(ALL_GATHER * frequencies(32, 64), ALL_GATHER, framed=True)),
    # What is told once a window, 288 bytes in 5 steps of all nodes, is a two-thousandth of it.
    "deco-sgd": Method(Exchange(ALL_GATHER * sparse(0.01), ALL_GATHER, framed=True), options={"ratio": 0.01}),
    "powersgd": Method(Exchange(EVERYONE * low_rank(2), 2 * _TWO_ROUNDS)),  # two vectors
    "parameter-server": Method(Exchange(EVERYONE * S, EVERYONE * 4)),
    "bytegrad": Method(_scattered(INT8, header=INT8_HEADER)),
    "ef-signsgd": Method(_scattered(SIGN, pieces=1)),
    "qsgd": Method(_scattered(QSGD)),
    "terngrad": Method(_scattered(TERNGRAD)),
    "natural": Method(_scattered(NATURAL)),
    "parameter-server-sharded": Method(_scattered(4.0, pieces=4, framed=False)),
    "decentralized": Method(_RING),
    "decentralized-shift-one": Method(Exchange(PAIR * S, PAIR * 4)),
    "low-precision-decentralized": Method(
        Exchange(NEIGHBOURS * (INT8 * ELEMENTS + INT8_HEADER), NEIGHBOURS, framed=True)
    ),
    "async": Method(_RING, steps=200, exchanges=None),
    "post-local-sgd": Method(
        _RING_16, steps=40, exchanges=2, options={"warmup": 8, "period": 16}, warm_up=8, warm_up_exchange=_RING_16
    ),
    "local-sgd": Method(_RING_16, steps=32, exchanges=2, options={"period": 16}),
    "overlapped-local-sgd": Method(_RING_16, steps=128, exchanges=2, options={"period": 64}),
    "diloco": Method(_RING_16, steps=100, exchanges=2, options={"period": 50}),
    "diloco-int4": Method(_scattered(INT4), steps=100, exchanges=2, options={"period": 50}),
    "sparse-diloco": Method(
        Exchange(ALL_GATHER * sparse(0.03, INT2), ALL_GATHER, framed=True),
        steps=60,
        exchanges=2,
        options={"period": 30},
    ),
    "sparseloco": Method(  # 64 of every 4096, and 1/64 of what is left
        Exchange(ALL_GATHER * sparse(1 / 64, INT2), ALL_GATHER, framed=True),
        steps=60,
        exchanges=2,
        options={"period": 30},
    ),
    # A fragment's exchange is a quarter as large, and there are four in a period.
    "streaming-diloco": Method(
        Exchange(_scattered(INT4).payload_bytes / 4, _TWO_ROUNDS, framed=True),
        steps=100,
        exchanges=8,
        options={"period": 50, "fragments": 4},
    ),
    "muloco": Method(_RING_16, steps=60, exchanges=2, options={"period": 30}, optimizer="muon"),
    "muloco-int2": Method(_scattered(INT2), steps=60, exchanges=2, options={"period": 30}, optimizer="muon"),
    "eager-diloco": Method(_RING_16, steps=60, exchanges=2, options={"period": 30}),
    "noloco": Method(Exchange(PAIR * S, PAIR * 4), steps=100, exchanges=2, options={"period": 50}),
    "sparta": Method(Exchange(EVERYONE * 4 * round(0.005 * ELEMENTS), _TWO_ROUNDS)),
    "loscar": Method(
        Exchange(EVERYONE * 4 * round(0.1 * ELEMENTS), 2 * _TWO_ROUNDS), steps=48, exchanges=3, options={"period": 16}
    ),
    # Of six averages of the parameters, in 16 bits, two go with the first moments and one with the second, in 32.
    "des-loc": Method(
        Exchange(EVERYONE * (BITS_16 * ELEMENTS + (2 + 1) / 6 * S), _RING_MESSAGES + _RING_MESSAGES // 2),
        steps=96,
        exchanges=6,
        options={"period": 16},
        optimizer="adam",
    ),
    "qadam": Method(
        _scattered(INT8, header=INT8_HEADER),
        steps=32,
        options={"warmup_steps": 8},
        optimizer="adam",
        warm_up=8,
        warm_up_exchange=_scattered(4.0, pieces=4, framed=False),
    ),
    "one-bit-adam": Method(
        _scattered(SIGN, pieces=1),
        steps=32,
        options={"warmup_steps": 8},
        optimizer="adam",
        warm_up=8,
        warm_up_exchange=_scattered(4.0, pieces=4, framed=False),
    ),
}
