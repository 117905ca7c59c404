"""Experiments as users write them, and cells as workers read them: validated, frozen, with units."""

from bwbench.base.component import Component, ComponentConfig
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.load import load_experiment

__all__ = ["CellConfig", "Component", "ComponentConfig", "Experiment", "load_experiment"]
