"""Connections of a ring's own, beside the process group: what goes round on them is moved and added up in C.

gloo holds a message back until its receiver has announced a buffer, and each message costs two calls of Python and a
wake-up. On a fast network that is most of what an exchange of a few megabytes takes. Here a bucket is one call, and
what has arrived leaves again byte by byte. The order of summation is that of ``ring.py``, and so are the bits.

Buckets that take long stay with gloo, whose software is no part of that. On these connections torch's DDP was ahead
there: at 100 Mbit/s by 1.5 % (0.7 to 2.2 %; buckets of 1 and 12 MB), at 1 Gbit/s by 5.0 % (3.5 to 6.6 %; of 25 MB).
With gloo it was not. Why has not been measured; connections here rest between buckets, and gloo's one does not.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from bwbench.methods.collectives.transport import Round
from bwbench.methods.deferred import torch
from bwbench.methods.native import Native

LANES = 64  # buckets that have connections of their own; two files each
TOKEN_BYTES = 16
ROOM_BYTES = 256 * 1024  # what is to be added stays in the cache
CONNECT_S = 5.0  # for the first connections, or a quarter of the limit
SMALL_BYTES = 256 * 1024  # of buckets that go round on any network
FAST_BPS, LONGEST_S = 300e6, 0.2  # on one as fast as this, buckets that take no longer
_HEADER = struct.Struct(f"<{TOKEN_BYTES}sqq")  # the token, the lane, the place of the rank that connects
_LOOK_S = 0.02  # how long one thread accepts before it lets others look
_TRIAL = -1  # the lane of the first exchanges, which show whether sockets reach, and how fast
_TRIAL_ELEMENTS = 65_536

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
        token: the same on all ranks and known to nobody else; a connection without it is not used.
        limit_s: without a byte in either direction.

    Attributes:
        largest_bytes: of a bucket that goes round here, by how fast the network is.
    """

    def __init__(
        self, native: Native, listener: socket.socket, addresses: Sequence[Address], place: int, token: bytes,
        limit_s: float,
    ) -> None:  # fmt: skip
        self._native, self._listener, self._token, self._limit_s = native, listener, token, limit_s
        self.place, self.size, self.largest_bytes = place, len(addresses), SMALL_BYTES
        self._next = addresses[(place + 1) % self.size]
        self._lanes: dict[int, _Lane] = {}
        self._arrived: dict[int, socket.socket] = {}
        self._half_told: dict[socket.socket, bytes] = {}  # connections whose header is not whole yet
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._accepting = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False

    def carries(self, round_: Round, num_bytes: int) -> bool:
        """Whether a bucket of so many bytes goes by these connections: all ranks take part, and it has a lane."""
        sized = num_bytes <= self.largest_bytes
        return sized and round_.tag < LANES and round_.members.ranks == tuple(range(self.size))

    def average(self, values: torch.Tensor, tag: int) -> float:
        """Replace fp32 values in host memory by their mean over all ranks; returns the seconds spent on sums.

        Raises RuntimeError where a peer is gone, or silent for the limit.
        """
        lane = self._lanes.get(tag) or self._meet(tag, self._limit_s)
        return lane.average(self._native, values, self.place, self.size, self._limit_s)

    def try_out(self) -> float | None:
        """Seconds that some values take on the way, latency left out; None where they do not arrive. Collective.

        The second of two exchanges counts, as connections begin slowly. The first one of all waits for the last rank.
        """
        limit_s = min(CONNECT_S, self._limit_s / 4)
        few, many = torch.full((self.size,), float(self.place)), torch.full((_TRIAL_ELEMENTS,), float(self.place))
        took: list[float] = []
        try:
            lane = self._meet(_TRIAL, limit_s)
            for values in (few.clone(), many.clone(), few, many):
                began = time.monotonic()
                lane.average(self._native, values, self.place, self.size, limit_s)
                took.append(time.monotonic() - began)
        except RuntimeError:
            return None
        right = (self.size - 1) / 2
        return max(took[3] - took[2], 1e-9) if all(bool((values == right).all()) for values in (few, many)) else None

    def settle(self, seconds: float) -> None:
        """What the trial took on the slowest rank: the same number on all. Its connections have done their work."""
        bucket_bytes, sent = 4 * _TRIAL_ELEMENTS, 2 * (self.size - 1) / self.size
        if 8 * sent * bucket_bytes / seconds >= FAST_BPS:
            self.largest_bytes = int(LONGEST_S / seconds * bucket_bytes)
        self._lanes.pop(_TRIAL).close()

    def close(self) -> None:
        """End all connections. A thread that still waits for a peer gets an error."""
        with self._closing:
            self._closed = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.close()
        with self._accepting:
            for connection in (self._listener, *self._arrived.values(), *self._half_told):
                connection.close()
            self._selector.close()

    def _meet(self, number: int, limit_s: float) -> _Lane:
        """A new lane. Raises RuntimeError where the ranks beside this one do not come."""
        deadline = time.monotonic() + limit_s
        with ExitStack() as on_error:
            try:
                to = on_error.enter_context(socket.create_connection(self._next, timeout=limit_s))
                to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                to.sendall(_HEADER.pack(self._token, number, self.place))
            except OSError as error:
                raise RuntimeError(f"the next rank cannot be reached at {self._next}: {error}") from error
            while number not in self._arrived:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the rank before has not connected for {limit_s:g} s")
                if self._accepting.acquire(timeout=_LOOK_S):
                    try:
                        self._accept()
                    finally:
                        self._accepting.release()
            with self._closing:
                if self._closed:
                    raise RuntimeError("the ring's connections were closed")
                room = torch.empty(ROOM_BYTES, dtype=torch.uint8)
                lane = self._lanes[number] = _Lane(to, self._arrived.pop(number), room, threading.Lock())
            on_error.pop_all()
        return lane

    def _accept(self) -> None:
        """Take in what comes, of whatever lane; for a moment, since it may be another thread's that comes next."""
        if self._closed:
            raise RuntimeError("the ring's connections were closed")
        for key, _ in self._selector.select(_LOOK_S):
            if key.fileobj is self._listener:
                with suppress(OSError):  # it is gone again
                    connection, _ = self._listener.accept()
                    connection.setblocking(False)
                    self._half_told[connection] = b""
                    self._selector.register(connection, selectors.EVENT_READ)
            else:
                self._hear(key.fileobj)  # type: ignore[arg-type]

    def _hear(self, connection: socket.socket) -> None:
        """A part of a header; the whole one says what the connection is for."""
        told = b""
        with suppress(OSError):
            told = connection.recv(_HEADER.size - len(self._half_told[connection]))
        header = self._half_told[connection] + told
        if told and len(header) < _HEADER.size:
            self._half_told[connection] = header
            return
        self._selector.unregister(connection)
        del self._half_told[connection]
        if told:
            token, number, place = _HEADER.unpack(header)
            if secrets.compare_digest(token, self._token) and place == (self.place - 1) % self.size:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._arrived[number] = connection
                return
        connection.close()


