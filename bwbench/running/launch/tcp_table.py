"""What the kernel says of a node's TCP connections, read from outside: does the other end still answer?"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_RETRANSMISSION_TIMER = 1  # the column ``tr``: data is on its way and not acknowledged yet


@dataclass(frozen=True)
class Unanswered:
    """A connection that has had to repeat data, and no acknowledgement since.

    Attributes:
        local, remote: address and port of either end.
        repeats: times that the retransmission timer has run out since the last acknowledgement of new data.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    repeats: int


def unanswered(pid: int) -> list[Unanswered]:
    """IPv4 connections in a process's network namespace that repeat data without an answer.

    A receiver that does not read is no such thing: it answers. Empty where the process has ended.
    """
    try:
        with open(f"/proc/{pid}/net/tcp") as file:
            return list(parse(file.read()))
    except OSError:
        return []


def parse(table: str) -> Iterator[Unanswered]:
    """The rows of /proc/net/tcp that wait for an acknowledgement of what they have sent more than once."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 7:
            continue
        repeats = int(fields[6], 16)
        if repeats and int(fields[5].partition(":")[0], 16) == _RETRANSMISSION_TIMER:
            yield Unanswered(_endpoint(fields[1]), _endpoint(fields[2]), repeats)


def _endpoint(text: str) -> tuple[str, int]:
    """``0100007F:1F90`` is 127.0.0.1, port 8080: the address is a word of this machine's byte order."""
    address, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)
