"""Which node's link is dead, from what TCP repeats without an answer and what still enters the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.network.namespaces.backend import WireCounters
from bwbench.running.launch.tcp_table import Unanswered

# No acknowledgement for this long, and several repetitions: with TCP's waits between them, which grow up to 5 s
# (``node_tcp.py``), an outage of 10 s is over by then, and its end noticed.
DEAD_AFTER_S = 20.0
FEWEST_REPEATS = 3
WORTH_A_WORD_S = 3.0  # from then on an error of a rank may well come from it


@dataclass(frozen=True)
class _Silence:
    since_s: float
    repeats: int
    counters: WireCounters


class DeadLinks:
    """Told once a second what the nodes' kernels see; knows for how long nobody has answered whom.

    It is the kernels that repeat and acknowledge, whatever the ranks do meanwhile: a rank that computes for minutes, or
    is stopped, answers; a slow link answers each time a frame gets through.

    Args:
        addresses: of the nodes on the data network, in order.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._node_of = {address: node for node, address in enumerate(addresses)}
        self._silent: dict[tuple[tuple[str, int], tuple[str, int]], _Silence] = {}

    def look(self, now_s: float, seen: Sequence[Unanswered], counters: WireCounters) -> None:
        """Take in the connections of all nodes that repeat data, and the wire counters of the same moment."""
        silent = {}
        for connection in seen:
            if connection.local[0] not in self._node_of or connection.remote[0] not in self._node_of:
                continue  # on the control network, which is never dead
            key = (connection.local, connection.remote)
            before = self._silent.get(key)
            if before is None or before.repeats > connection.repeats:  # there was an answer in between
                silent[key] = _Silence(now_s, connection.repeats, counters)
            else:
                silent[key] = _Silence(before.since_s, connection.repeats, before.counters)
        self._silent = silent

    def forget(self) -> None:
        """Begin anew: nobody has looked for a while."""
        self._silent.clear()

    def verdict(self, now_s: float, counters: WireCounters, after_s: float = DEAD_AFTER_S) -> str | None:
        """Which links have been dead for ``after_s`` or longer, in words; None where all answer."""
        edges, longest_s = {}, 0.0
        for (local, remote), silence in self._silent.items():
            if now_s - silence.since_s >= after_s and silence.repeats >= min(FEWEST_REPEATS, int(after_s)):
                edges[self._node_of[local[0]], self._node_of[remote[0]]] = silence.counters
                longest_s = max(longest_s, now_s - silence.since_s)
        if not edges:
            return None
        nodes = sorted(set().union(*(dead_ends(src, dst, before, counters) for (src, dst), before in edges.items())))
        common = [node for node in nodes if all(node in edge for edge in edges)]
        nodes = common if len(common) == 1 else nodes
        subject = f"link of node {nodes[0]} is" if len(nodes) == 1 else f"links of nodes {_listed(nodes)} are"
        pairs = ", ".join(f"{src} to {dst}" for src, dst in sorted(edges))
        return f"the {subject} dead: what was sent from node {pairs} has had no answer for {longest_s:.0f} s"


def dead_ends(src: int, dst: int, before: WireCounters, now: WireCounters) -> set[int]:
    """Whose link may be dead where ``src`` repeats data to ``dst`` and hears nothing.

    What is repeated has to enter the link at ``src``. Where it does not, that end is dead; else the other one. Both
    may be where a back end counts all nodes together.
    """
    entered, entered_before = _entered(src, dst, now), _entered(src, dst, before)
    if entered is None or entered_before is None:
        return {src, dst}
    return {dst} if entered > entered_before else {src}


def _entered(src: int, dst: int, counters: WireCounters) -> int | None:
    """Frames that ``src`` has sent towards ``dst``, or to anyone where receivers are not told apart; None: unknown."""
    for pair in ((src, dst), (src, WireCounters.ANY_NODE)):
        if pair in counters.pairs:
            return counters.pairs[pair].frames
    return None


def _listed(nodes: Sequence[int]) -> str:
    *most, last = map(str, nodes)
    return f"{', '.join(most)} and {last}"