def listening(host: str) -> socket.socket:
    """A socket that takes connections at one address alone, at a port of the kernel's choice. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(2 * LANES)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def agree_on(
    native: Native | None, own_host: Callable[[], str], tell: Callable[[object], list[Any]], place: int, limit_s: float
) -> tuple[RingSockets | None, str]:
    """Connections of all ranks, or None on all of them, where one of them cannot have any; and why, in words.

    Collective.

    Args:
        native: what was compiled; None where nothing was, or is to be used.
        own_host: the address at which the rank before reaches this one; raises OSError where that is not known.
        tell: what all ranks say, in the same order on all; plain data.
        place: of this rank in the ring.
        limit_s: of what is made, as of ``RingSockets``.
    """
    with ExitStack() as on_error:
        own: object = "nothing was compiled, or is to be used"
        listener: socket.socket | None = None
        if native is not None:
            try:
                listener = on_error.enter_context(listening(own_host()))
                own = [place, *listener.getsockname(), secrets.token_hex(TOKEN_BYTES)]
            except (OSError, UnicodeError) as error:  # the latter of a name that is none
                own = f"no address to listen at: {error}"
        said = tell(own)
        if reasons := [each for each in said if isinstance(each, str)]:
            return None, reasons[0]
        assert native is not None and listener is not None
        said.sort()
        addresses: list[Address] = [(host, port) for _, host, port, _ in said]
        sockets = RingSockets(native, listener, addresses, place, bytes.fromhex(said[0][3]), limit_s)
        on_error.callback(sockets.close)
        took = tell(sockets.try_out())
        if None in took:
            return None, "ranks do not reach each other by connections of their own"
        sockets.settle(max(took))
        on_error.pop_all()
    return sockets, f"buckets of up to {sockets.largest_bytes / 1e6:.3g} MB"
