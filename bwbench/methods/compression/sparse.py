"""Base of the codecs that send some entries and leave the others out: (index, value) pairs, packed."""

from __future__ import annotations

import abc
import struct
from typing import TYPE_CHECKING

from bwbench.methods.compression import index_coding
from bwbench.methods.compression.base import AbstractCodec, as_flat_fp32

if TYPE_CHECKING:
    import numpy as np
    import torch

# Low bits of a gap (or DENSE), number of entries, bytes of their values. 16 bytes: the values begin at a multiple of 8.
_HEADER = struct.Struct("<BxxxIQ")
_DENSE = 255


class AbstractSparseCodec(AbstractCodec):
    """Which entries are sent is the subclass's choice; how they are packed is told here.

    Payload: a header of 16 bytes, the values (as ``inner`` encodes them, else fp32), the code of their indices
    (``index_coding``). At a density of 1 % an entry takes 5.0 bytes, 1/80 of dense fp32; 3.0 with fp16 values. Where
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
        sparse = self._values_bytes(entries) + index_coding.most_bytes(entries, num_elements)
        return _HEADER.size + round(min(sparse, self._values_bytes(num_elements)))

    def max_payload_bytes(self, num_elements: int) -> int:
        """That of a dense payload: nothing larger is ever sent."""
        return _HEADER.size + self._most_values_bytes(num_elements)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Header, values and indices of the selected entries; header and all values where that is smaller."""
        x = as_flat_fp32(x)
        return self._packed(x, self._selected(x.numpy()))

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The entries where they belong, zeros elsewhere."""
        import numpy as np
        import torch

        indices, values = self._unpacked(payload)
        if indices is None:
            return values
        dense = np.zeros(num_elements, np.float32)  # not torch.zeros: pages that stay zero are never touched
        dense[indices] = values.numpy()
        return torch.from_numpy(dense)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the entries to ``total``; costs as much as there are entries."""
        indices, values = self._unpacked(payload)
        if indices is None:
            total += values
        else:
            total.numpy()[indices] += values.numpy()

    def _packed(self, x: torch.Tensor, indices: np.ndarray) -> torch.Tensor:
        """The payload of the entries of ``x`` at ``indices``."""
        import numpy as np
        import torch

        code, low_bits = index_coding.encode(indices, x.numel())
        if self._most_values_bytes(len(indices)) + len(code) < self._most_values_bytes(x.numel()):
            chosen = x.index_select(0, torch.from_numpy(indices))
        else:
            chosen, code, low_bits = x, code[:0], _DENSE
        values = chosen.view(torch.uint8) if self.inner is None else self.inner.encode(chosen)
        header = np.frombuffer(_HEADER.pack(low_bits, len(chosen), values.numel()), np.uint8)
        return torch.from_numpy(np.concatenate([header, values.numpy(), code]))

    def _unpacked(self, payload: torch.Tensor) -> tuple[np.ndarray | None, torch.Tensor]:
        """Indices of the entries in a payload, None where all were sent, and their values, fp32."""
        import torch

        low_bits, count, values_bytes = _HEADER.unpack(payload[: _HEADER.size].numpy().tobytes())
        end = _HEADER.size + values_bytes
        values, code = payload[_HEADER.size : end], payload[end:]
        decoded = values.view(torch.float32) if self.inner is None else self.inner.decode(values, count)
        return None if low_bits == _DENSE else index_coding.decode(code.numpy(), count, low_bits), decoded

    def _values_bytes(self, count: int) -> int:
        return 4 * count if self.inner is None else self.inner.payload_bytes(count)

    def _most_values_bytes(self, count: int) -> int:
        return 4 * count if self.inner is None else self.inner.max_payload_bytes(count)
