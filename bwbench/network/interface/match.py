"""Which packets a u32 filter takes, as the kernel compares them: 32-bit words under a mask, counted from the IP header.

Ports are looked for where they are without IP options (IPv4) or extension headers (IPv6), and in first fragments alone:
other packets are not matched when ports are given.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bwbench.base.listening import MAX_PORT
from bwbench.network.interface.shaping_request import Network, PeerTraffic, PortRange, show_network

Side = Literal["src", "dst"]

_PROTOCOLS = (6, 17)  # TCP and UDP: the ports are in the same place
_SELECTOR = struct.Struct("=BBBxHHhhI")  # struct tc_u32_sel: flags, offshift, nkeys, offmask, off, offoff, hoff, hmask
_KEY = struct.Struct("=4s4sii")  # struct tc_u32_key: mask, value (both as on the wire), offset, offmask
_TERMINAL = 1  # a match decides: no other filter is asked


@dataclass(frozen=True)
class Match:
    """One alternative; a packet is taken when every word fits.

    Attributes:
        version: 4 or 6.
        words: (offset, value, mask) with offsets in steps of 4, rising.
        text: the same as ``tc`` takes it.
    """

    version: int
    words: tuple[tuple[int, int, int], ...]
    text: str = ""

    def selector(self) -> bytes:
        """The attribute TCA_U32_SEL."""
        keys = [_KEY.pack(mask.to_bytes(4, "big"), value.to_bytes(4, "big"), at, 0) for at, value, mask in self.words]
        return _SELECTOR.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0) + b"".join(keys)

    @classmethod
    def read(cls, version: int, selector: bytes) -> Match:
        """From the kernel's own TCA_U32_SEL; ``text`` is empty."""
        num_keys = _SELECTOR.unpack_from(selector)[2]
        words = []
        for number in range(num_keys):
            mask, value, offset, _ = _KEY.unpack_from(selector, _SELECTOR.size + number * _KEY.size)
            words.append((offset, int.from_bytes(value, "big"), int.from_bytes(mask, "big")))
        return cls(version, tuple(sorted(words)))

    def same_as(self, other: Match) -> bool:
        """Whether both take the same packets."""
        return (self.version, self.words) == (other.version, other.words)


def matches(traffic: PeerTraffic, peer_is: Side) -> Iterator[Match]:
    """All alternatives; ``peer_is`` says whether the peers are where packets come from or where they go to."""
    for peer in traffic.peers:
        if not traffic.ports:
            yield _match(peer, peer_is)
        yield from _with_ports(peer, peer_is, traffic.ports)


def spared(traffic: PeerTraffic, peer_is: Side) -> Iterator[Match]:
    """All alternatives of what is left alone though it is the peers'; to be asked before ``matches``."""
    for peer in traffic.peers:
        yield from _with_ports(peer, peer_is, traffic.spared)


def _with_ports(peer: Network, peer_is: Side, ranges: Sequence[PortRange]) -> Iterator[Match]:
    for ports in ranges:
        for port, mask in aligned(ports):
            for protocol in _PROTOCOLS:
                for side in ("sport", "dport"):
                    yield _match(peer, peer_is, (protocol, side, port, mask))


def aligned(ports: PortRange) -> Iterator[tuple[int, int]]:
    """The range as (value, mask), as a filter compares: blocks of 1, 2, 4, … ports that begin at multiples of that."""
    first = ports.first
    while first <= ports.last:
        size = first & -first or MAX_PORT + 1
        while first + size - 1 > ports.last:
            size //= 2
        yield first, MAX_PORT + 1 - size
        first += size


def _match(peer: Network, peer_is: Side, port: tuple[int, str, int, int] | None = None) -> Match:
    parts: list[tuple[int, bytes, bytes]] = []  # of the header: where, value, mask
    family = "ip" if peer.version == 4 else "ip6"
    begins = {(4, "src"): 12, (4, "dst"): 16, (6, "src"): 8, (6, "dst"): 24}[peer.version, peer_is]
    parts.append((begins, peer.network_address.packed, peer.netmask.packed))
    text = [f"match {family} {peer_is} {show_network(peer)}"]
    if port is not None:
        protocol, side, number, mask = port
        if peer.version == 4:
            parts += [(0, b"\x05", b"\x0f"), (6, b"\x00\x00", b"\x1f\xff")]
            text += ["match u8 0x05 0x0f at 0", "match u16 0x0000 0x1fff at 6"]
        parts.append((9 if peer.version == 4 else 6, bytes([protocol]), b"\xff"))
        begins = (20 if peer.version == 4 else 40) + (2 if side == "dport" else 0)
        parts.append((begins, number.to_bytes(2, "big"), mask.to_bytes(2, "big")))
        text += [f"match {family} protocol {protocol} 0xff", f"match {family} {side} {number} {mask:#06x}"]
    values, masks = bytearray(64), bytearray(64)
    for at, value, bits in parts:
        values[at : at + len(value)], masks[at : at + len(bits)] = value, bits
    words = [(at, *(int.from_bytes(side[at : at + 4], "big") for side in (values, masks))) for at in range(0, 64, 4)]
    return Match(peer.version, tuple((at, word & bits, bits) for at, word, bits in words if bits), " ".join(text))
