"""How an average is formed: who sends what to whom."""

from bwbench.collectives.automatic import automatic
from bwbench.collectives.base import AbstractCollective

__all__ = ["AbstractCollective", "automatic"]
