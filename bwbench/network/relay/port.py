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
_PACKET_IGNORE_OUTGOING = 23
_TPACKET_V2 = 1
_SO_SNDBUFFORCE = 32

_STATUS_USER = 1  # the slot is ours to read; 0 gives it back to the kernel
_HEADER = struct.Struct("=IIIHHII")  # tp_status, tp_len, tp_snaplen, tp_mac, tp_net, tp_sec, tp_nsec
_BLOCK_BYTES = 65_536
_SEND_BUFFER_BYTES = 4 << 20

FRAME_SLOT_BYTES = 2_048  # a full frame of 1514 B with all that the kernel puts before it
SUPER_SLOT_BYTES = 65_536  # a super-packet of GSO_MAX_BYTES likewise


class RelayPort:
    """A veth end in the air namespace, opened for reading and writing whole frames.

    Args:
        slot_bytes: size of a slot of the receive ring; longer frames are dropped (and counted as overruns).
        num_slots: how many frames may come between two calls of ``receive``.

    Raises OSError where the kernel refuses.
    """

    def __init__(self, interface: str, slot_bytes: int, num_slots: int) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # 0: nothing comes before bind
        try:
            self._set_up(interface, slot_bytes, num_slots)
        except BaseException:
            self.socket.close()
            raise

    def _set_up(self, interface: str, slot_bytes: int, num_slots: int) -> None:
        blocks = -(-num_slots * slot_bytes // _BLOCK_BYTES)
        self._slot_bytes = slot_bytes
        self._num_slots = blocks * _BLOCK_BYTES // slot_bytes
        self._next_slot = 0
        self.socket.setblocking(False)
        self.socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        self.socket.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)  # keeps checksums pending and super-packets whole
        self.socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
        except PermissionError:  # in a user namespace
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        ring = struct.pack("=IIII", _BLOCK_BYTES, blocks, slot_bytes, self._num_slots)
        self.socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
        self._memory = mmap.mmap(self.socket.fileno(), blocks * _BLOCK_BYTES)
        self._bytes = memoryview(self._memory)
        self._words = self._bytes.cast("I")
        self.socket.bind((interface, _ETH_P_ALL))

    def receive(self) -> list[tuple[float, bytes | None]]:
        """All frames that have come, as (CLOCK_REALTIME in seconds, frame); None for one that fitted no slot."""
        received: list[tuple[float, bytes | None]] = []
        words, data, slot = self._words, self._bytes, self._next_slot
        slot_bytes, slot_words = self._slot_bytes, self._slot_bytes // 4
        while words[slot * slot_words] & _STATUS_USER:
            base = slot * slot_bytes
            _, length, captured, mac_at, _, seconds, nanoseconds = _HEADER.unpack_from(data, base)
            begin = base + mac_at
            frame = bytes(data[begin - VNET_BYTES : begin + captured]) if captured == length else None
            received.append((seconds + nanoseconds * 1e-9, frame))
            words[slot * slot_words] = 0
            slot += 1
            if slot == self._num_slots:
                slot = 0
        self._next_slot = slot
        return received

    def overruns(self) -> int:
        """Frames that found the ring full since the last call."""
        statistics = self.socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return int(struct.unpack("=II", statistics)[1])

    def close(self) -> None:
        """Close the socket and its ring. Safe to call twice."""
        self._words.release()
        self._bytes.release()
        self._memory.close()
        self.socket.close()
