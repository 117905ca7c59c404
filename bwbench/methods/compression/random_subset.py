"""A random share of the entries, the same places on all ranks, for the next codec of a chain to choose from.

``random-k`` sums up what lies at such places, and so allows nothing behind it that a residual would have to mend. Here
payloads travel unmerged, and anything may follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import array_of
from bwbench.methods.compression.codec import AbstractCodec, Shape, as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.compression.random_k import chosen_at, dense_at, places
from bwbench.methods.compression.sparse import entries_at
from bwbench.methods.deferred import np, torch

_HEADER_BYTES = 16  # bucket and step, from which the places follow


class RandomSubsetConfig(ComponentConfig):
    """Options of ``random-subset``.

    Attributes:
        ratio: share of the entries that the next codec gets to see in a step; at least one is.
        error_feedback: keep what is not sent, by the whole chain, and add it to the next gradient.
    """

    ratio: float = Field(0.1, gt=0.0, le=1.0)
    error_feedback: Feedback = True


class RandomSubset(AbstractCodec):
    """The first of the three codecs of Wang et al. 2023 (CocktailSGD): random sparsification, then top-k, then 4 bits.

    Choosing among a tenth of the entries costs a tenth of the ranking, and an index among them takes fewer bits.
    Places ascend, so that entries in clusters stay neighbours, and are those of ``random-k`` for this bucket and step:
    the same on all ranks without a word. The payload names both, since whoever decodes a way back has other numbers.
    What is not finite, anywhere in the input, makes everything NaN, as in ``random-k``.
    """

    Config = RandomSubsetConfig
    biased = True
    sums_on_ring = False
    carries = True
    late_residual = True
    options: RandomSubsetConfig

    _bucket = _step = 0

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Learn the number of the bucket: places differ between buckets, never between ranks."""
        super().prepare(shapes, rank, bucket)
        self._bucket = bucket

    def payload_bytes(self, num_elements: int) -> int:
        """Bucket and step, and what the next codec makes of the values."""
        return _HEADER_BYTES + self.value_codec.payload_bytes(entries_at(self.options.ratio, num_elements))

    def max_payload_bytes(self, num_elements: int) -> int:
        """The same at most."""
        return _HEADER_BYTES + self.value_codec.max_payload_bytes(entries_at(self.options.ratio, num_elements))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Bucket and step, and the values at their places."""
        x = as_flat_fp32(x)
        numbers = torch.tensor([self._bucket, self._step])
        values = self.value_codec.encode(chosen_at(x, self._places(numbers, x.numel())))
        self._step += 1
        return torch.cat([numbers.view(torch.uint8), values])

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values where they belong, zeros elsewhere."""
        where, values = self._unpacked(payload, num_elements)
        return dense_at(values, where, num_elements)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the values to ``total``; costs as much as there are."""
        where, values = self._unpacked(payload, total.numel())
        if bool(values.isnan().any()):
            total += values.sum()
        else:
            array_of(total)[where] += array_of(values)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The number of the next step, and what the next codec remembers."""
        return {**super().state_dict(), "step": torch.tensor(self._step)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict begins at step 0."""
        super().load_state_dict({key: value for key, value in state.items() if key != "step"})
        self._step = int(state["step"]) if "step" in state else 0

    def _unpacked(self, payload: torch.Tensor, num_elements: int) -> tuple[np.ndarray, torch.Tensor]:
        where = self._places(payload[:_HEADER_BYTES].view(torch.int64), num_elements)
        return where, self.value_codec.decode(payload[_HEADER_BYTES:], len(where))

    def _places(self, numbers: torch.Tensor, num_elements: int) -> np.ndarray:
        bucket, step = numbers.tolist()
        return np.sort(places(bucket, step, num_elements, entries_at(self.options.ratio, num_elements)))
