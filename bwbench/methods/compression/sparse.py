"""Codecs that send some entries only: which are large, how their places are coded, how both are packed.

Magnitudes are compared as the bits of the numbers without their sign, read as integers: the same order, in which
infinity stands above all numbers and NaN above infinity, so that what has diverged is always among the largest. Nothing
is sorted as a whole.

Places are ascending indices, and go as the gaps between them, in a Rice code. An entry of a tensor of which a share p
is sent takes 1.01 bytes at p = 1 %, 1.44 at 0.1 % and 0.59 at 10 %, where the entries lie at random: within 2 % of the
entropy H(p)/p. Entries in clusters take up to 7 % more, since the short gaps between them take as many low bits as long
ones. A plain 32-bit index takes 4 bytes.
"""

from __future__ import annotations

import abc
import math
import struct
from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import array_of, empty_fp32, tensor_of
from bwbench.methods.compression.codec import AbstractCodec, as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.deferred import np, torch
from bwbench.methods.native import native

# Low bits of a gap (or DENSE), number of entries, bytes of their values. 16 bytes: the values begin at a multiple of 8.
_HEADER = struct.Struct("<BxxxIQ")
_DENSE = 255


class AbstractSparseCodec(AbstractCodec):
    """Which entries are sent is the subclass's choice; how they are packed is told here.

    Payload: a header of 16 bytes, the values (as ``inner`` encodes them, else fp32), the code of their indices
    (``encode_indices``). At a density of 1 % an entry takes 5.0 bytes, 1/80 of dense fp32; 3.0 with fp16 values. Where
    dense is smaller the whole tensor is sent and nothing is left out; the header says which.
    """

    biased = True
    sums_on_ring = False
    carries = True

    @abc.abstractmethod
    def _selected(self, x: np.ndarray) -> np.ndarray:
        """Indices of the entries to send, int64, ascending; of a vector ``x``, fp32 of shape [num_elements]."""

    @abc.abstractmethod
    def _expected_entries(self, num_elements: int) -> int:
        """How many entries a gradient of this length is expected to send. Imports no torch."""

    def payload_bytes(self, num_elements: int) -> int:
        """The expected size, for entries in clusters, as those of gradients lie; 1 % less at random."""
        entries = self._expected_entries(num_elements)
        code_bytes = most_index_bytes(entries, num_elements)
        if self._sends_all(entries, code_bytes, num_elements):
            return _HEADER.size + self.value_codec.payload_bytes(num_elements)
        return _HEADER.size + self.value_codec.payload_bytes(entries) + code_bytes

    def max_payload_bytes(self, num_elements: int) -> int:
        """That of a dense payload: nothing larger is ever sent."""
        return _HEADER.size + self.value_codec.max_payload_bytes(num_elements)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Header, values and indices of the selected entries; header and all values where that is smaller."""
        x = as_flat_fp32(x)
        return self._packed(x, self._selected(array_of(x)))

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The entries where they belong, zeros elsewhere."""
        indices, values = self._unpacked(payload)
        if indices is None:
            return values
        if (compiled := native()) is not None:
            filled = empty_fp32(num_elements)
            if compiled.scatter(array_of(values), indices, filled):
                return filled
        dense = np.zeros(num_elements, np.float32)  # not torch.zeros: pages that stay zero are never touched
        dense[indices] = array_of(values)
        return tensor_of(dense)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the entries to ``total``; costs as much as there are entries."""
        indices, values = self._unpacked(payload)
        if indices is None:
            total += values
        elif (compiled := native()) is None or not compiled.scatter_add(array_of(values), indices, total):
            array_of(total)[indices] += array_of(values)

    def _sends_all(self, entries: int, code_bytes: int, num_elements: int) -> bool:
        """Whether a dense payload is no larger, by what the values take at most: they are encoded once, afterwards."""
        most = self.value_codec.max_payload_bytes
        return most(entries) + code_bytes >= most(num_elements)

    def _packed(self, x: torch.Tensor, indices: np.ndarray) -> torch.Tensor:
        """The payload of the entries of ``x`` at ``indices``."""
        code, low_bits = encode_indices(indices, x.numel())
        if self._sends_all(len(indices), len(code), x.numel()):
            chosen, code, low_bits = x, code[:0], _DENSE
        else:
            chosen = x.index_select(0, tensor_of(indices))
        values = self.value_codec.encode(chosen)
        header = np.frombuffer(_HEADER.pack(low_bits, len(chosen), values.numel()), np.uint8)
        return tensor_of(np.concatenate([header, array_of(values), code]))

    def _unpacked(self, payload: torch.Tensor) -> tuple[np.ndarray | None, torch.Tensor]:
        """Indices of the entries in a payload, None where all were sent, and their values, fp32."""
        low_bits, count, values_bytes = _HEADER.unpack(array_of(payload[: _HEADER.size]).tobytes())
        end = _HEADER.size + values_bytes
        values, code = payload[_HEADER.size : end], payload[end:]
        decoded = self.value_codec.decode(values, count)
        return None if low_bits == _DENSE else decode_indices(array_of(code), count, low_bits), decoded


MOST_LOW_BITS = 31  # of a gap; a tensor has fewer than 2^32 elements


def most_index_bytes(num_entries: int, num_elements: int) -> int:
    """The code of ``num_entries`` indices below ``num_elements`` is no longer, wherever they lie. Pure.

    The largest entries of a gradient lie in clusters, and come within some 2 % of it; entries at random stay 4 to 7 %
    below.
    """
    if num_entries <= 0 or num_elements <= 0:
        return 0
    low_bits = best_low_bits(min(1.0, num_entries / num_elements))
    unary_bits = num_entries + (max(0, num_elements - num_entries) >> low_bits)
    return low_bits * math.ceil(num_entries / 8) + math.ceil(unary_bits / 8)


def best_low_bits(density: float) -> int:
    """How many bits of a gap to send as they are, for entries at random (Kiely 2004, "Selecting the Golomb parameter").

    The bits above them are counted off in unary, which is short where they are seldom more than 0 or 1.
    """
    if density >= 1.0:
        return 0
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    return min(MOST_LOW_BITS, max(0, 1 + math.floor(math.log2(math.log(golden) / math.log1p(-density)))))


def encode_indices(indices: np.ndarray, num_elements: int) -> tuple[np.ndarray, int]:
    """The code of ascending indices.

    Args:
        indices: int64 of shape [num_entries], strictly ascending, below ``num_elements``.
        num_elements: length of the tensor that they point into.

    Returns:
        uint8 of shape [num_bytes], and the number of low bits, which a receiver has to know. The code is the highest of
        the low bits of all gaps, padded to a byte, the next lower bit, and so on; then what is left of each gap in
        unary, so many zeros and a one. A gap counts the empty places before an entry.
    """
    if len(indices) == 0:
        return np.empty(0, np.uint8), 0
    low_bits = best_low_bits(len(indices) / num_elements)
    if (compiled := native()) is not None:
        return compiled.encode_places(indices, low_bits, most_index_bytes(len(indices), num_elements)), low_bits
    gaps = np.diff(indices, prepend=-1) - 1
    quotients = gaps >> low_bits
    ends = np.cumsum(quotients + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1, np.uint8)
    unary[ends] = 1
    # One plane of bits behind the other: contiguous work, where the bits of each gap side by side would scatter it.
    small = gaps.astype(_word(low_bits))
    planes = [np.packbits(small & small.dtype.type(1 << bit)) for bit in reversed(range(low_bits))]
    return np.concatenate([*planes, np.packbits(unary)]), low_bits


def decode_indices(code: np.ndarray, num_entries: int, low_bits: int) -> np.ndarray:
    """The indices, int64 of shape [num_entries], that ``encode_indices`` was given.

    Raises ValueError where the code holds another number of them.
    """
    if num_entries == 0:
        return np.empty(0, np.int64)
    if (compiled := native()) is not None and low_bits <= MOST_LOW_BITS:
        places, held = compiled.decode_places(code, num_entries, low_bits)
        if held != num_entries:
            raise ValueError(f"a code of {num_entries} indices holds {held}")
        return places
    low_bytes = low_bits * -(-num_entries // 8)
    ends = np.flatnonzero(np.unpackbits(code[low_bytes:]).view(np.bool_))
    if len(ends) != num_entries:
        raise ValueError(f"a code of {num_entries} indices holds {len(ends)}")
    entry = np.arange(num_entries)
    low = np.zeros(num_entries, _word(low_bits))
    for plane in code[:low_bytes].reshape(low_bits, -1) if low_bits else ():
        low += low  # doubled: cheaper than shifting
        low |= np.unpackbits(plane, count=num_entries)
    # The sum of all rests up to an entry is the number of zeros before its one.
    return ((ends - entry) << low_bits) + np.cumsum(low, dtype=np.int64) + entry


def _word(low_bits: int) -> str:
    """A type that holds so many bits; what a gap has beyond them is cut off."""
    return "u1" if low_bits <= 8 else "i4"


MAGNITUDE_BITS = 0x7FFFFFFF
SMALLEST = 1  # bits of the smallest magnitude above zero: zeros are never large
PART = 1 << 17  # elements compared at a time: their magnitudes stay in the processor's cache
SAMPLED_ABOVE = 128  # elements of the sample that are expected above the threshold
MARGIN_SIGMAS = 3.0  # how far below the expected threshold the first guess lies, in deviations of the sample
TOLERANCE = 0.1  # share of the asked entries that may be missing where an unlucky sample gave too high a threshold


def bits_of(value: float) -> int:
    """A threshold as bits, for ``at_least``: those of the smallest fp32 number that is not below ``value``."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(value)
    if float(nearest) < value:
        nearest = np.nextafter(nearest, np.float32(np.inf))
    return max(SMALLEST, int(nearest.view(np.int32)))


