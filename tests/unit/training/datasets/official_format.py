"""Small stand-ins for the official files of each data set, in their official format."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from bwbench.training.datasets import pictures as official
from bwbench.training.datasets.tinyshakespeare import VOCABULARY


def write(name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the data set called ``name`` under ``data_dir``; nothing where it needs none."""
    if name in ("mnist", "fashion-mnist"):
        write_idx_files(data_dir / name)
    elif name == "cifar10":
        write_cifar10(data_dir, monkeypatch)
    elif name == "tinyshakespeare":
        write_tinyshakespeare(data_dir)


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx_files(folder: Path, num_train: int = 100, num_test: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for part, count in (("train", num_train), ("t10k", num_test)):
        pictures = rng.integers(0, 256, (count, 28, 28)) * (rng.random((count, 28, 28)) < 0.4)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pictures), 1))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(count) % 10), 1))


def write_cifar10(data_dir: Path, monkeypatch: pytest.MonkeyPatch, num_records: int = 40) -> None:
    monkeypatch.setattr(official, "_RECORDS_PER_FILE", num_records)  # the real ones are 30 MB each
    folder = data_dir / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        records = rng.integers(0, 256, (num_records, 3073))
        records[:, 0] = np.arange(num_records) % 10
        (folder / f"{name}.bin").write_bytes(records.astype(np.uint8).tobytes())


def write_tinyshakespeare(data_dir: Path) -> None:
    folder = data_dir / "tinyshakespeare"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0).integers(0, len(VOCABULARY), 1_115_394)
    (folder / "input.txt").write_bytes(np.frombuffer(VOCABULARY.encode(), np.uint8)[numbers].tobytes())
