"""Which interface carries which qdisc, and what is joined to what. Pure; ``backend.py`` builds it, ``commands.py``
writes it down.

    node's data0 ═ n0 ┬ nb0 ┬ nu0 ═ nd0 ┬ core ┬ nd1 ═ nu1 ┬ nb1 ┬ n1 ═ data0 of node 1
                      bridge    veth pair  bridge    ...

A qdisc shapes what leaves an interface: ``up`` sits on nu0 (out to the core), ``line`` on nd0 and ``down`` on n0 (both
back to the node). Where a node has an ``out`` too, another bridge and pair follow its ``up``:

    n0 ┬ nb0 ┬ nu0 ═ nv0 ┬ nx0 ┬ no0 ═ nd0 ┬ core

So the sender's own interface is left alone: netem there would meet TCP's small-queue limit and make it behave as on no
real link. Nothing is redirected: veth, bridge and sch_netem are all that the kernel has to have.
"""

from __future__ import annotations

from dataclasses import dataclass

from bwbench.network.backend import Port
from bwbench.network.netem.parameters import NetemQdisc
from bwbench.network.netem.shape import NodeShape

CORE = "core"


@dataclass(frozen=True)
class NodeLayout:
    """What lies between a node's port and the core.

    Attributes:
        bridges: to make.
        pairs: veth pairs to make.
        masters: (interface, bridge to attach it to), from the port on.
        qdiscs: by role: the interface, and what to put on it.
        core_end: the interface of the core behind which the node is.
    """

    port: Port
    bridges: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    masters: tuple[tuple[str, str], ...]
    qdiscs: dict[str, tuple[str, NetemQdisc]]
    core_end: str

    @property
    def uplink(self) -> str:
        """The interface that carries ``up``."""
        return self.qdiscs["up"][0]


def layout(port: Port, shape: NodeShape) -> NodeLayout:
    """The layout of the node behind ``port``."""
    bridge, second, up, up_peer, out, down = (f"n{letter}{port.node}" for letter in "bxuvod")
    places = {"up": up, "out": out, "line": down, "down": port.interface}
    qdiscs = {role: (places[role], qdisc) for role, qdisc in shape.qdiscs().items()}
    start, end = ((port.interface, bridge), (up, bridge)), (down, CORE)
    if shape.out is None:
        return NodeLayout(port, (bridge,), ((up, down),), (*start, end), qdiscs, down)
    masters = (*start, (up_peer, second), (out, second), end)
    return NodeLayout(port, (bridge, second), ((up, up_peer), (out, down)), masters, qdiscs, down)
