"""The words for who averages with whom: what was recorded, and of older cells what their collectives declare."""

from __future__ import annotations

from typing import Any

import pytest

from bwbench.base.registry import COLLECTIVES
from bwbench.methods.roles import CENTRAL, DECENTRAL, EXACT, PARTIAL, UNKNOWN, Topology
from bwbench.records.schema import CellRecord
from bwbench.results.figures.topology_by_medium import topology_of


def cell(collective: str, **recorded: Any) -> CellRecord:
    config = {"nodes": 4, "collective": {"name": collective}}
    about = {"schema": 1, "id": "0" * 10, "slug": "x", "experiment": "x", "arm": "x", "config": config}
    return CellRecord.model_validate({**about, **recorded})


@pytest.mark.parametrize(
    ("collective", "place", "averaging"),
    [("parameter-server", CENTRAL, EXACT), ("scatter-gather", CENTRAL, EXACT), ("ring", DECENTRAL, EXACT),
     ("gossip-pair", DECENTRAL, PARTIAL), ("neighbours", DECENTRAL, PARTIAL)],
)  # fmt: skip
def test_place_and_averaging(collective: str, place: str, averaging: str) -> None:
    topology = topology_of(cell(collective))
    assert topology is not None
    assert (topology.place, topology.averaging) == (place, averaging)


def test_words_of_the_literature() -> None:
    assert {name: found.name for name in COLLECTIVES.names() if (found := topology_of(cell(name)))} == {
        "torch": "ring",
        "ring": "ring",
        "all-gather": "all to all",
        "parameter-server": "server",
        "scatter-gather": "sharded server",
        "gossip-pair": "gossip",
        "neighbours": "gossip",
        "hierarchical": "ring of hosts",
        "sharded": "rings of hosts",
    }


def test_one_that_nobody_knows_keeps_its_name_and_is_not_taken_for_exact() -> None:
    assert topology_of(cell("my-own")) == Topology("my-own", UNKNOWN, DECENTRAL)


def test_what_was_recorded_counts_whatever_is_known_by_now() -> None:
    said = {"name": "star", "averaging": PARTIAL, "place": CENTRAL}
    assert topology_of(cell("my-own", topology=said)) == Topology("star", PARTIAL, CENTRAL)
    assert topology_of(cell("ring", topology=None)) is None


def test_nobody_averages_without_a_collective() -> None:
    assert topology_of(cell("none")) is None and topology_of(cell("")) is None
