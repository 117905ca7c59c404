"""Connections of a ring's own, beside the process group: what goes round on them is moved and added up in C.

gloo holds a message back until its receiver has announced a buffer, and each message costs two calls of Python and a
wake-up. On a fast network that is most of what an exchange of a few megabytes takes. Here a bucket is one call, and
what has arrived leaves again byte by byte. The order of summation is that of ``ring.py``, and so are the bits.

On a slow network large buckets stay with gloo. At 100 Mbit/s, with 3.2 M parameters in two buckets, a step took 1.5 %
more than torch's DDP on connections of the ring's own (0.7 to 2.2 %), and as long as DDP by gloo. Why has not been
measured; connections here rest between steps, and gloo's one does not.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from bwbench.methods.collectives.transport import Round
from bwbench.methods.deferred import torch
from bwbench.methods.native import Native

LANES = 64  # buckets that have connections of their own; two files each
TOKEN_BYTES = 16
ROOM_BYTES = 256 * 1024  # what is to be added stays in the cache
CONNECT_S = 5.0
_HEADER = struct.Struct(f"<{TOKEN_BYTES}sqq")  # the token, the lane, the place of the rank that connects
_LOOK_S = 0.02  # how long one thread accepts before it lets others look
_TRIAL = -1  # the lane of the first exchanges, which show whether sockets reach, and how fast
_TRIAL_ELEMENTS = 65_536
_AGAIN_S = 0.1  # an exchange of those that took less is made once more: the first one finds everything cold
FAST_BPS = 300e6
SMALL_BYTES = 256 * 1024  # of buckets that go round on a network that is not as fast

Address = tuple[str, int]


class _Lane(NamedTuple):
    to: socket.socket
    from_: socket.socket
    room: torch.Tensor
    in_use: threading.Lock

    def average(self, native: Native, values: torch.Tensor, place: int, size: int, limit_s: float) -> float:
        with self.in_use:
            return native.ring(self.to.fileno(), self.from_.fileno(), values, place, size, self.room, limit_s)

    def close(self) -> None:
        """A thread that waits for a peer gets an error first: files are not closed under it."""
        for connection in (self.to, self.from_):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with self.in_use:
            self.to.close()
            self.from_.close()


class RingSockets:
    """This rank's place in the ring; a pair of connections for each bucket, made when it first goes round.

    Several threads may exchange a bucket each: peers meet by the bucket's number, whatever the order.

    Args:
        listener: where the rank before connects; as ``listening`` makes it.
        addresses: of the listeners of all ranks, by place.
        token: the same on all ranks and known to nobody else; a connection without it is closed.
        limit_s: without a byte in either direction.

    Attributes:
        fast: the network is, so that buckets of all sizes go round here.
    """

    def __init__(
        self, native: Native, listener: socket.socket, addresses: Sequence[Address], place: int, token: bytes,
        limit_s: float,
    ) -> None:  # fmt: skip
        self._native, self._listener, self._token, self._limit_s = native, listener, token, limit_s
        self.place, self.size, self.fast = place, len(addresses), False
        self._next = addresses[(place + 1) % self.size]
        self._lanes: dict[int, _Lane] = {}
        self._arrived: dict[int, socket.socket] = {}
        self._accepting = threading.Lock()

    def carries(self, round_: Round, num_bytes: int) -> bool:
        """Whether a bucket of so many bytes goes by these connections: all ranks take part, and it has a lane."""
        sized = self.fast or num_bytes <= SMALL_BYTES
        return sized and round_.tag < LANES and round_.members.ranks == tuple(range(self.size))

    def average(self, values: torch.Tensor, tag: int) -> float:
        """Replace fp32 values in host memory by their mean over all ranks; returns the seconds spent on sums.

        Raises RuntimeError where a peer is gone, or silent for the limit.
        """
        lane = self._lanes.get(tag) or self._lanes.setdefault(tag, self._meet(tag, self._limit_s))
        return lane.average(self._native, values, self.place, self.size, self._limit_s)

    def try_out(self) -> float | None:
        """Seconds of a small exchange; None where it comes to nothing within some seconds. Collective."""
        values = torch.full((_TRIAL_ELEMENTS,), float(self.place))
        try:
            if (lane := self._lanes.get(_TRIAL)) is None:
                lane = self._lanes[_TRIAL] = self._meet(_TRIAL, CONNECT_S)
            began = time.monotonic()
            lane.average(self._native, values, self.place, self.size, CONNECT_S)
        except (OSError, RuntimeError):
            return None
        return time.monotonic() - began if bool((values == (self.size - 1) / 2).all()) else None

    def found(self, seconds: float) -> None:
        """What the trial took on the slowest rank: the same number on all."""
        sent_bits = 8 * 4 * _TRIAL_ELEMENTS * 2 * (self.size - 1) / self.size
        self.fast = sent_bits / seconds >= FAST_BPS

    def close(self) -> None:
        """End all connections. A thread that still waits for a peer gets an error."""
        self._listener.close()
        for lane in self._lanes.values():
            lane.close()
        for connection in self._arrived.values():
            connection.close()

    def _meet(self, lane: int, limit_s: float) -> _Lane:
        deadline = time.monotonic() + limit_s
        try:
            to = socket.create_connection(self._next, timeout=limit_s)
        except OSError as error:
            raise RuntimeError(f"the next rank cannot be reached at {self._next}: {error}") from error
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        to.sendall(_HEADER.pack(self._token, lane, self.place))
        while lane not in self._arrived:
            if time.monotonic() > deadline:
                to.close()
                raise RuntimeError(f"the rank before has not connected for {limit_s:g} s")
            if self._accepting.acquire(timeout=_LOOK_S):
                try:
                    self._accept()
                finally:
                    self._accepting.release()
        return _Lane(to, self._arrived.pop(lane), torch.empty(ROOM_BYTES, dtype=torch.uint8), threading.Lock())

    def _accept(self) -> None:
        """Take in one connection, of whatever lane; for a moment, since it may be another thread's that comes next."""
        try:
            self._listener.settimeout(_LOOK_S)
            connection, _ = self._listener.accept()
        except TimeoutError:
            return
        except OSError as error:
            raise RuntimeError("the ring's connections were closed") from error
        connection.settimeout(1.0)
        told = b""
        with suppress(OSError):
            told = connection.recv(_HEADER.size, socket.MSG_WAITALL)
        if len(told) == _HEADER.size:
            token, lane, place = _HEADER.unpack(told)
            if secrets.compare_digest(token, self._token) and place == (self.place - 1) % self.size:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._arrived[lane] = connection
                return
        connection.close()


