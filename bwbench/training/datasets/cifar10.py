"""CIFAR-10, from its official binary version."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from bwbench.base.data_spec import DataSpec
from bwbench.training.datasets.dataset import (
    AbstractDataset,
    FileDigest,
    RemoteFile,
    Samples,
    Splits,
    split_validation,
    standardise,
)

_FOLDER = "cifar-10-batches-bin"
_TRAIN = tuple(f"{_FOLDER}/data_batch_{number}.bin" for number in range(1, 6))
_TEST = (f"{_FOLDER}/test_batch.bin",)
_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
_PIXEL_BYTES = 3 * 32 * 32
_RECORD_BYTES = 1 + _PIXEL_BYTES  # label, then the red, the green and the blue plane
_RECORDS_PER_FILE = 10_000
_MEAN = (0.4914, 0.4822, 0.4465)  # a channel, of the training pixels, with 0..1
_STD = (0.2470, 0.2435, 0.2616)


class Cifar10(AbstractDataset):
    """60,000 colour 32x32 pictures in 10 classes: 45,000 to train, 5,000 to validate, 10,000 to test.

    Each channel is standardised; there is no augmentation. All splits take 740 MB of memory in each worker.
    """

    name: ClassVar[str] = "cifar10"
    files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            f"{_FOLDER}.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            members=tuple(FileDigest(path, sha256=sha) for path, sha in zip(_TRAIN + _TEST, _SHA256, strict=True)),
        ),
    )

    def spec(self) -> DataSpec:
        """Pictures of 3x32x32 in 10 classes."""
        return DataSpec((3, 32, 32), 10)

    def load(self, data_dir: Path) -> Splits:
        """All splits, from the six official files."""
        parts = (*split_validation(self._part(data_dir, _TRAIN)), self._part(data_dir, _TEST))
        return Splits(*(standardise(part, _MEAN, _STD) for part in parts))

    def _part(self, data_dir: Path, relative_paths: tuple[str, ...]) -> Samples:
        inputs = np.empty((len(relative_paths) * _RECORDS_PER_FILE, 3, 32, 32), np.uint8)
        targets = np.empty(len(inputs), np.int64)
        for number, relative_path in enumerate(relative_paths):
            path = data_dir / relative_path
            content = np.frombuffer(self.read(data_dir, relative_path), np.uint8)
            if len(content) != _RECORDS_PER_FILE * _RECORD_BYTES:
                raise self.damaged(path, f"{len(content)} bytes, {_RECORDS_PER_FILE * _RECORD_BYTES} expected")
            records = content.reshape(_RECORDS_PER_FILE, _RECORD_BYTES)
            if records[:, 0].max() > 9:
                raise self.damaged(path, f"label {records[:, 0].max()}, at most 9 expected")
            rows = slice(number * _RECORDS_PER_FILE, (number + 1) * _RECORDS_PER_FILE)
            targets[rows] = records[:, 0]
            inputs[rows] = records[:, 1:].reshape(-1, 3, 32, 32)
        return Samples(inputs, targets)
