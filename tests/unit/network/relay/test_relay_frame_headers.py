"""What queues read and write in frames, on frames made by hand."""

from __future__ import annotations

import socket
import struct

import pytest

from bwbench.network.relay.frame_headers import FrameHeaders
from bwbench.network.relay.port import VNET_BYTES

HEADERS = FrameHeaders(1)
IP = VNET_BYTES + 14


def checksum(header: bytes) -> int:
    """Of an IPv4 header, as RFC 791 has it; 0 of one whose checksum is right."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(
    service: int = 0, protocol: int = 6, ports: tuple[int, int] = (40_000, 29_500), fragment: int = 0, last: int = 2
) -> bytes:
    header = struct.pack(
        "!BBHHHBBH4s4s",
        *(0x45, service, 1500, 77, fragment, 64, protocol, 0),
        *(socket.inet_aton("10.77.0.1"), socket.inet_aton(f"10.77.0.{last}")),
    )
    header = header[:10] + checksum(header).to_bytes(2, "big") + header[12:]
    assert checksum(header) == 0
    ethernet = bytes.fromhex("0200004d00020200004d00010800")
    return bytes(VNET_BYTES) + ethernet + header + struct.pack("!HH", *ports) + bytes(40)


def test_frames_of_one_connection_are_one_flow_and_others_are_not() -> None:
    flow = HEADERS.flow(frame())
    assert HEADERS.flow(frame(service=2)) == flow
    others = [frame(ports=(40_001, 29_500)), frame(protocol=17), frame(last=3), frame(ports=(29_500, 40_000))]
    assert flow not in map(HEADERS.flow, others)
    assert FrameHeaders(2).flow(frame()) != flow


def test_fragments_belong_together_though_only_the_first_has_ports() -> None:
    first, second = frame(protocol=17, fragment=0x2000), frame(protocol=17, ports=(7, 7), fragment=0x00B9)
    assert HEADERS.flow(first) == HEADERS.flow(second)


def test_what_is_not_ipv4_is_a_flow_of_its_addresses() -> None:
    arp = bytes(VNET_BYTES) + bytes.fromhex("0200004d00020200004d00010806") + bytes(28)
    assert HEADERS.flow(arp) == HEADERS.flow(arp[:-1] + b"x")
    assert HEADERS.marked(arp) is None


@pytest.mark.parametrize("service", [0x01, 0x02, 0xB9, 0xBA])
def test_a_frame_that_takes_part_is_marked_and_its_checksum_is_right(service: int) -> None:
    marked = HEADERS.marked(frame(service))
    assert marked is not None
    assert marked[IP + 1] == service | 3
    assert checksum(marked[IP : IP + 20]) == 0
    untouched = [*range(IP + 1), *range(IP + 2, IP + 10), *range(IP + 12, len(marked))]
    assert all(marked[at] == frame(service)[at] for at in untouched)


def test_a_frame_that_takes_no_part_is_not_marked_and_one_that_is_marked_stays_so() -> None:
    assert HEADERS.marked(frame(0xB8)) is None
    assert HEADERS.marked(frame(0x03)) == frame(0x03)