def at_least(x: np.ndarray, threshold_bits: int) -> np.ndarray:
    """Indices, int64 and ascending, of the entries of ``x`` (fp32, flat) whose magnitude is the threshold or more."""
    if (compiled := native()) is not None:
        return compiled.at_least(x, threshold_bits)
    bits = x.view(np.int32)
    magnitudes, large = np.empty(min(PART, len(x)), np.int32), np.empty(min(PART, len(x)), np.bool_)
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(x), PART):
        part = bits[begin : begin + PART]
        np.bitwise_and(part, MAGNITUDE_BITS, out=magnitudes[: len(part)])
        np.greater_equal(magnitudes[: len(part)], threshold_bits, out=large[: len(part)])
        found.append(np.flatnonzero(large[: len(part)]) + begin)
    return np.concatenate(found)


def largest(x: np.ndarray, count: int, *, exact: bool = False) -> np.ndarray:
    """Indices of the ``count`` largest entries by magnitude that are not zero; of equal ones all, or none are left out.

    By default a sample gives a threshold that lies somewhat too low; the entries above it, few as they are, are then
    ranked exactly. So the result is exact, but for a sample that misled: fewer entries then come out, at least 90 % of
    ``count``. Where even that is missed everything is ranked.

    Args:
        x: fp32 of shape [num_elements].
        count: how many entries are asked for, from 1 to ``num_elements``.
        exact: rank all entries.

    Returns:
        int64, ascending. More than ``count`` only where several entries are as large as the smallest one returned.
    """
    if not exact and (guess := _guess(x, count)) is not None:
        indices = at_least(x, guess)
        if len(indices) > count:
            magnitudes = _magnitudes_at(x, indices)
            return _those_at_least(indices, magnitudes, _rank(magnitudes, count))
        if len(indices) >= (1.0 - TOLERANCE) * count or guess == SMALLEST:
            return indices
    return at_least(x, max(SMALLEST, _rank(_magnitudes(x), count)))


