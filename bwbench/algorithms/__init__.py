"""When replicas agree, and on what."""

from bwbench.algorithms.base import AbstractAlgorithm, Context, ExchangeReport

__all__ = ["AbstractAlgorithm", "Context", "ExchangeReport"]
