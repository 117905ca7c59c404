"""Sites on real sockets: every path as it was asked, and a line that the nodes of a site share."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bwbench.network.link import Link
from bwbench.network.network import open_network
from bwbench.network.probe.verification import verify
from bwbench.records.schema import Applied
from tests.netns.nodes import transfer
from tests.netns.test_relay_link import TRIES, measure

pytestmark = [pytest.mark.netns]

OFFICES: dict[str, Any] = {
    "bandwidth": "50 Mbit/s",
    "latency": "0.5 ms",
    "backend": "relay",
    "sites": {
        "bern": {"up": "5 Mbit/s", "down": "20 Mbit/s", "latency": "8 ms"},
        "oslo": {"bandwidth": "10 Mbit/s", "latency": "12 ms"},
    },
}
REGIONS: dict[str, Any] = {
    "bandwidth": "20 Mbit/s",
    "latency": "0.5 ms",
    "backend": "relay",
    "sites": ["a", "b", "c"],
    "paths": {"a": {"b": "5 Mbit/s 10 ms", "c": "8 Mbit/s 20 ms"}, "b": {"c": "10 Mbit/s 5 ms", "a": "4 Mbit/s 15 ms"}},
}


@pytest.mark.parametrize("asked, num_nodes, num_pairs", [(OFFICES, 4, 6), (OFFICES, 3, 4), (REGIONS, 3, 6)])
def test_every_path_is_what_was_asked(asked: dict[str, Any], num_nodes: int, num_pairs: int) -> None:
    measured = measure(Link.model_validate(asked), num_nodes, lambda found: found.verdict == "ok")
    assert measured.verdict == "ok", measured.reasons
    assert len({(pair.src, pair.dst) for pair in measured.pairs}) == num_pairs


def test_slow_motion_of_sites() -> None:
    link = Link.model_validate(OFFICES)
    with open_network(link, 4, dilation=0.5) as network:
        made = link.dilated(0.5)
        for _ in range(TRIES):
            measured = verify(network, made, 4)
            if measured.verdict == "ok":
                break
    assert measured.verdict == "ok", measured.reasons
    found = {(pair.src, pair.dst): pair for pair in measured.emulated(0.5).pairs}
    assert found[0, 2].achieved_goodput_bps == pytest.approx(5e6 * 1472 / 1514, rel=0.05)


@pytest.mark.parametrize("fault, words", [("rate=0.5", "goodput"), ("latency=4", "round trip")])
def test_sites_that_are_not_what_was_asked_are_found_out(
    fault: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BWBENCH_RELAY_FAULT", fault)
    link = Link.model_validate(REGIONS)
    with open_network(link, 3) as network:
        measured = verify(network, link, 3)
    wrong = [reason for reason in measured.reasons if words in reason]
    assert len(wrong) >= 6, measured.reasons


def test_what_was_applied() -> None:
    with open_network(Link.model_validate(OFFICES), 3) as network:
        applied = Applied.model_validate(network.applied)
    assert [(site.name, site.nodes) for site in applied.sites] == [("bern", (0, 1)), ("oslo", (2,))]
    assert applied.between(0, 2) == ([5e6, 10e6], 0.010)
    assert applied.between(2, 1) == ([10e6, 20e6], 0.010)
    assert applied.between(0, 1) == ([], 0.0)


def test_two_nodes_share_their_sites_line() -> None:
    """Together they take no less than one that sends as much would."""
    with open_network(Link.model_validate(OFFICES), 4) as network:
        began_s = time.monotonic()
        transfer(network, [(0, 2), (1, 3)], 500_000)
        took_s = time.monotonic() - began_s
    assert took_s > 2 * 500_000 * 8 / 5e6
