"""Data sets that need no file: digits and synthetic ones; and the split that all sets share."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from bwbench.training.datasets import dataset, digits
from bwbench.training.datasets.dataset import Samples, split_validation
from bwbench.training.datasets.digits import Digits
from bwbench.training.datasets.synthetic import Synthetic

NOWHERE = Path("/nonexistent")


def as_set(*splits: Samples) -> set[bytes]:
    return {row.tobytes() for split in splits for row in split.inputs}


def test_digits_are_scikit_learns_and_every_one_is_in_one_split():
    splits = Digits(Digits.Config()).load(NOWHERE)
    assert [len(split) for split in (splits.train, splits.validation, splits.test)] == [1295, 143, 359]
    assert len(as_set(splits.train, splits.validation, splits.test)) == 1797
    assert all(set(split.targets) == set(range(10)) for split in (splits.train, splits.validation, splits.test))


def test_digits_read_without_importing_scikit_learn_are_the_same(monkeypatch):
    pixels, labels = digits._bundled()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    by_sklearn = digits._bundled()
    assert np.array_equal(pixels, by_sklearn[0])
    assert np.array_equal(labels, by_sklearn[1])


def test_digits_import_neither_scikit_learn_nor_torch():
    code = (
        "import sys; from pathlib import Path; from bwbench.training.datasets.digits import Digits;"
        "Digits(Digits.Config()).load(Path('/')); assert not {'sklearn', 'torch', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_synthetic_classes_are_learnable_by_their_centres():
    options = Synthetic.Config(shape=(4, 5), classes=3, samples=600, noise=0.2)
    splits = Synthetic(options).load(NOWHERE)
    assert splits.train.inputs.shape == (540, 4, 5)
    assert [len(splits.validation), len(splits.test)] == [60, 120]
    centres = np.stack([splits.train.inputs[splits.train.targets == label].mean(axis=0) for label in range(3)])
    distance = ((splits.test.inputs[:, None] - centres) ** 2).sum(axis=(2, 3))
    assert (distance.argmin(axis=1) == splits.test.targets).mean() > 0.95


def test_synthetic_noise_makes_it_harder():
    def spread(noise: float) -> float:
        train = Synthetic(Synthetic.Config(noise=noise)).load(NOWHERE).train
        return float(np.mean([train.inputs[train.targets == label].std(axis=0).mean() for label in range(10)]))

    assert spread(0.0) < 1e-6 < spread(0.1) < spread(1.0)


@pytest.mark.parametrize("options", [{"shape": ()}, {"shape": (0, 3)}, {"classes": 1}, {"samples": 3}, {"noise": -1}])
def test_synthetic_refuses_options_without_sense(options):
    with pytest.raises(ValidationError):
        Synthetic.Config(**options)


@pytest.mark.parametrize(("num_all", "num_validation"), [(10, 1), (1000, 100), (60_000, 5000)])
def test_validation_is_a_tenth_and_at_most_5000(num_all, num_validation):
    samples = Samples(np.arange(num_all, dtype=np.float32), np.arange(num_all))
    train, validation = split_validation(samples)
    assert len(validation) == num_validation
    assert sorted([*train.targets, *validation.targets]) == list(range(num_all))
    if num_all > 10:  # random, not the head or the tail
        assert 0.4 * num_all < validation.targets.mean() < 0.6 * num_all


def test_data_folder_is_the_chosen_one_or_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BWBENCH_DATA", str(tmp_path / "my data"))
    assert dataset.data_folder() == tmp_path / "my data"
    monkeypatch.setenv("BWBENCH_DATA", "here")
    assert dataset.data_folder() == Path.cwd() / "here"
    monkeypatch.setenv("BWBENCH_DATA", "~/data")
    monkeypatch.setenv("HOME", "/home/someone")
    assert dataset.data_folder() == Path("/home/someone/data")
    monkeypatch.setenv("BWBENCH_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert dataset.data_folder() == tmp_path / "bwbench" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert dataset.data_folder() == Path("/home/someone/.cache/bwbench/data")
