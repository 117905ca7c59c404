"""Whether the data sets that cells need are there and whole, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.registry import DATASETS
from bwbench.experiment.plan import Cell
from bwbench.training.datasets.dataset import data_folder


def check_data(cells: Iterable[Cell]) -> None:
    """Raise ConfigError where a data set that ``cells`` need has not been fetched, or is damaged."""
    if problems := data_problems(cells):
        raise ConfigError(problems)


def data_problems(cells: Iterable[Cell]) -> list[Problem]:
    """What is missing or damaged of the data sets that ``cells`` need on this machine, each file once.

    Hosts and machines of a cluster have their own data, and are asked before they get a cell.
    """
    needed = (cell.config.dataset.source for cell in cells if cell.config.launcher == "local")
    problems: list[Problem] = []
    for source in {source.name: source for source in needed}.values():
        unfit = source.build(DATASETS).unfit(data_folder())
        problems += unfit.problems if unfit is not None else []
    return problems
