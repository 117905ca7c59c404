"""Where super-packets may cross a link, and how large they are."""

from __future__ import annotations

from typing import Any

import pytest

from bwbench.network.backend_choice import MOST_BYTES, super_packet_bytes
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.relay.port import slot_bytes_for

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
        ({"jitter": "1 ms", "jitter_kind": "independent", "reorder": True}, False),
        ({"bandwidth": None, "trace": {"file": "t", "mean": "300 Mbit/s"}}, True),
        ({"bandwidth": None, "trace": {"file": "t", "mean": "30 Mbit/s"}}, False),
        ({"medium": "shared"}, True),
    ],
)
def test_only_where_every_node_is_fast_and_no_frame_has_a_fate_of_its_own(
    changes: dict[str, Any], expected: bool
) -> None:
    link = Link.model_validate({key: value for key, value in {**FAST, **changes}.items() if value is not None})
    assert (super_packet_bytes(link, 2) is not None) is expected
    assert super_packet_bytes(link, 2, "netem") is None


def test_an_unshaped_link_keeps_them() -> None:
    assert super_packet_bytes(UNSHAPED, 2, "unshaped") == MOST_BYTES


@pytest.mark.parametrize(
    "bandwidth, num_nodes, expected",
    [
        ("200 Mbit/s", 2, 12_500),
        ("500 Mbit/s", 2, 31_250),
        ("10 Gbit/s", 2, MOST_BYTES),
        ("100 Mbit/s", 4, None),
        ("100 Mbit/s", 8, 6_250),
        ("10 Mbit/s", 254, None),
    ],
)
def test_they_last_half_a_millisecond_and_are_used_early_where_many_send(
    bandwidth: str, num_nodes: int, expected: int | None
) -> None:
    assert super_packet_bytes(Link.model_validate({"bandwidth": bandwidth}), num_nodes) == expected
    assert super_packet_bytes(Link.model_validate({"bandwidth": bandwidth, "loss": 0.01}), num_nodes) is None


@pytest.mark.parametrize("num_bytes, slot_bytes", [(1_514, 2048), (6_250, 8192), (12_500, 16_384), (61_440, 65_536)])
def test_a_slot_of_the_ring_holds_the_largest_packet(num_bytes: int, slot_bytes: int) -> None:
    assert slot_bytes_for(num_bytes) == slot_bytes
