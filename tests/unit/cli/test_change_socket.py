"""``bwbench link set`` asks a run over its socket: what is no question is refused, and the next one is answered."""

from __future__ import annotations

import json
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from bwbench.base.errors import ConfigError
from bwbench.cli.link.change_socket import ChangeSocket, ask


class _Network:
    """Takes what it is asked."""

    def change(self, /, **keys: Any) -> Any:
        if "self" in keys:
            raise ConfigError("'self' cannot be changed")
        return SimpleNamespace(describe=lambda: f"as asked: {keys}")


def sent(text: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.connect(f"\0bwbench-link-{os.getpid()}")
        connection.sendall(text + b"\n")
        return connection.recv(4096)


@pytest.mark.parametrize("text", [b"[1, 2]", b"7", b"null", b'"loss"'])
def test_what_is_no_object_is_refused_and_the_next_one_answered(text: bytes) -> None:
    with ChangeSocket(_Network()) as listening:  # type: ignore[arg-type]
        assert "is no JSON object" in json.loads(sent(text))["error"]
        assert "loss" in ask(os.getpid(), {"loss": "0.1"})
    assert [change["keys"] for change in listening.changes] == [{"loss": "0.1"}]


@pytest.mark.parametrize("text", [b"{", b"[" * 60_000, b"\xff"])
def test_what_is_no_json_gets_no_answer_and_the_next_one_does(text: bytes) -> None:
    with ChangeSocket(_Network()):  # type: ignore[arg-type]
        assert sent(text) == b""
        assert "'self'" in json.loads(sent(b'{"self": 1}'))["error"]
        assert "loss" in ask(os.getpid(), {"loss": "0.1"})


def test_the_name_is_free_as_soon_as_the_block_ends() -> None:
    for bandwidth in map(str, range(200)):
        with ChangeSocket(_Network()):  # type: ignore[arg-type]
            assert bandwidth in ask(os.getpid(), {"bandwidth": bandwidth})
