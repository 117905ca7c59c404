"""The largest entries only, a fixed share of them; the rest is kept back by error feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.sparse import AbstractSparseCodec

if TYPE_CHECKING:
    import numpy as np


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
        return count(self.options.ratio, num_elements)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        return top_k(x, count(self.options.ratio, len(x)), self.options.exact)


def count(ratio: float, num_elements: int) -> int:
    """How many entries a ratio stands for: at least one, where there is one."""
    return min(num_elements, max(1, round(ratio * num_elements)))


def top_k(x: np.ndarray, num_entries: int, exact: bool) -> np.ndarray:
    """Indices, ascending, of the ``num_entries`` largest of ``x``: ``selection.largest``, of equal entries the first.

    Args:
        x: fp32 of shape [num_elements].
        num_entries: at most ``num_elements``.
        exact: rank all entries.
    """
    import numpy as np

    from bwbench.methods.compression.selection import MAGNITUDE_BITS, at_least, largest

    if len(x) == 0 or num_entries == len(x):
        return at_least(x, 1)
    indices = largest(x, num_entries, exact)
    surplus = len(indices) - num_entries
    if surplus > 0:
        magnitudes = x[indices].view(np.int32) & MAGNITUDE_BITS
        indices = np.delete(indices, np.flatnonzero(magnitudes == magnitudes.min())[-surplus:])
    return indices
