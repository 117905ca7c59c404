"""One port of the relay: frames come out of a receive ring shared with the kernel, and are sent by a plain send.

The ring (PACKET_RX_RING, TPACKET_V2) costs no system call a frame, brings the time at which each frame came, and needs
no large socket buffer, which a rootless process would not get. See Documentation/networking/packet_mmap.rst in Linux.
"""

from __future__ import annotations

import mmap
import socket
import struct

from bwbench.network.relay.frames import VNET_BYTES

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
        try:
            self._set_up(interface, slot_bytes, num_slots)
        except BaseException:
            self.socket.close()
            raise

    def _set_up(self, interface: str, slot_bytes: int, num_slots: int) -> None:
        blocks = -(-num_slots * slot_bytes // _BLOCK_BYTES)
        self._slot_bytes = slot_bytes
        self._ring_bytes = blocks * _BLOCK_BYTES
        self._next_at = 0  # where the next slot begins
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

    def close(self) -> None:
        """Close the socket and its ring. Safe to call twice."""
        self._words.release()
        self._memory.close()
        self.socket.close()
