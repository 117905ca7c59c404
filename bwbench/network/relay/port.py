"""One port of the relay: frames come out of a receive ring shared with the kernel, and are sent by a plain send.

The ring (PACKET_RX_RING, TPACKET_V2) costs no system call a frame, brings the time at which each frame came, and needs
no large socket buffer, which a rootless process would not get. See Documentation/networking/packet_mmap.rst in Linux.

A frame is what an ``AF_PACKET`` socket with ``PACKET_VNET_HDR`` gives: 10 bytes of ``struct virtio_net_hdr`` (whether
it is a super-packet, and of which segment size), then the Ethernet frame. Where it goes and what it costs on the wire
is read from its bytes.
"""

from __future__ import annotations

import mmap
import socket
import struct

from bwbench.network.link.frame_sizes import ETHERNET_HEADER_BYTES

VNET_BYTES = 10
MAC_BYTES = 6
_IP = VNET_BYTES + ETHERNET_HEADER_BYTES  # where the IP header begins
_TCP = 6

DESTINATION = slice(VNET_BYTES, VNET_BYTES + MAC_BYTES)  # the Ethernet address that the frame is for
GSO_TYPE = 1  # the byte of a frame that is not 0 in a super-packet
SMALLEST_DATA_FRAME = _IP + 60 + 60 + 1  # no frame of this length or more, as counted here, is TCP without payload

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_PACKET_VNET_HDR = 15
_PACKET_QDISC_BYPASS = 20
_PACKET_IGNORE_OUTGOING = 23
_TPACKET_V2 = 1
_SO_SNDBUFFORCE = 32

_STATUS_USER = 1  # of tp_status, a slot's first word: it is ours to read; 0 gives it back to the kernel
_BLOCK_BYTES = 65_536
_SEND_BUFFER_BYTES = 4 << 20

_HEADER = struct.Struct("=4xIIH2xII")  # of struct tpacket2_hdr: tp_len, tp_snaplen, tp_mac, tp_sec, tp_nsec

_HEADROOM_BYTES = 256  # what the kernel puts before a frame, generously


def mac_bytes(mac: str) -> bytes:
    """An address such as ``02:00:00:4d:00:01`` as the 6 bytes that stand in a frame."""
    return bytes.fromhex(mac.replace(":", ""))


def charge(frame: bytes) -> tuple[int, int, bool]:
    """What ``frame`` is charged, as (Ethernet frames, bytes, whether it is TCP without payload).

    It may come from a raw socket, so that its headers say anything. Bytes are those of 14 B + IP, without preamble and
    checksum; a super-packet counts the headers of every segment.
    """
    num_bytes = len(frame) - VNET_BYTES
    if frame[GSO_TYPE] and len(frame) > _IP + 20:
        header_bytes = _header_bytes(frame)
        segment_bytes = int.from_bytes(frame[4:6], "little")  # gso_size: payload of a segment
        payload_bytes = num_bytes - header_bytes
        if segment_bytes and payload_bytes > 0:
            segments = -(-payload_bytes // segment_bytes)
            return segments, num_bytes + (segments - 1) * header_bytes, False
    return 1, num_bytes, len(frame) < SMALLEST_DATA_FRAME and _is_ack(frame)


def _header_bytes(frame: bytes) -> int:
    """Length of the Ethernet, IP and TCP or UDP headers together, as they say themselves."""
    ip_bytes = (frame[_IP] & 0x0F) * 4
    if frame[_IP + 9] == _TCP and len(frame) > _IP + ip_bytes + 12:
        return ETHERNET_HEADER_BYTES + ip_bytes + (frame[_IP + ip_bytes + 12] >> 4) * 4
    return ETHERNET_HEADER_BYTES + ip_bytes + 8


def _is_ack(frame: bytes) -> bool:
    """Whether this is IPv4 TCP without payload."""
    if len(frame) < _IP + 40 or frame[_IP + 9] != _TCP or frame[_IP - 2] != 8 or frame[_IP - 1] != 0:
        return False
    return frame[_IP + 2] << 8 | frame[_IP + 3] == _header_bytes(frame) - ETHERNET_HEADER_BYTES


def slot_bytes_for(largest_bytes: int) -> int:
    """Size of a slot, which divides a block, for packets of up to so many bytes."""
    return 1 << (largest_bytes + _HEADROOM_BYTES - 1).bit_length()


class RelayPort:
    """A veth end in the air namespace, opened for reading and writing whole frames.

    Args:
        slot_bytes: size of a slot of the receive ring; longer frames are dropped (and counted as overruns).
        num_slots: how many frames may come between two calls of ``receive``.

    Attributes:
        send: takes a frame, as ``receive`` gave it; OSError where the kernel does not take it.

    Raises OSError where the kernel refuses.
    """

    def __init__(self, interface: str, slot_bytes: int, num_slots: int) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # 0: nothing comes before bind
        self.send = self.socket.send
        self._too_long = 0
        self._next_at = 0  # where the next slot begins
        blocks = -(-num_slots * slot_bytes // _BLOCK_BYTES)
        self._slot_bytes, self._ring_bytes = slot_bytes, blocks * _BLOCK_BYTES
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            self.socket.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)  # keeps checksums pending and super-packets whole
            self.socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            self.socket.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)  # there is none; not looking for it is cheaper
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
            except PermissionError:  # in a user namespace
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            ring = struct.pack("=IIII", _BLOCK_BYTES, blocks, slot_bytes, self._ring_bytes // slot_bytes)
            self.socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
            self._memory = mmap.mmap(self.socket.fileno(), self._ring_bytes)
            self._words = memoryview(self._memory).cast("I")
            self.socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self.socket.close()
            raise

    def receive(self, clock_offset_s: float) -> list[tuple[float, bytes]]:
        """All frames that have come, as (when, frame).

        Args:
            clock_offset_s: what to take from CLOCK_REALTIME for the clock that ``when`` is to be of, in seconds.
        """
        received: list[tuple[float, bytes]] = []
        memory, words, unpack, at = self._memory, self._words, _HEADER.unpack_from, self._next_at
        while words[at >> 2] & _STATUS_USER:
            length, captured, mac_at, seconds, nanoseconds = unpack(memory, at)
            if captured == length:
                begin = at + mac_at
                frame = memory[begin - VNET_BYTES : begin + length]
                received.append((seconds + nanoseconds * 1e-9 - clock_offset_s, frame))
            else:
                self._too_long += 1
            words[at >> 2] = 0
            at += self._slot_bytes
            if at == self._ring_bytes:
                at = 0
        self._next_at = at
        return received

    def overruns(self) -> int:
        """Frames since the last call that found the ring full, or that no slot could hold."""
        statistics = self.socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        too_long, self._too_long = self._too_long, 0
        return int(struct.unpack("=II", statistics)[1]) + too_long
