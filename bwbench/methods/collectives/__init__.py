"""How an average is formed: who sends what to whom."""

from bwbench.methods.collectives.base import AbstractCollective

__all__ = ["AbstractCollective"]
