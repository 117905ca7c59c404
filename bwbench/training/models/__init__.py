"""Models: GroupNorm or LayerNorm throughout, because BatchNorm's buffers would cross the link beside the gradients."""

from __future__ import annotations

from bwbench.training.models.model import AbstractModel, AbstractPictureModel

__all__ = ["AbstractModel", "AbstractPictureModel"]
