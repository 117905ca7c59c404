"""Listening at one address of this host."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from bwbench.base.listening import listening_socket

NOT_OURS = "203.0.113.7"  # of a range for documentation


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_only_that_address_answers() -> None:
    port = free_port()
    with listening_socket("127.0.0.2", port):
        assert answers("127.0.0.2", port)
        assert not answers("127.0.0.1", port)


def test_an_address_of_a_router_is_every_address_here() -> None:
    port = free_port()
    with listening_socket(NOT_OURS, port):
        assert answers("127.0.0.1", port) and answers("127.0.0.2", port)


@pytest.mark.parametrize("name", ["laptop", "no-such-host"])
def test_a_name_that_the_others_know_better_is_every_address_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(asked: str, port: int, **_: Any) -> list[Any]:
        if asked == "no-such-host":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", port))]

    port = free_port()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", found)
        server = listening_socket(name, port)
    with server:
        assert answers("127.0.0.1", port)


def test_a_port_that_is_taken_is_an_error() -> None:
    with listening_socket("127.0.0.1", 0) as first, pytest.raises(OSError, match="in use"):
        listening_socket("127.0.0.1", first.getsockname()[1])
