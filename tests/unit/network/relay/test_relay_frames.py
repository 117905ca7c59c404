"""What a frame is charged."""

from __future__ import annotations

import struct

import pytest

from bwbench.network.relay.port import DESTINATION, charge, mac_bytes

MAC = "02:00:00:4d:00:07"


def frame(payload_bytes: int, protocol: int = 6, tcp_options: int = 12, gso_type: int = 0, gso_size: int = 0) -> bytes:
    vnet = struct.pack("<BBHHHH", 0, gso_type, 0, gso_size, 0, 0)
    if protocol == 6:
        transport = bytes(12) + bytes([(20 + tcp_options) // 4 << 4]) + bytes(7 + tcp_options)
    else:
        transport = bytes(8)
    ip = struct.pack("!BBHIBBHII", 0x45, 0, 20 + len(transport) + payload_bytes, 0, 64, protocol, 0, 1, 2)
    return vnet + mac_bytes(MAC) + bytes(6) + b"\x08\x00" + ip + transport + bytes(payload_bytes)


def test_a_full_frame_is_charged_its_length() -> None:
    assert charge(frame(1448)) == (1, 1514, False)
    assert charge(frame(1472, protocol=17)) == (1, 1514, False)


def test_the_destination_is_read_where_it_stands() -> None:
    assert frame(1)[DESTINATION] == mac_bytes(MAC)


@pytest.mark.parametrize("options", [0, 12, 36])
def test_tcp_without_payload_is_an_acknowledgement(options: int) -> None:
    assert charge(frame(0, tcp_options=options)) == (1, 54 + options, True)
    assert not charge(frame(1, tcp_options=options))[2]


def test_a_small_datagram_is_none() -> None:
    assert charge(frame(0, protocol=17)) == (1, 42, False)


@pytest.mark.parametrize("payload_bytes, segments", [(1449, 2), (2 * 1448, 2), (40 * 1448, 40), (40 * 1448 - 1, 40)])
def test_a_super_packet_is_charged_the_headers_of_every_segment(payload_bytes: int, segments: int) -> None:
    charged = charge(frame(payload_bytes, gso_type=1, gso_size=1448))
    assert charged == (segments, payload_bytes + segments * 66, False)


def test_a_super_datagram_likewise() -> None:
    assert charge(frame(10 * 1472, protocol=17, gso_type=5, gso_size=1472)) == (10, 10 * 1514, False)


def test_other_protocols_are_charged_their_length() -> None:
    arp = bytes(10) + b"\xff" * 6 + bytes(6) + b"\x08\x06" + bytes(28)
    assert charge(arp) == (1, 42, False)


@pytest.mark.parametrize("gso_type", [0, 1, 5])
@pytest.mark.parametrize("protocol", [6, 17])
def test_headers_of_a_raw_socket_may_say_anything(gso_type: int, protocol: int) -> None:
    """What reads beyond the end of a frame ends the relay."""
    for header_words in range(16):
        ip = struct.pack("!BBHIBBHII", 0x40 | header_words, 0, 40, 0, 64, protocol, 0, 1, 2)
        vnet = struct.pack("<BBHHHH", 0, gso_type, 0, 100, 0, 0)
        whole = vnet + mac_bytes(MAC) + bytes(6) + b"\x08\x00" + ip + bytes(100)
        for length in range(len(vnet) + 14, len(whole)):
            assert charge(whole[:length])[1] >= length - len(vnet)