def listening(host: str) -> socket.socket:
    """A socket that takes connections at one address alone, at a port of the kernel's choice. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(2 * LANES)
    except OSError:
        listener.close()
        raise
    return listener


def agree_on(
    native: Native | None, own_host: Callable[[], str], tell: Callable[[object], list[Any]], place: int, limit_s: float
) -> RingSockets | None:
    """Connections of all ranks, or None on all of them, where one of them cannot have any. Collective.

    Args:
        native: what was compiled; None where nothing was.
        own_host: the address at which the rank before reaches this one; raises OSError where that is not known.
        tell: what all ranks say, by place; plain data.
        limit_s: of what is made, as of ``RingSockets``.
    """
    listener: socket.socket | None = None
    if native is not None:
        with suppress(OSError):
            listener = listening(own_host())
    said = tell([*listener.getsockname(), secrets.token_hex(TOKEN_BYTES)] if listener is not None else None)
    sockets: RingSockets | None = None
    if native is not None and listener is not None and None not in said:
        addresses: list[Address] = [(host, port) for host, port, _ in said]
        token = bytes.fromhex(said[0][2])
        sockets = RingSockets(native, listener, addresses, place, token, limit_s)
    took: list[float | None] = [None]
    if None not in said:
        took = tell(sockets and sockets.try_out())
        if None not in took and max(filter(None, took)) < _AGAIN_S:
            took = tell(sockets and sockets.try_out())
    if sockets is not None and None not in took:
        sockets.found(max(filter(None, took)))
        return sockets
    if sockets is not None:
        sockets.close()
    elif listener is not None:
        listener.close()
    return None
