"""When replicas agree, and on what."""

from bwbench.methods.algorithms.algorithm import (
    AbstractAlgorithm,
    AbstractRunning,
    Context,
    ExchangeReport,
    RunningLocally,
)

__all__ = ["AbstractAlgorithm", "AbstractRunning", "Context", "ExchangeReport", "RunningLocally"]
