"""When replicas agree, and on what."""

from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport

__all__ = ["AbstractAlgorithm", "AbstractRunning", "Context", "ExchangeReport"]