def _guess(x: np.ndarray, count: int) -> int | None:
    """A threshold that nearly always lets ``count`` entries pass, and not many more; None: rank them all at once."""
    size = math.ceil(SAMPLED_ABOVE * len(x) / count)
    if 4 * size > len(x):
        return None
    passing = math.ceil(SAMPLED_ABOVE + MARGIN_SIGMAS * math.sqrt(SAMPLED_ABOVE))
    return max(SMALLEST, _rank(_sample(x, size), passing))


def _sample(x: np.ndarray, size: int) -> np.ndarray:
    """Magnitudes of ``size`` entries of ``x``, spread evenly."""
    if (compiled := native()) is not None:
        return compiled.sample(x, size)
    # Steps of the golden ratio spread evenly over any length and fall in with no period that a tensor's shape may have.
    steps = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places = (steps >> np.uint64(32)) * np.uint64(len(x)) >> np.uint64(32)
    return _magnitudes(x[places.astype(np.int64)])


def _magnitudes(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.view(np.int32) & MAGNITUDE_BITS)


def _magnitudes_at(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    compiled = native()
    return _magnitudes(x[indices]) if compiled is None else compiled.magnitudes_at(x, indices)


def _those_at_least(indices: np.ndarray, magnitudes: np.ndarray, threshold_bits: int) -> np.ndarray:
    """Of ``indices`` those whose magnitude is the threshold or more; may lie in the same memory."""
    compiled = native()
    if compiled is None:
        return indices[magnitudes >= threshold_bits]
    return compiled.keep_at_least(indices, magnitudes, threshold_bits)


def _rank(magnitudes: np.ndarray, count: int) -> int:
    """The ``count``-th largest."""
    if (compiled := native()) is not None:
        return compiled.rank(magnitudes, count)
    position = len(magnitudes) - count
    return int(np.partition(magnitudes, position)[position])


def entries_at(ratio: float, num_elements: int) -> int:
    """How many entries a ratio stands for: at least one, where there is one."""
    return min(num_elements, max(1, round(ratio * num_elements)))


def top_k(x: np.ndarray, num_entries: int, *, exact: bool) -> np.ndarray:
    """Indices, ascending, of the ``num_entries`` largest of ``x``: ``largest``, of equal entries the first.

    Args:
        x: fp32 of shape [num_elements].
        num_entries: at most ``num_elements``.
        exact: rank all entries.
    """
    if len(x) == 0 or num_entries == len(x):
        return at_least(x, 1)
    indices = largest(x, num_entries, exact=exact)
    surplus = len(indices) - num_entries
    if surplus > 0:
        magnitudes = _magnitudes_at(x, indices)
        indices = np.delete(indices, np.flatnonzero(magnitudes == magnitudes.min())[-surplus:])
    return indices


def top_k_by_chunk(x: np.ndarray, ratio: float, chunk: int) -> np.ndarray:
    """Indices, ascending, of the largest of each ``chunk`` consecutive entries of ``x``: ``entries_at(ratio)`` of them.

    As ``top_k`` with all entries ranked. The last chunk may be shorter.
    """
    count, whole = entries_at(ratio, chunk), len(x) - len(x) % chunk
    chunks = x[:whole].reshape(-1, chunk)
    rows = max(1, PART // chunk)
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(chunks), rows):
        magnitudes = _magnitudes(chunks[begin : begin + rows])
        least = np.partition(magnitudes, chunk - count, axis=1)[:, chunk - count, None]
        large = magnitudes >= np.maximum(least, SMALLEST)
        for row in np.flatnonzero(large.sum(axis=1) > count):  # of equal ones the last are too many
            equal = np.flatnonzero(magnitudes[row] == least[row])
            large[row, equal[count - int(large[row].sum()) :]] = False
        found.append(np.flatnonzero(large) + begin * chunk)
    tail = x[whole:]
    found.append(top_k(tail, entries_at(ratio, len(tail)), exact=True) + whole)
    return np.concatenate(found)


class TopKConfig(ComponentConfig):
    """Options of ``top-k``.

    Attributes:
        ratio: share of the entries of each tensor (bucket) that is sent; at least one is.
        chunk: entries are ranked within so many consecutive ones, and ``ratio`` holds in each of these chunks; None
            ranks those of the whole tensor.
        exact: rank all entries. Otherwise a sample finds a threshold and only what passes it is ranked: the same
            entries, but for some steps with up to 10 % fewer. Within chunks all are ranked in any case.
        error_feedback: keep what is not sent and add it to the next step's gradient.
    """

    ratio: float = Field(0.01, gt=0.0, le=1.0)
    chunk: int | None = Field(None, ge=1)
    exact: bool = False
    error_feedback: Feedback = True


class TopK(AbstractSparseCodec):
    """Sends the ``ratio`` of the entries that is largest by magnitude, never a zero (Aji and Heafield 2017).

    NaN counts as larger than all numbers, so that it is seen. Of equal entries at the edge the first ones are sent.
    """

    Config = TopKConfig
    options: TopKConfig

    def _expected_entries(self, num_elements: int) -> int:
        ratio, chunk = self.options.ratio, self.options.chunk or max(1, num_elements)
        return num_elements // chunk * entries_at(ratio, chunk) + entries_at(ratio, num_elements % chunk)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        if self.options.chunk is not None:
            return top_k_by_chunk(x, self.options.ratio, self.options.chunk)
        return top_k(x, entries_at(self.options.ratio, len(x)), exact=self.options.exact)


DEFAULT_QUANTILE = 0.99
ABSOLUTE_DENSITY = 0.01  # assumed by the estimate for a threshold in absolute terms, whose density only training shows


class ThresholdConfig(ComponentConfig):
    """Options of ``threshold``: ``value`` or ``quantile``, not both.

    Attributes:
        value: entries with ``|x| >= value`` are sent. The share that this makes differs from model to model and falls
            while the gradient shrinks; error feedback lets small entries add up until they cross it.
        quantile: the threshold is this quantile of ``|x|``, found anew for each tensor and step. The default, 0.99,
            sends 1 % of each bucket whatever the model, the layer and the stage of training are, so that the bytes of
            a step are known in advance; published sparsifiers with error feedback keep their accuracy there.
        error_feedback: keep what is not sent and add it to the next step's gradient.
    """

    value: float | None = Field(None, gt=0.0, allow_inf_nan=False)
    quantile: float | None = Field(None, gt=0.0, lt=1.0)
    error_feedback: Feedback = True

    @model_validator(mode="before")
    @classmethod
    def _one_threshold(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        value, quantile = options.get("value"), options.get("quantile")
        if value is not None and quantile is not None:
            raise PydanticCustomError("threshold", "give either value or quantile, not both")
        if value is None and quantile is None:
            options = {**options, "quantile": DEFAULT_QUANTILE}
        return options


class Threshold(AbstractSparseCodec):
    """Sends what is at least as large as the threshold and not zero. NaN counts as large, so that it is seen.

    A quantile is found by way of a sample (``largest``): no whole tensor is sorted, and the share that is
    sent lies at most 10 % below the one asked for. Entries as large as the quantile itself are all sent.
    """

    Config = ThresholdConfig
    options: ThresholdConfig

    def _expected_entries(self, num_elements: int) -> int:
        quantile = self.options.quantile
        return round((ABSOLUTE_DENSITY if quantile is None else 1.0 - quantile) * num_elements)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        if self.options.quantile is None or len(x) == 0:
            return at_least(x, bits_of(self.options.value or 1.0))
        return largest(x, max(1, round((1.0 - self.options.quantile) * len(x))))
