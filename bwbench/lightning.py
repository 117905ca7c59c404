"""PyTorch Lightning's way to the methods: ``Trainer(strategy=BwbenchStrategy("ring-fp16"), …)`` (docs/library.md)."""

from bwbench.training.library.lightning_strategy import CHECKPOINT_KEY, BwbenchStrategy

__all__ = ["CHECKPOINT_KEY", "BwbenchStrategy"]
