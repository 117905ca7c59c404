"""From an experiment to the ordered list of its cells, with what each will send and how long it will take."""

from bwbench.plan.cell import Cell, identity

__all__ = ["Cell", "identity"]
