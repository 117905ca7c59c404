"""Who averages with whom: topology {server, ring, gossip} x averaging {exact, partial}, as the literature says it."""

from __future__ import annotations

from dataclasses import dataclass

CENTRAL, DECENTRAL = "central", "decentral"
EXACT, PARTIAL = "exact", "partial"
_TOPOLOGIES = {
    "parameter-server": ("server", EXACT),
    "scatter-gather": ("sharded server", EXACT),
    "ring": ("ring", EXACT),
    "torch": ("ring", EXACT),  # gloo's all-reduce
    "all-gather": ("all to all", EXACT),
    "hierarchical": ("ring of hosts", EXACT),
    "neighbours": ("gossip", PARTIAL),
    "gossip-pair": ("gossip", PARTIAL),
}


@dataclass(frozen=True)
class Topology:
    """Where averages are formed.

    Attributes:
        name: ``server``, ``sharded server``, ``ring``, ``gossip`` …; the collective's own name where it is not known.
        averaging: ``exact`` where all nodes hold the mean of all, ``partial`` where that of some.
    """

    name: str
    averaging: str

    @property
    def place(self) -> str:
        """``central`` where one node, or every node for its share, averages for all; else ``decentral``."""
        return CENTRAL if "server" in self.name else DECENTRAL


def topology_of(collective: str) -> Topology | None:
    """The topology of a collective by its name; None where nothing is averaged over a link."""
    if collective in ("", "none"):
        return None
    return Topology(*_TOPOLOGIES.get(collective, (collective, EXACT)))
