"""When replicas agree, and on what."""

from bwbench.methods.algorithms.base import AbstractAlgorithm, Context, ExchangeReport

__all__ = ["AbstractAlgorithm", "Context", "ExchangeReport"]
