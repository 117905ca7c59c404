"""Who averages with whom: topology {server, ring, gossip} x averaging {exact, partial}, as the literature says it."""

from __future__ import annotations

from bwbench.methods.roles import CENTRAL, DECENTRAL, EXACT, PARTIAL, UNKNOWN, Topology, topology_by_name
from bwbench.records.schema import CellRecord
from bwbench.results.analysis.cells import name_of

__all__ = ["CENTRAL", "DECENTRAL", "EXACT", "PARTIAL", "UNKNOWN", "Topology", "topology_of"]


def topology_of(cell: CellRecord) -> Topology | None:
    """The topology of a cell as recorded, of an older one as its collective declares it by now.

    None where nothing is averaged over a link.
    """
    if "topology" in cell.model_fields_set:
        return None if (said := cell.topology) is None else Topology(said.name, said.averaging, said.place)
    return topology_by_name(name_of(cell.config.get("collective")))
