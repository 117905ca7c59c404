"""The largest entries only, a fixed share of them; the rest is kept back by error feedback."""

from __future__ import annotations

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.sparse import AbstractSparseCodec, entries_at, top_k
from bwbench.methods.deferred import np


class TopKConfig(ComponentConfig):
    """Options of ``top-k``.

    Attributes:
        ratio: share of the entries of each tensor (bucket) that is sent; at least one is.
        exact: rank all entries. Otherwise a sample finds a threshold and only what passes it is ranked: the same
            entries, but for some steps with up to 10 % fewer.
        error_feedback: keep what is not sent and add it to the next step's gradient.
    """

    ratio: float = Field(0.01, gt=0.0, le=1.0)
    exact: bool = False
    error_feedback: bool = True


class TopK(AbstractSparseCodec):
    """Sends the ``ratio`` of the entries that is largest by magnitude, never a zero (Aji and Heafield 2017).

    NaN counts as larger than all numbers, so that it is seen. Of equal entries at the edge the first ones are sent.
    """

    Config = TopKConfig
    options: TopKConfig

    def _expected_entries(self, num_elements: int) -> int:
        return entries_at(self.options.ratio, num_elements)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        return top_k(x, entries_at(self.options.ratio, len(x)), exact=self.options.exact)
