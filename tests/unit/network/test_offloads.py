"""Where super-packets may cross a link."""

from __future__ import annotations

from typing import Any

import pytest

from bwbench.network.link import UNSHAPED, Link
from bwbench.network.topology import wants_offloads

FAST: dict[str, Any] = {"bandwidth": "300 Mbit/s", "latency": "2 ms"}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, True),
        ({"bandwidth": "100 Mbit/s"}, False),
        ({"up": "20 Mbit/s"}, False),
        ({"bandwidth": "20 Mbit/s", "up": "1 Gbit/s", "down": "1 Gbit/s"}, True),
        ({"overrides": {2: {"bandwidth": "20 Mbit/s"}}}, False),
        ({"overrides": {2: {"loss": 0.01}}}, False),
        ({"overrides": {2: {"jitter": "1 ms"}}}, False),
        ({"loss": 0.01}, False),
        ({"jitter": "1 ms"}, False),
        ({"jitter": "1 ms", "reorder": True}, False),
        ({"bandwidth": None, "trace": {"file": "t", "mean": "300 Mbit/s"}}, True),
        ({"bandwidth": None, "trace": {"file": "t", "mean": "30 Mbit/s"}}, False),
        ({"medium": "shared"}, True),
    ],
)
def test_only_where_every_node_is_fast_and_no_frame_has_a_fate_of_its_own(
    changes: dict[str, Any], expected: bool
) -> None:
    link = Link.model_validate({key: value for key, value in {**FAST, **changes}.items() if value is not None})
    assert wants_offloads(link) is expected
    assert not wants_offloads(link, "netem")


def test_an_unshaped_link_keeps_them() -> None:
    assert wants_offloads(UNSHAPED, "unshaped")
