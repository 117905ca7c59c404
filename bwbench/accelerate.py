"""Accelerate's way to the methods: ``BwbenchAccelerator("ring-fp16")`` for ``Accelerator()`` (docs/library.md)."""

from bwbench.training.library.hf_accelerator import BwbenchAccelerator

__all__ = ["BwbenchAccelerator"]
