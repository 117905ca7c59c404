"""Transformers' way to the methods: ``BwbenchTrainer(...)`` in place of ``Trainer(...)`` (docs/library.md)."""

from bwbench.training.library.hf_trainer import BwbenchTrainer

__all__ = ["BwbenchTrainer"]
