"""No samples at all: what a model is trained on of which only the shapes are real."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from bwbench.base.data_spec import NOTHING, DataSpec
from bwbench.training.datasets.dataset import AbstractDataset, Samples, Splits


class NoData(AbstractDataset):
    """Every split is empty, and there is nothing to report of it."""

    name: ClassVar[str] = "none"
    metrics: ClassVar[tuple[str, ...]] = ()

    def spec(self) -> DataSpec:
        """Batches are ``[batch, 0]``."""
        return DataSpec((0,), 1, NOTHING)

    def load(self, data_dir: Path) -> Splits:
        """Nothing; ``data_dir`` is not read."""
        nothing = Samples(np.zeros((0, 0), np.float32), np.zeros(0, np.int64))
        return Splits(nothing, nothing, nothing)
