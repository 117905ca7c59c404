"""Filters, tried on packets the way the kernel tries them: words under masks."""

from __future__ import annotations

import ipaddress
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.network.interface.shaping_request import PeerTraffic, PortRange
from bwbench.network.interface.steps import Match, aligned, matches

ports = st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(lambda pair: PortRange(min(pair), max(pair)))
UDP, TCP, ICMP = 17, 6, 1


def packet(src: str, dst: str, protocol: int = TCP, sport: int = 0, dport: int = 0, first: int = 0x45) -> bytes:
    """An IP header and the eight bytes after it."""
    ends = ipaddress.ip_address(src).packed + ipaddress.ip_address(dst).packed
    if ":" in src:
        header = struct.pack("!IHBB", 0x60000000, 8, protocol, 64) + ends
    else:
        header = struct.pack("!BBHHHBBH", first, 0, 28, 0, 0, 64, protocol, 0) + ends
    return header + struct.pack("!HHI", sport, dport, 0)


def takes(match: Match, data: bytes) -> bool:
    """As u32_classify of the kernel does; a packet that is too short does not match."""
    for offset, value, mask in match.words:
        word = data[offset : offset + 4]
        if len(word) < 4 or (int.from_bytes(word, "big") ^ value) & mask:
            return False
    return True


def taken(traffic: PeerTraffic, data: bytes, peer_is: str) -> bool:
    version = data[0] >> 4
    return any(takes(match, data) for match in matches(traffic, peer_is) if match.version == version)  # type: ignore[arg-type]


@given(ports)
def test_blocks_cover_a_range_once_and_nothing_else(asked: PortRange) -> None:
    blocks = list(aligned(asked))
    sizes = [0x10000 - mask for _, mask in blocks]
    assert len(blocks) <= 30
    assert blocks[0][0] == asked.first
    for (value, mask), size, (following, _) in zip(blocks, sizes, [*blocks[1:], (asked.last + 1, 0)], strict=True):
        assert value & mask == value
        assert value + size == following


def test_everything_of_the_peers_in_one_direction() -> None:
    traffic = PeerTraffic.parse(["10.0.0.2", "10.1.0.0/16", "fd00::2"], [])
    for protocol in (TCP, UDP, ICMP):
        assert taken(traffic, packet("10.0.0.1", "10.0.0.2", protocol), "dst")
        assert taken(traffic, packet("10.0.0.1", "10.1.255.255", protocol), "dst")
        assert taken(traffic, packet("fd00::1", "fd00::2", protocol), "dst")
        assert not taken(traffic, packet("10.0.0.1", "10.0.0.3", protocol), "dst")
        assert not taken(traffic, packet("10.0.0.2", "10.0.0.1", protocol), "dst")
        assert not taken(traffic, packet("fd00::1", "fd00::3", protocol), "dst")
        assert taken(traffic, packet("10.0.0.2", "10.0.0.1", protocol), "src")
        assert taken(traffic, packet("fd00::2", "fd00::1", protocol), "src")


@pytest.mark.parametrize("src, dst", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_ports_at_either_end(src: str, dst: str) -> None:
    traffic = PeerTraffic.parse([dst], ["5001-5007", "9000"])
    numbers = random.Random(1)
    for port in [5000, 5001, 5004, 5007, 5008, 8999, 9000, 9001, *(numbers.randrange(1, 65536) for _ in range(200))]:
        expected = 5001 <= port <= 5007 or port == 9000
        for protocol in (TCP, UDP):
            assert taken(traffic, packet(src, dst, protocol, sport=port), "dst") is expected
            assert taken(traffic, packet(src, dst, protocol, dport=port), "dst") is expected
        assert not taken(traffic, packet(src, dst, ICMP, sport=port), "dst")


def test_ports_are_not_looked_for_where_they_are_not() -> None:
    traffic = PeerTraffic.parse(["10.0.0.2"], ["5001"])
    with_options = packet("10.0.0.1", "10.0.0.2", sport=5001, first=0x46)
    later_fragment = bytearray(packet("10.0.0.1", "10.0.0.2", sport=5001))
    later_fragment[7] = 1
    assert not taken(traffic, with_options, "dst")
    assert not taken(traffic, bytes(later_fragment), "dst")


def test_a_selector_is_read_back() -> None:
    for match in matches(PeerTraffic.parse(["10.0.0.0/9", "fd00::2"], ["5001-5010"]), "src"):
        assert Match.read(match.version, match.selector()) == match
        assert all(offset % 4 == 0 for offset, _, _ in match.words)
