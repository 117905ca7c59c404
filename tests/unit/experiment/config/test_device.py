"""``compute.device``: what is left out, what counts in the id, what is refused and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.cell_config import ComputeConfig
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan.cell import Cell, build_plan
from bwbench.experiment.plan.composing import convergence_config

EXPERIMENT = "name: device\nnodes: 4\nlink: unshaped\nmodel: mlp\nalgorithm: ring\n"


def cell(folder: Path, more: str) -> Cell:
    path = folder / "device.yaml"
    path.write_text(EXPERIMENT + more)
    (found,) = build_plan(load_experiment(path)).cells
    return found


def test_the_processor_is_the_default_and_no_part_of_records(tmp_path: Path) -> None:
    plain, said = cell(tmp_path, ""), cell(tmp_path, "compute: {device: cpu}\n")
    assert plain.id == said.id
    assert "device" not in plain.to_json()["config"]["compute"]


def test_a_gpu_makes_another_cell(tmp_path: Path) -> None:
    plain, gpu = cell(tmp_path, ""), cell(tmp_path, "compute: {device: cuda}\n")
    assert plain.id != gpu.id
    assert gpu.to_json()["config"]["compute"]["device"] == "cuda"
    assert Cell.from_json(gpu.to_json(), ()).config.compute.device == "cuda"


def test_torchs_ddp_is_refused_with_virtual_nodes_on_a_gpu(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("ring", "ddp") + "compute: {virtual: true, device: %s}\n"
    (tmp_path / "device.yaml").write_text(text % "cuda")
    with pytest.raises(
        ConfigError, match=r"device.yaml:6: compute.virtual: .* torch's DDP .* ring computes the same mean"
    ):
        load_experiment(tmp_path / "device.yaml")
    (tmp_path / "device.yaml").write_text(text % "cpu")
    load_experiment(tmp_path / "device.yaml")


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'gpu' is not allowed here.*Allowed: cpu, cuda"):
        cell(tmp_path, "compute: {device: gpu}\n")


def test_what_is_composed_learns_on_the_device_that_was_asked_for(tmp_path: Path) -> None:
    gpu = cell(tmp_path, "compute: {device: cuda}\n").config
    assert convergence_config(gpu).compute == ComputeConfig(threads=gpu.compute.threads, virtual=True, device="cuda")
    torchs = load_experiment(tmp_path / "device.yaml", ["algorithm=ddp"]).points[0].config
    assert not convergence_config(torchs).compute.virtual
