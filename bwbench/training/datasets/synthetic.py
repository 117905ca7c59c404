"""Gaussian classes of any shape: for tests, for timing, and for how hard a problem may be made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import DataSpec
from bwbench.training.datasets.dataset import AbstractDataset, Samples, Splits, split_validation

_SEED = 1_000_003  # of the data, which must not depend on the run's seed


class SyntheticConfig(ComponentConfig):
    """Options of ``synthetic``.

    Attributes:
        shape: of one sample, e.g. ``[1, 28, 28]``, or ``[20]`` for plain vectors.
        classes: number of classes.
        samples: training and validation together; a fifth of that number comes on top as the test split.
        noise: standard deviation around a class's centre. Centres lie about 1.4 apart, whatever the shape; at 0.3
            the classes are nearly separable, at 1 they overlap much.
    """

    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 8, 8), min_length=1)
    classes: int = Field(10, ge=2, le=10_000)
    samples: int = Field(2000, ge=20)
    noise: float = Field(0.3, ge=0)


class Synthetic(AbstractDataset):
    """Classes of Gaussian noise around random centres on the unit sphere; the same data for every seed."""

    Config: ClassVar[type[ComponentConfig]] = SyntheticConfig
    name: ClassVar[str] = "synthetic"
    options: SyntheticConfig

    def spec(self) -> DataSpec:
        """As the options say."""
        return DataSpec(tuple(self.options.shape), self.options.classes)

    def load(self, data_dir: Path) -> Splits:
        """All splits, drawn anew; ``data_dir`` is not read."""
        rng = np.random.default_rng(_SEED)
        num_features = math.prod(self.options.shape)
        centres = rng.standard_normal((self.options.classes, num_features), np.float32)
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        train = self._draw(rng, centres, self.options.samples)
        return Splits(*split_validation(train), self._draw(rng, centres, max(1, self.options.samples // 5)))

    def _draw(self, rng: np.random.Generator, centres: np.ndarray, num_samples: int) -> Samples:
        targets = rng.integers(0, len(centres), num_samples)
        inputs = rng.standard_normal((num_samples, centres.shape[1]), np.float32)
        inputs *= self.options.noise
        inputs += centres[targets]
        inputs /= math.sqrt(self.options.noise**2 + 1 / centres.shape[1])  # about unit variance, as in real data sets
        return Samples(inputs.reshape(num_samples, *self.options.shape), targets)
