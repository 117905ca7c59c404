"""The words for who averages with whom."""

from __future__ import annotations

import pytest

from bwbench.base.registry import COLLECTIVES
from bwbench.results.analysis.topology import CENTRAL, DECENTRAL, EXACT, PARTIAL, topology_of


@pytest.mark.parametrize(
    ("collective", "place", "averaging"),
    [("parameter-server", CENTRAL, EXACT), ("scatter-gather", CENTRAL, EXACT), ("ring", DECENTRAL, EXACT),
     ("gossip-pair", DECENTRAL, PARTIAL), ("neighbours", DECENTRAL, PARTIAL)],
)  # fmt: skip
def test_place_and_averaging(collective: str, place: str, averaging: str) -> None:
    topology = topology_of(collective)
    assert topology is not None
    assert (topology.place, topology.averaging) == (place, averaging)


def test_every_collective_of_ours_has_words_and_others_keep_their_name() -> None:
    for name in COLLECTIVES.names():
        topology = topology_of(name)
        assert (topology is None) == (name == "none")
    unknown = topology_of("my-own")
    assert unknown is not None and unknown.name == "my-own"
