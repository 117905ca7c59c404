"""Composed cells: the runs that they need, made once and shared, and their time to accuracy put together from these."""

from bwbench.running.composed.run import run_item

__all__ = ["run_item"]
