"""How the link of a cell is told in tables and captions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bwbench.network.link import Link
from bwbench.results.analysis.cells import _link_facts


@pytest.mark.parametrize(
    "link, bandwidth_bps, rtt_s, words",
    [
        ({"bandwidth": "10 Mbit/s", "latency": "5 ms"}, 10e6, 0.01, "10 Mbit/s"),
        ({"up": "1 Mbit/s", "down": "16 Mbit/s", "latency": "15 ms"}, 1e6, 0.03, "1 Mbit/s"),
        ({"preset": "dsl"}, None, None, "up"),
        ("unshaped", None, None, "unshaped link"),
        (
            {"bandwidth": "1 Gbit/s", "latency": "0.25 ms", "regions": ["ohio", "seoul"]},
            529e6,
            0.1595,
            "2 sites (ohio, seoul): 529 Mbit/s, RTT 160 ms between them",
        ),
        (  # the line of one of them is slower one way
            {
                "bandwidth": "1 Gbit/s",
                "sites": {"a": {"up": "20 Mbit/s", "down": "90 Mbit/s"}, "b": {"bandwidth": "50 Mbit/s"}},
            },
            20e6,
            0.0,
            "2 sites (a, b): 20 to 50 Mbit/s",
        ),
        (  # a node is slower than the line that it shares
            {"bandwidth": "10 Mbit/s", "latency": "1 ms", "sites": ["a", "b"], "paths": {"a": {"b": "1 Gbit/s 9 ms"}}},
            10e6,
            0.02,
            "2 sites (a, b): 10 Mbit/s, RTT 20 ms between them",
        ),
    ],
)
def test_a_link_may_have_one_rate_two_or_none(
    link: Any, bandwidth_bps: float | None, rtt_s: float | None, words: str
) -> None:
    asked = Link.model_validate(link)
    found = _link_facts(json.dumps(asked.model_dump(mode="json", by_alias=True)))
    if link == {"preset": "dsl"}:
        bandwidth_bps, rtt_s = asked.bottleneck_bps, asked.rtt_s
    assert found[:2] == (bandwidth_bps, pytest.approx(rtt_s))
    assert words in found[2]
