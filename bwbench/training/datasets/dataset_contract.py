"""What every data set and every partition has to keep, as checks: for the tests here and for those of other people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bwbench.base.data_spec import CLASSIFICATION, LANGUAGE_MODELLING
from bwbench.training.datasets.dataset import MAX_VALIDATION, AbstractDataset, Samples
from bwbench.training.datasets.partition import AbstractPartition


def dataset_violations(dataset: AbstractDataset, data_dir: Path) -> list[str]:
    """Everything that ``dataset`` does wrong, one sentence each; empty where it keeps the contract.

    Raises ConfigError where its files are missing from ``data_dir``.
    """
    splits, again = dataset.load(data_dir), dataset.load(data_dir)
    found = []
    for name in ("train", "validation", "test"):
        split, same = getattr(splits, name), getattr(again, name)
        found += [f"{name}: {text}" for text in _of_split(dataset, split)]
        if not (np.array_equal(split.inputs, same.inputs) and np.array_equal(split.targets, same.targets)):
            found.append(f"{name}: loading twice gives different samples")
    if found:
        return found
    num, num_all = len(splits.validation), len(splits.train) + len(splits.validation)
    if not 0.05 * min(num_all, 10 * MAX_VALIDATION) <= num <= MAX_VALIDATION:
        found.append(f"{num} samples of {num_all} to validate: a tenth, at most {MAX_VALIDATION}, expected")
    return found + list(_of_class(dataset))


def partition_violations(partition: AbstractPartition, num_samples: int, num_nodes: int) -> list[str]:
    """Everything that ``partition`` does wrong on ``num_samples`` targets of four classes."""
    targets = np.arange(num_samples) % 4
    found = []
    for epoch in (0, 1):
        orders = [partition.order(targets, num_nodes, rank, epoch, seed=7) for rank in range(num_nodes)]
        if {len(order) for order in orders} != {num_samples // num_nodes}:
            found.append(f"{[len(order) for order in orders]} samples a rank, {num_samples // num_nodes} expected")
        together = np.concatenate(orders)
        if len(np.unique(together)) != len(together):
            found.append("an index comes twice in an epoch")
        if len(together) and not 0 <= together.min() <= together.max() < num_samples:
            found.append("an index lies outside of the data")
        again = [partition.order(targets, num_nodes, rank, epoch, seed=7) for rank in range(num_nodes)]
        if not all(np.array_equal(one, two) for one, two in zip(orders, again, strict=True)):
            found.append("equal arguments give different indices")
    return found


def _of_class(dataset: AbstractDataset) -> Iterator[str]:
    if not dataset.metrics:
        yield "has no metrics"
    for file in dataset.files:
        for digest in (form for result in file.results for form in result.forms):
            if not (digest.md5 or digest.sha256):
                yield f"{digest.relative_path} has no checksum"
            if Path(digest.relative_path).is_absolute() or ".." in Path(digest.relative_path).parts:
                yield f"{digest.relative_path} lies outside of the data folder"


def _of_split(dataset: AbstractDataset, split: Samples) -> Iterator[str]:
    spec = dataset.spec()
    text = spec.task == LANGUAGE_MODELLING
    if not len(split):
        yield "is empty"
        return
    if split.inputs.shape != (len(split), *spec.input_shape):
        yield f"inputs {split.inputs.shape}, spec says {spec.input_shape} a sample"
    expected = (len(split), *spec.input_shape) if text else (len(split),)
    if split.targets.shape != expected:
        yield f"targets {split.targets.shape}, {expected} expected"
    if split.inputs.dtype != (np.int64 if text else np.float32) or split.targets.dtype != np.int64:
        yield f"inputs of {split.inputs.dtype}, targets of {split.targets.dtype}"
    if not (split.inputs.flags.writeable and split.targets.flags.writeable):
        yield "arrays that are read-only, which torch does not take"
    if split.targets.min() < 0 or split.targets.max() >= spec.num_classes:
        yield f"targets {split.targets.min()} to {split.targets.max()} with {spec.num_classes} classes"
    if spec.task not in (CLASSIFICATION, LANGUAGE_MODELLING):
        yield f"unknown task {spec.task!r}"
    if not np.isfinite(split.inputs).all():
        yield "inputs that are not finite"
    elif not text and not (abs(split.inputs.mean()) < 0.5 and 0.5 < split.inputs.std() < 2):
        yield f"inputs of mean {split.inputs.mean():.2f} and deviation {split.inputs.std():.2f}: far from standardised"
