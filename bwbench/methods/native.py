"""Passes of codecs and a ring in C: where they were compiled, this processor can run them, and bits are equal.

Compiled from ``native.c``, ``native_sparse.c`` and ``native_ring.c`` while the package is built, where there is a
compiler; no part of Python is needed for it. Where that is missing, or not for this processor, codecs do the same with
torch and numpy, and rings with gloo, more slowly and to the same bits. Two of torch's results depend on its build and
on the processor: whether it rounds a product that it adds something to, and in which order it adds up a row. Both are
tried when a codec first asks, and what does not agree is left out.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bwbench.methods.deferred import np, torch

LIBRARY = Path(__file__).with_name("native.compiled.so")
VERSION = 2  # of the functions; native.c has the same
SWITCH = "BWBENCH_CODECS"  # the environment's word for doing without: "python"
LARGEST_BLOCK = 32_760  # of signs: a longer row is summed by several threads of torch, where it has some

_FLOATS, _BYTES, _PLACES = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
_COUNT, _FLAG = ctypes.c_int64, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "to_halves": (_FLAG, [_FLOATS, _COUNT, _BYTES]),
    "from_halves": (_FLAG, [_BYTES, _COUNT, _FLOATS]),
    "add_halves": (_COUNT, [_BYTES, _COUNT, _FLOATS]),
    "to_codes": (_FLAG, [_FLOATS, _COUNT, _COUNT, ctypes.c_double, _FLAG, _COUNT, _FLOATS, _FLOATS, _BYTES]),
    "from_codes": (_FLAG, [_BYTES, _COUNT, _COUNT, _FLOATS, _FLOATS, _FLAG, _FLOATS]),
    "to_signs": (_COUNT, [_FLOATS, _COUNT, _COUNT, _FLOATS, _BYTES]),
    "to_signs_with_excess": (_COUNT, [_FLOATS, _FLOATS, _COUNT, _COUNT, _FLOATS, _BYTES]),
    "from_signs": (_FLAG, [_BYTES, _COUNT, _COUNT, _FLOATS, _FLAG, _FLOATS]),
    "sample": (None, [_FLOATS, _COUNT, _COUNT, _BYTES]),
    "at_least": (_COUNT, [_FLOATS, _COUNT, _COUNT, ctypes.c_int32, _PLACES, _COUNT, ctypes.c_void_p]),
    "magnitudes_at": (None, [_FLOATS, _PLACES, _COUNT, _BYTES]),
    "rank": (ctypes.c_int32, [_BYTES, _COUNT, _COUNT]),
    "keep_at_least": (_COUNT, [_PLACES, _BYTES, _COUNT, ctypes.c_int32]),
    "encode_places": (_COUNT, [_PLACES, _COUNT, _COUNT, _COUNT, _BYTES]),
    "decode_places": (_COUNT, [_BYTES, _COUNT, _COUNT, _COUNT, _PLACES]),
    "scatter": (_FLAG, [_FLOATS, _PLACES, _COUNT, _FLOATS, _COUNT]),
    "ring": (_FLAG, [_FLAG, _FLAG, _FLOATS, _COUNT, _FLAG, _FLAG, _BYTES, _COUNT, _FLAG, ctypes.c_void_p]),
    "scatter_add": (_FLAG, [_FLOATS, _PLACES, _COUNT, _FLOATS, _COUNT]),
}


class Found(NamedTuple):
    """The library, None where there is none to be used, and which it is or why not, in words."""

    library: ctypes.CDLL | None
    words: str


def find(path: Path = LIBRARY) -> Found:
    """Look for what was compiled; imports no torch."""
    if os.environ.get(SWITCH) == "python":
        return Found(None, f"{SWITCH}=python is set")
    if not path.exists():
        return Found(None, f"{path.name} was not compiled: no C compiler, or compiling failed ('pip install -v' tells)")
    try:
        library = ctypes.CDLL(str(path))
        if library.bw_version() != VERSION:
            return Found(None, f"{path.name} is of another version of bwbench; install it again")
    except (OSError, AttributeError) as error:  # of another system, or not whole
        return Found(None, f"{path.name} cannot be loaded: {error}")
    if not library.bw_supported():
        return Found(None, "they are compiled for x86-64 processors with AVX2, FMA and F16C, and this is none")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"bw_{name}")
        function.restype, function.argtypes = result, arguments
    return Found(library, "compiled, for AVX2")


def are_compiled() -> bool:
    """Whether codecs of processes that have this one's environment run compiled, for the record; imports no torch."""
    return find().library is not None


