"""The 8x8 digits that come with scikit-learn: real handwriting without a download."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bwbench.base.data_spec import DataSpec
from bwbench.training.datasets.dataset import AbstractDataset, Samples, Splits, split_test, split_validation

_MAX_GREY = 16.0
_MEAN, _STD = 0.305, 0.376  # of all pictures, with grey in 0..1


class Digits(AbstractDataset):
    """1,797 grey 8x8 digits in 10 classes: 1,295 to train, 143 to validate, 359 to test.

    scikit-learn has no official test split; a fixed random 20 % is ours. Inputs are standardised.
    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI (its test part).
    """

    name: ClassVar[str] = "digits"

    def spec(self) -> DataSpec:
        """Pictures of 1x8x8 in 10 classes."""
        return DataSpec((1, 8, 8), 10)

    def load(self, data_dir: Path) -> Splits:
        """All splits; ``data_dir`` is not read."""
        pixels, labels = _bundled()
        inputs = ((pixels / _MAX_GREY - _MEAN) / _STD).astype(np.float32).reshape(-1, 1, 8, 8)
        train, test = split_test(Samples(inputs, labels.astype(np.int64)))
        return Splits(*split_validation(train), test)


def _bundled() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Grey values 0..16 ``[1797, 64]`` and labels ``[1797]``."""
    spec = importlib.util.find_spec("sklearn")  # finds the package without importing it
    if spec is not None and spec.origin is not None:
        table_path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if table_path.is_file():  # read in 10 ms; importing scikit-learn takes 2 s in each worker
            table = np.loadtxt(table_path, delimiter=",")
            return table[:, :64], table[:, 64]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels
