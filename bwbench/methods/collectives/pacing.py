"""Sending no faster than the link: a burst that does not come about is not dropped at its queue.

TCP fills a queue until it overflows, and an overflow in a burst costs several round trips. Where the link is known, the
kernel is asked to space out what each connection sends (SO_MAX_PACING_RATE). gloo does not offer that, and its sockets
are its own; but they are files of this process, and what is set on a duplicate holds for the socket.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import MAX_NODES, node_addresses

# Of the rate: acknowledgements of what comes the other way need the rest. At 100 Mbit/s rings at 0.97, 0.98, 0.99 and
# 1.0 reached 0.926, 0.950, 0.948 and 0.944 of the limit.
SHARE_OF_DATA = 0.985

_SO_MAX_PACING_RATE = 47  # of Linux; Python's socket module does not name it
_UNLIMITED = 2**64 - 1
_FILES_OF_THIS_PROCESS = "/proc/self/fd"


class Ends(NamedTuple):
    """Addresses and ports of a connection, as this process sees it."""

    own: str
    own_port: int
    peer: str
    peer_port: int

    @property
    def seen_from_peer(self) -> Ends:
        """The same connection as the other process sees it."""
        return Ends(self.peer, self.peer_port, self.own, self.own_port)


def pace(link: Link | None, flows: int, num_nodes: int = 0) -> int:
    """Limit every connection of this process over the emulated data network to its share of the link.

    Args:
        link: what the network is asked to be. Nothing is done where its rate is not known or varies, and on a shared
            air, whose rate is nobody's own.
        flows: connections that a node sends on at the same time; 0 lifts the limits of an earlier call.
        num_nodes: how many nodes there are: of a link with sites it says who is where.

    Returns:
        How many connections that concerns; 0 where this is no Linux, or gloo uses another network.
    """
    if link is None or not link.shaped or link.air is not None:
        return 0
    sites = link.site_network(num_nodes) if flows else None
    number_of = {node_addresses(node).data_address: node for node in range(MAX_NODES)}
    num_paced = 0
    for ends, connection in _connections():
        if ends.own not in number_of or ends.peer not in number_of:
            continue
        sender, receiver = link.node(number_of[ends.own]), link.node(number_of[ends.peer])
        if sender.up_trace is not None or receiver.down_trace is not None:
            continue
        rates_bps = [sender.up_bps, receiver.down_bps]
        if sites is not None:
            here, there = (sites.site_of[number_of[address]] for address in (ends.own, ends.peer))
            rates_bps += [line.rate_bps for line in sites.route(here, there)]
        goodput_bps = min(rates_bps) / link.full_frame.wire_per_payload
        num_paced += _limit(connection, SHARE_OF_DATA * goodput_bps / flows if flows else None)
    return num_paced


def pace_connections(chosen: Collection[Ends], payload_bps: float | None) -> int:
    """Limit some of this process's connections, each to the same rate.

    Args:
        chosen: those that are meant, by both of their ends.
        payload_bps: of what TCP carries; None lifts the limit.

    Returns:
        How many connections that concerns; 0 where this is no Linux.
    """
    return sum(_limit(connection, payload_bps) for ends, connection in _connections() if ends in chosen)


def own_connections() -> list[Ends]:
    """Every TCP connection that this process has open now; none where this is no Linux."""
    return [ends for ends, _ in _connections()]


def _limit(connection: socket.socket, payload_bps: float | None) -> int:
    """Let the kernel space out what a connection sends, counting TCP's payload alone; returns whether it does."""
    rate = _UNLIMITED if payload_bps is None else max(1, int(payload_bps / 8))
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate.to_bytes(8, "little"))
        return 1
    return 0


def _connections() -> Iterator[tuple[Ends, socket.socket]]:
    """Both ends and a duplicate of every TCP connection of this process."""
    try:
        files = os.listdir(_FILES_OF_THIS_PROCESS)
    except OSError:
        return
    for file in files:
        with suppress(OSError), _duplicate(int(file)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                yield Ends(*connection.getsockname()[:2], *connection.getpeername()[:2]), connection


@contextmanager
def _duplicate(file: int) -> Iterator[socket.socket]:
    """A socket of its own for an open file; raises OSError where that is none."""
    duplicate = os.dup(file)
    try:
        connection = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise
    with connection:
        yield connection
