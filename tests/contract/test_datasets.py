"""Every registered data set and partition keeps the contract; downloaded sets on files of the official format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.registry import DATASETS, PARTITIONS
from bwbench.training.datasets.dataset_contract import dataset_violations, partition_violations
from bwbench.training.datasets.fetch import has_digest
from tests.unit.training.datasets import official_format


def make(registry, name):
    component_class = registry.load(name)
    return component_class(component_class.Config())


@pytest.mark.parametrize("name", [name for name in DATASETS.names() if DATASETS.load(name).metrics])
def test_data_set_keeps_the_contract(name, tmp_path, monkeypatch):
    official_format.write(name, tmp_path, monkeypatch)
    assert dataset_violations(make(DATASETS, name), tmp_path) == []


def test_no_data_is_empty_and_has_nothing_to_report(tmp_path):
    dataset = make(DATASETS, "none")
    splits = dataset.load(tmp_path)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (0, 0, 0) and dataset.metrics == ()


@pytest.mark.data
@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "tinyshakespeare"])
def test_real_data_keeps_the_contract(name):
    folder = os.environ.get("BWBENCH_DATA")
    if not folder:
        pytest.skip("BWBENCH_DATA names no folder with real data sets")
    dataset = make(DATASETS, name)
    results = [result for file in dataset.files for result in file.results]
    if not all((Path(folder) / result.relative_path).is_file() for result in results):
        pytest.skip(f"{name} is not in {folder}; 'bwbench data fetch {name}' brings it")
    assert all(has_digest(Path(folder) / result.relative_path, result) for result in results)
    assert dataset_violations(dataset, Path(folder)) == []


@pytest.mark.parametrize("name", [name for name in DATASETS.names() if DATASETS.load(name).files])
def test_missing_files_say_how_to_get_them(name, tmp_path):
    with pytest.raises(ConfigError, match=f"'bwbench data fetch {name}'") as caught:
        make(DATASETS, name).load(tmp_path / "not there")
    assert "not there" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in DATASETS.names() if DATASETS.load(name).files])
def test_damaged_files_are_named(name, tmp_path, monkeypatch):
    """Whatever file is cut short, the error names it, and says what to do."""
    for file in make(DATASETS, name).files:
        for result in file.results:
            official_format.write(name, tmp_path, monkeypatch)
            path = tmp_path / result.relative_path
            path.write_bytes(path.read_bytes()[:-9])
            with pytest.raises(ConfigError) as caught:
                make(DATASETS, name).load(tmp_path)
            assert str(path) in str(caught.value)
            assert f"Delete it and run 'bwbench data fetch {name}'" in str(caught.value)


@pytest.mark.parametrize("name", PARTITIONS.names())
@pytest.mark.parametrize(("num_samples", "num_nodes"), [(1, 1), (100, 1), (100, 4), (103, 8), (7, 7), (4003, 5)])
def test_partition_keeps_the_contract(name, num_samples, num_nodes):
    assert partition_violations(make(PARTITIONS, name), num_samples, num_nodes) == []


@pytest.mark.parametrize("name", PARTITIONS.names())
def test_fewer_samples_than_nodes_are_refused(name):
    with pytest.raises(ConfigError, match="3 training samples cannot be dealt out to 4 nodes"):
        partition_violations(make(PARTITIONS, name), 3, 4)
