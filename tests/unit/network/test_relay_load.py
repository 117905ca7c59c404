"""Which links a user-space relay will hardly carry."""

from __future__ import annotations

from typing import Any

import pytest

from bwbench.network.backend_choice import beyond_relay
from bwbench.network.link import Link


def sites(bandwidth: str, line: str) -> dict[str, Any]:
    return {"bandwidth": bandwidth, "sites": {"a": {"bandwidth": line}, "b": {"bandwidth": "1 Gbit/s"}}}


@pytest.mark.parametrize(
    "keys, num_nodes, is_beyond",
    [
        ({"bandwidth": "10 Mbit/s"}, 32, False),
        ({"bandwidth": "10 Mbit/s"}, 64, True),
        ({"bandwidth": "1 Gbit/s"}, 4, False),
        ({"bandwidth": "1 Gbit/s", "jitter": "1 ms", "latency": "5 ms"}, 4, True),  # then packets go one by one
        ({"bandwidth": "10 Gbit/s"}, 2, True),
        ({"bandwidth": "866.7 Mbit/s", "medium": "shared", "standard": "802.11ac"}, 8, False),  # one air for all
        ({"bandwidth": "10 Gbit/s"}, 1, False),
        ({"bandwidth": "100 Mbit/s"}, 16, False),  # many short super-packets
        ({"bandwidth": "100 Mbit/s"}, 24, True),
        (sites("500 Mbit/s", "500 Mbit/s"), 6, False),
        (sites("500 Mbit/s", "50 Mbit/s"), 6, True),  # two frames a super-packet
        (sites("150 Mbit/s", "50 Mbit/s"), 6, False),
    ],
)
def test_all_nodes_together_count(keys: dict[str, Any], num_nodes: int, is_beyond: bool) -> None:
    found = beyond_relay(Link.model_validate(keys), num_nodes, num_cores=2)
    assert (found is not None) == is_beyond
    assert found is None or ("doctor" in found and f"{num_nodes} nodes" in found)


def test_an_unshaped_link_is_nobodys_burden() -> None:
    assert beyond_relay(Link(shaped=False), 8) is None
