"""Experiments as users write them, and cells as workers read them: validated, frozen, with units."""

from bwbench.config.cell import (
    CellConfig,
    ComputeConfig,
    DatasetConfig,
    EvaluateConfig,
    LimitConfig,
    TargetConfig,
)
from bwbench.config.component import Component, ComponentConfig

__all__ = [
    "CellConfig",
    "Component",
    "ComponentConfig",
    "ComputeConfig",
    "DatasetConfig",
    "EvaluateConfig",
    "LimitConfig",
    "TargetConfig",
]