class Native:
    """The functions of the library on tensors and arrays: contiguous, on the host, and of the types that are told.

    Where one returns false, or fewer elements than there are, it met something not finite and the rest is the
    fallback's.

    Attributes:
        fuses: torch rounds ``a + b * alpha`` once, as 8-bit codes are computed here.
        sums_alike: torch adds up a row in the order that is followed here.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = {name: getattr(library, f"bw_{name}") for name in _SIGNATURES}
        self.fuses = self._fuses()
        self.sums_alike = self._sums_alike()

    def _fuses(self) -> bool:
        x = torch.linspace(-3.0, 5.0, 1003, dtype=torch.float32, device="cpu") / 3.0
        shift, scale = torch.tensor([[71.3], [31.7]], dtype=torch.float32, device="cpu")
        fused = (x.double() * scale.double() + shift.double()).float()  # the product of two fp32 is exact in fp64
        separate = x * scale + shift
        return torch.equal(torch.add(shift, x, alpha=scale.item()), fused) and not torch.equal(separate, fused)

    def _sums_alike(self) -> bool:
        # No two of them alike, and none round.
        odd = torch.sin(torch.arange(3 * 1100, dtype=torch.float32, device="cpu"))
        means = torch.empty(3, dtype=torch.float32, device="cpu")
        codes = torch.empty(200, dtype=torch.uint8, device="cpu")
        for width in (1100, 1024, 600, 37, 11, 5):
            rows = odd[: 3 * width].view(3, width)
            for row, mean in zip(rows, means.view(3, 1), strict=True):
                self.to_signs(row, width, mean, codes)
            if not torch.equal(means, rows.abs().mean(dim=1)):
                return False
        return True

    def to_halves(self, x: torch.Tensor, halves: torch.Tensor) -> bool:
        """The halves nearest to ``x``, fp32, into ``halves``, bytes."""
        return not self._call["to_halves"](x.data_ptr(), x.numel(), halves.data_ptr())

    def from_halves(self, halves: torch.Tensor, values: torch.Tensor) -> bool:
        """The inverse; false as well where there are not as many values."""
        if halves.numel() != 2 * values.numel():
            return False
        return not self._call["from_halves"](halves.data_ptr(), values.numel(), values.data_ptr())

    def add_halves(self, halves: torch.Tensor, total: torch.Tensor) -> int:
        """The inverse, added to ``total``; returns how many elements were."""
        if halves.numel() != 2 * total.numel():
            return 0
        return int(self._call["add_halves"](halves.data_ptr(), total.numel(), total.data_ptr()))

    def to_codes(
        self, x: torch.Tensor, block: int, epsilon: float, scales: torch.Tensor, codes: torch.Tensor, *,
        relative: bool, separate: int,
    ) -> bool:  # fmt: skip
        """Grid and codes of ``Int8``; false, too, where numbers are large beside their range.

        Args:
            x: fp32 of shape [num_elements].
            block: elements of a block.
            epsilon: of the range, or ``relative`` to the largest magnitude.
            scales: fp32 of shape [2, num_blocks], contiguous: lower and step, to be filled.
            codes: uint8 of shape [num_elements], to be filled.
            separate: how many blocks, from the first one on, have the product rounded before the sum.
        """
        lowers, steps = scales.data_ptr(), scales.data_ptr() + 4 * scales.shape[1]
        return not self._call["to_codes"](
            x.data_ptr(), x.numel(), block, epsilon, relative, separate, lowers, steps, codes.data_ptr()
        )

    def from_codes(
        self, codes: torch.Tensor, block: int, scales: torch.Tensor, values: torch.Tensor, *, add: bool
    ) -> bool:
        """The inverse, into ``values`` or added to them; false, too, where a payload is of another size."""
        if codes.numel() != values.numel() or scales.shape[1] != -(-values.numel() // block):
            return False
        lowers, steps = scales.data_ptr(), scales.data_ptr() + 4 * scales.shape[1]
        return not self._call["from_codes"](
            codes.data_ptr(), values.numel(), block, lowers, steps, add, values.data_ptr()
        )

    def to_signs(self, x: torch.Tensor, block: int, means: torch.Tensor, codes: torch.Tensor) -> int:
        """Mean magnitude of each block and its signs; returns how many elements were done.

        Args:
            x: fp32 of shape [num_elements].
            block: elements of a block, a multiple of 8, at most ``LARGEST_BLOCK``.
            means: fp32 of shape [num_blocks], to be filled.
            codes: uint8 of a bit an element, to be filled.
        """
        return int(self._call["to_signs"](x.data_ptr(), x.numel(), block, means.data_ptr(), codes.data_ptr()))

    def to_signs_with_excess(
        self, x: torch.Tensor, excess: torch.Tensor, block: int, means: torch.Tensor, codes: torch.Tensor
    ) -> int:
        """The same of ``x - excess``; the excess becomes what the signs decode to, less that."""
        call, length = self._call["to_signs_with_excess"], x.numel()
        return int(call(x.data_ptr(), excess.data_ptr(), length, block, means.data_ptr(), codes.data_ptr()))

    def from_signs(
        self, codes: torch.Tensor, block: int, means: torch.Tensor, values: torch.Tensor, *, add: bool
    ) -> bool:
        """The inverse, into ``values`` or added to them; false, too, where a payload is of another size."""
        if codes.numel() != -(-values.numel() // 8) or means.numel() != -(-values.numel() // block):
            return False
        return not self._call["from_signs"](
            codes.data_ptr(), values.numel(), block, means.data_ptr(), add, values.data_ptr()
        )

    def sample(self, x: np.ndarray, size: int) -> np.ndarray:
        """Magnitudes of ``size`` entries of ``x``, spread evenly: int32, as ``sampled`` in sparse.py gives them."""
        magnitudes = np.empty(size, np.int32)
        self._call["sample"](x.ctypes.data, len(x), size, magnitudes.ctypes.data)
        return magnitudes

    def at_least(self, x: np.ndarray, threshold_bits: int) -> np.ndarray:
        """Indices of the entries of ``x`` (fp32) of that magnitude or more: int64, ascending."""
        found, begin, reached = [], 0, ctypes.c_int64()
        room = max(4096, len(x) // 32)
        while True:
            places = np.empty(room, np.int64)
            arguments = (
                x.ctypes.data,
                begin,
                len(x),
                threshold_bits,
                places.ctypes.data,
                room,
                ctypes.addressof(reached),
            )
            found.append(places[: self._call["at_least"](*arguments)])
            begin, room = reached.value, 2 * room
            if begin == len(x):
                return found[0] if len(found) == 1 else np.concatenate(found)

    def magnitudes_at(self, x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Magnitudes of the entries of ``x`` at ``places``: int32."""
        magnitudes = np.empty(len(places), np.int32)
        self._call["magnitudes_at"](x.ctypes.data, places.ctypes.data, len(places), magnitudes.ctypes.data)
        return magnitudes

    def rank(self, magnitudes: np.ndarray, count: int) -> int:
        """The ``count``-th largest of ``magnitudes``, int32 and none below zero; ``count`` is 1 to their number."""
        return int(self._call["rank"](magnitudes.ctypes.data, len(magnitudes), count))

    def keep_at_least(self, places: np.ndarray, magnitudes: np.ndarray, threshold_bits: int) -> np.ndarray:
        """Of ``places`` those whose magnitude is the threshold or more; in their memory."""
        count = self._call["keep_at_least"](places.ctypes.data, magnitudes.ctypes.data, len(places), threshold_bits)
        return places[:count]

    def encode_places(self, places: np.ndarray, low_bits: int, most_bytes: int) -> np.ndarray:
        """The code of ``encode_indices`` in sparse.py, of one place or more."""
        code = np.empty(most_bytes, np.uint8)
        return code[
            : self._call["encode_places"](places.ctypes.data, len(places), low_bits, most_bytes, code.ctypes.data)
        ]

    def decode_places(self, code: np.ndarray, count: int, low_bits: int) -> tuple[np.ndarray, int]:
        """The inverse, and how many places the code holds: they are good where that is ``count``."""
        places = np.empty(count, np.int64)
        held = self._call["decode_places"](code.ctypes.data, len(code), count, low_bits, places.ctypes.data)
        return places, int(held)

    def scatter(self, values: np.ndarray, places: np.ndarray, dense: torch.Tensor) -> bool:
        """Zeros into ``dense``, fp32, but for values at their places; false where one lies beyond, or is missing."""
        if len(values) != len(places):
            return False
        addresses = values.ctypes.data, places.ctypes.data, len(places), dense.data_ptr(), dense.numel()
        return not self._call["scatter"](*addresses)

    def scatter_add(self, values: np.ndarray, places: np.ndarray, total: torch.Tensor) -> bool:
        """Add values at their places; false where one is not finite, lies beyond, or is missing."""
        if len(values) != len(places):
            return False
        addresses = values.ctypes.data, places.ctypes.data, len(places), total.data_ptr(), total.numel()
        return not self._call["scatter_add"](*addresses)

    def ring(
        self, to: int, from_: int, values: torch.Tensor, place: int, size: int, room: torch.Tensor, limit_s: float
    ) -> float:
        """The mean of ``values``, fp32, over the ranks of a ring, in place; returns the seconds spent on sums.

        Args:
            to, from_: sockets, connected to the next rank and to the one before.
            room: bytes on the host for what is to be added.
            limit_s: without a byte in either direction.

        Raises:
            RuntimeError: a peer is gone, or silent for the limit.
        """
        if min(to, from_) < 0:
            raise RuntimeError("the ring's connections were closed")
        adding_ns = ctypes.c_int64()
        ended = self._call["ring"](
            to, from_, values.data_ptr(), values.numel(), place, size, room.data_ptr(), room.numel(),
            min(int(1e3 * limit_s), 2**31 - 1), ctypes.addressof(adding_ns),
        )  # fmt: skip
        if ended:
            why = {1: f"nothing came or could be sent for {limit_s:g} s", 2: "a peer is gone"}
            raise RuntimeError(f"the ring broke: {why.get(ended) or os.strerror(-ended)}")
        return 1e-9 * adding_ns.value


_left_out = False


@functools.cache
def _found() -> Native | None:
    library = find().library
    return None if library is None else Native(library)


def native() -> Native | None:
    """What codecs call; None where they do without."""
    return None if _left_out else _found()


@contextmanager
def left_out() -> Iterator[None]:
    """Codecs of this process do without meanwhile: to compare both."""
    global _left_out
    before, _left_out = _left_out, True
    try:
        yield
    finally:
        _left_out = before
