"""Only the entries above a threshold, as packed (index, value) pairs; the rest is kept back by error feedback."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.compression.base import AbstractCodec, as_flat_fp32
from bwbench.compression.fp16 import to_fp16
from bwbench.config.component import ComponentConfig

if TYPE_CHECKING:
    import torch

DEFAULT_QUANTILE = 0.99
ABSOLUTE_DENSITY = 0.01  # assumed by the estimate for a threshold in absolute terms, whose density only training shows
_HEADER = struct.Struct("<BBxxI")  # width of a gap in bytes (0: dense), bytes of a value, number of entries
_VALUE_BYTES = {"fp32": 4, "fp16": 2}


class ThresholdConfig(ComponentConfig):
    """Options of ``threshold``: ``value`` or ``quantile``, not both.

    Attributes:
        value: entries with ``|x| >= value`` are sent. The share that this makes differs from model to model and falls
            while the gradient shrinks; error feedback lets small entries add up until they cross it.
        quantile: the threshold is this quantile of ``|x|``, found anew for each tensor and step. The default, 0.99,
            sends 1 % of each bucket whatever the model, the layer and the stage of training are, so that the bytes of
            a step are known in advance; published sparsifiers with error feedback keep their accuracy there.
        values: ``fp32`` sends entries unchanged; ``fp16`` saves two bytes an entry and leaves the rounding error to
            the residual.
        error_feedback: keep what is not sent and add it to the next step's gradient.
    """

    value: float | None = Field(None, gt=0.0, allow_inf_nan=False)
    quantile: float | None = Field(None, gt=0.0, lt=1.0)
    values: Literal["fp32", "fp16"] = "fp32"
    error_feedback: bool = True

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


class Threshold(AbstractCodec):
    """Sends what is at least as large as the threshold and not zero. NaN counts as large, so that it is seen.

    Payload: a header of 8 bytes, the values, then for each entry the gap to the entry before: one byte (two where
    that is shorter), the largest number standing for "so many empty places, and more". At a density of 1 % an entry
    takes 5.1 bytes, 1/78 of dense fp32 (3.1 and 1/130 with fp16 values). Where dense is smaller the whole tensor is
    sent as it is and nothing is kept back; the header says which.
    """

    Config = ThresholdConfig
    biased = True
    sums_on_ring = False
    options: ThresholdConfig

    def payload_bytes(self, num_elements: int) -> int:
        """The expected size, for entries that lie at random (exact only in the share of entries, not in the gaps)."""
        quantile = self.options.quantile
        density = ABSOLUTE_DENSITY if quantile is None else 1.0 - quantile
        entries = round(density * num_elements)
        gap_bytes = min(width * (1 + _expected_escapes(density, width)) for width in (1, 2))
        sparse = _HEADER.size + round(entries * (self._value_bytes + gap_bytes))
        return min(sparse, self.max_payload_bytes(num_elements))

    def max_payload_bytes(self, num_elements: int) -> int:
        """That of a dense payload: nothing larger is ever sent."""
        return _HEADER.size + self._value_bytes * num_elements

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Header, values, gaps of what exceeds the threshold; header and all values where that is smaller."""
        import numpy as np
        import torch

        x = as_flat_fp32(x)
        indices = self._selected(x.numpy())
        gaps, width = _encode_gaps(indices)
        sparse = self._value_bytes * len(indices) + gaps.nbytes < self._value_bytes * len(x)
        if not sparse:
            gaps, width = gaps[:0], 0
        chosen = x[torch.from_numpy(indices)] if sparse else x
        chosen = to_fp16(chosen) if self.options.values == "fp16" else chosen
        header = np.frombuffer(_HEADER.pack(width, self._value_bytes, len(chosen)), np.uint8)
        payload = np.concatenate([header, chosen.numpy().view(np.uint8), gaps.view(np.uint8)])
        return torch.from_numpy(payload)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The entries where they belong, zeros elsewhere."""
        import torch

        total = torch.zeros(num_elements)
        self.decode_add(payload, total)
        return total

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the entries to ``total``; costs as much as there are entries."""
        import numpy as np
        import torch

        content = payload.numpy()
        width, value_bytes, count = _HEADER.unpack(content[: _HEADER.size].tobytes())
        end = _HEADER.size + value_bytes * count
        values = content[_HEADER.size : end].view(np.float32 if value_bytes == 4 else np.float16)
        if width == 0:
            total += torch.from_numpy(values)
        elif count:
            indices = _decode_gaps(content[end:].view(np.uint8 if width == 1 else np.uint16))
            total.index_add_(0, torch.from_numpy(indices), torch.from_numpy(values).to(torch.float32))

    @property
    def _value_bytes(self) -> int:
        return _VALUE_BYTES[self.options.values]

    def _selected(self, x: Any) -> Any:
        """Indices of the entries to send, int64, ascending."""
        import numpy as np

        magnitude = np.abs(x)
        threshold = self.options.value
        if threshold is None and len(x):
            position = min(len(x) - 1, round((self.options.quantile or 0.0) * len(x)))
            threshold = np.partition(magnitude, position)[position]  # NaN sorts last, above all numbers
        # Both comparisons are true for NaN. The second keeps the zeros of an all but empty tensor at home.
        return np.flatnonzero(~(magnitude < threshold) & (x != 0)) if len(x) else np.empty(0, np.int64)


def _expected_escapes(density: float, width: int) -> float:
    """Mean number of escapes before a gap of ``width`` bytes, entries lying at random (geometric gaps)."""
    if density <= 0.0:
        return 0.0
    beyond = (1.0 - density) ** (256**width - 1)
    return float(beyond / (1.0 - beyond))


def _encode_gaps(indices: Any) -> tuple[Any, int]:
    """The gaps between ascending indices as uint8 or uint16, whichever is shorter, and the width in bytes.

    A gap counts the empty places before an entry. The largest number of the type is an escape: as many empty places
    as it says, and the gap goes on.
    """
    import numpy as np

    gaps = np.diff(indices, prepend=-1) - 1
    width = min((1, 2), key=lambda w: w * (len(gaps) + int((gaps // (256**w - 1)).sum())))
    escape = 256**width - 1
    escapes, rest = gaps // escape, gaps % escape
    stream = np.full(len(gaps) + int(escapes.sum()), escape, np.uint8 if width == 1 else np.uint16)
    stream[np.cumsum(escapes + 1) - 1] = rest
    return stream, width


def _decode_gaps(stream: Any) -> Any:
    """The ascending indices, int64, that ``_encode_gaps`` was given."""
    import numpy as np

    ends = stream != np.iinfo(stream.dtype).max
    # An escape stands for as many empty places as it says; a last number for its empty places and the entry itself.
    return np.cumsum(stream.astype(np.int64) + ends)[ends] - 1
