"""How an average is formed: who sends what to whom."""

from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Members, Round

__all__ = ["AbstractCollective", "Members", "Round"]
