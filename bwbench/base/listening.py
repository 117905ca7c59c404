"""Listening where the other hosts are, and nowhere else."""

from __future__ import annotations

import errno
import ipaddress
import socket

MAX_PORT = 65_535  # of TCP and UDP


def listening_socket(address: str, port: int) -> socket.socket:
    """A TCP socket that listens at ``address``, by which the other hosts reach this one.

    Where that is none of this host's own (a router translates it), or a name that leads to the loopback here
    (``127.0.1.1 laptop`` in /etc/hosts), it listens at every address: nobody would reach it otherwise.

    Raises OSError where the port is taken.
    """
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        found = []
    for family, _, _, _, where in found:
        own = str(where[0])
        if own != address and ipaddress.ip_address(own.partition("%")[0]).is_loopback:
            continue
        try:
            return socket.create_server((own, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return listening_everywhere(port)


def listening_everywhere(port: int) -> socket.socket:
    """A TCP socket that listens at every address of this host, those of IPv6 as well where it has that."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
