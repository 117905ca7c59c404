"""What passes between the two hosts of a recording: one line each way, then bytes, their counts, or echoes.

A session is one TCP connection. The client's line names what it is for (``echo``, ``up``, ``down``), for how many
seconds, and the token of the listener; the listener's line is ``ok`` or why not. Goodput is counted where the bytes
arrive; for ``up`` the listener sends a line with the count of each second back.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Callable

from bwbench.base.errors import ConfigError
from bwbench.base.listening import MAX_PORT
from bwbench.base.messages import LineBuffer, first_line

DEFAULT_PORT = 5210
MAX_SECONDS = 86_400
MODES = ("echo", "up", "down")
MAGIC = "bwbench-record/1"
HANDSHAKE_S = 5.0
WARM_UP_S = 1.0  # of each transfer, not counted: TCP's slow start is not the network
STALLED_S = 60.0  # without a byte from the other side, which sends all the time
LONGEST_LINE = 256
BLOCK_BYTES = 1 << 17
ECHO_BYTES = 16


def check_port(port: int) -> None:
    """Raise ConfigError where there is no such TCP port."""
    if not 1 <= port <= MAX_PORT:
        raise ConfigError(f"port: {port} is out of range: 1 to {MAX_PORT}")


def check_token(token: str) -> None:
    """Raise ConfigError where ``token`` could not stand in the line of the handshake."""
    if token and not (token.isascii() and token.isalnum() and len(token) <= 64):
        raise ConfigError(f"token: {token[:40]!r} cannot be a token; write letters and digits, at most 64 of them")


class HandshakeError(Exception):
    """The other side does not want this session, or is no bwbench; the text says which."""


def read_line(connection: socket.socket, limit_s: float) -> str:
    """One line without its end; raises HandshakeError where none comes in time, or too long a one."""
    try:
        line = first_line(connection.fileno(), limit_s, LONGEST_LINE)
    except TimeoutError:
        raise HandshakeError(f"no answer within {limit_s:g} s") from None
    if line.endswith(b"\n"):
        return line[:-1].decode("ascii", "replace")
    if len(line) >= LONGEST_LINE:
        raise HandshakeError("its answer is too long a line")
    raise HandshakeError("it closed the connection; does it listen for something else?")


def receive(connection: socket.socket, seconds: int, on_second: Callable[[int, float], None]) -> None:
    """Count what arrives in each of ``seconds``, after the warm-up.

    Args:
        connection: on which the other side sends all the time.
        seconds: how long.
        on_second: called with the number of a second and its bit/s, as soon as it is over; 0 where nothing came.

    Raises:
        ConnectionError: the other side went away.
        TimeoutError: it has been silent for a minute, and the network with it.
    """
    buffer = bytearray(2 * BLOCK_BYTES)
    begin_s = time.monotonic() + WARM_UP_S
    last_s = time.monotonic()
    num_bytes = [0] * seconds
    reported = 0
    while reported < seconds:
        now_s = time.monotonic()
        second = math.floor(now_s - begin_s)
        while reported < min(second, seconds):
            on_second(reported, num_bytes[reported] * 8.0)
            reported += 1
        if now_s - last_s > STALLED_S:
            raise TimeoutError(f"nothing arrived for {STALLED_S:g} s")
        connection.settimeout(max(begin_s + max(second + 1, 0) - now_s, 1e-3))
        try:
            got = connection.recv_into(buffer)
        except TimeoutError:
            continue
        if not got:
            raise ConnectionResetError("the other side closed the connection")
        last_s = time.monotonic()
        index = math.floor(last_s - begin_s)
        if 0 <= index < seconds:
            num_bytes[index] += got


def send(connection: socket.socket, limit_s: float, on_line: Callable[[str], bool]) -> None:
    """Send all the time until ``on_line`` returns True for a line that came back, or the other side closes.

    Raises:
        ConnectionError: the connection broke.
        TimeoutError: ``limit_s`` is over.
    """
    block = os.urandom(BLOCK_BYTES)  # so that nothing on the way can compress it
    connection.setblocking(False)
    poller = select.poll()
    poller.register(connection, select.POLLIN | select.POLLOUT)
    deadline_s = time.monotonic() + limit_s
    lines = LineBuffer(LONGEST_LINE)
    while time.monotonic() < deadline_s:
        for _, event in poller.poll(500):
            with contextlib.suppress(BlockingIOError):
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    came = connection.recv(4096)
                    if not came:
                        return
                    if any(on_line(line.decode("ascii", "replace")) for line in lines.feed(came)):
                        return
                    if lines.has_dropped:
                        raise ConnectionError("the other side sends what is no line")
                elif event & select.POLLOUT:
                    connection.send(block)
    raise TimeoutError(f"not over after {limit_s:g} s")


def echo(connection: socket.socket, limit_s: float) -> None:
    """Send back what comes until the other side closes or ``limit_s`` is over."""
    deadline_s = time.monotonic() + limit_s
    while (left_s := deadline_s - time.monotonic()) > 0:
        connection.settimeout(left_s)
        with contextlib.suppress(TimeoutError):
            came = connection.recv(4096)
            if not came:
                return
            connection.sendall(came)


def ping(connection: socket.socket, limit_s: float) -> float:
    """Round-trip time of one small message in seconds; raises OSError where it does not come back."""
    connection.settimeout(limit_s)
    start_s = time.monotonic()
    connection.sendall(bytes(ECHO_BYTES))
    missing = ECHO_BYTES
    while missing:
        came = connection.recv(missing)
        if not came:
            raise ConnectionResetError("the other side closed the connection")
        missing -= len(came)
    return time.monotonic() - start_s
