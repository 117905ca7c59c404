"""Whether what cells need is on this machine, before anything starts: data sets, whole, and a GPU.

Hosts and machines of a cluster have their own, and are asked before they get a cell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.registry import DATASETS
from bwbench.experiment.plan import Cell
from bwbench.training.datasets.dataset import data_folder

# Of NVIDIA's driver, of it below Windows, and of AMD's: whoever has none of them has no GPU that torch calls cuda.
# Whether torch can use the one that is there, the workers find.
GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")


def check_needed(cells: Iterable[Cell]) -> None:
    """Raise ConfigError where a data set that ``cells`` need is not there or damaged, or their GPU is not there."""
    here = _local(cells)
    if problems := device_problems(here) + data_problems(here):
        raise ConfigError(problems)


def data_problems(cells: Iterable[Cell]) -> list[Problem]:
    """What is missing or damaged of the data sets that ``cells`` need on this machine, each file once."""
    needed = (cell.config.dataset.source for cell in _local(cells))
    problems: list[Problem] = []
    for source in {source.name: source for source in needed}.values():
        unfit = source.build(DATASETS).unfit(data_folder())
        problems += unfit.problems if unfit is not None else []
    return problems


def device_problems(cells: Iterable[Cell]) -> list[Problem]:
    """The device that ``cells`` compute on and that this machine does not have, once."""
    if all(cell.config.compute.device == "cpu" for cell in _local(cells)):
        return []
    if any(os.path.exists(file) for file in GPU_FILES):
        return []
    text = "compute.device: cuda needs a GPU, and this machine has no driver of one (no /dev/nvidiactl); write "
    return [Problem(f"{text}'device: cpu', or run it where the GPU is")]


def _local(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.config.launcher == "local"]
