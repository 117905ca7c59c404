"""How the parent and the agent talk: requests and their answers as types, JSON lines over a unix socket.

A request goes out as ``{"id", "op", **fields}``, its answer comes back as ``{"id", **fields}`` or as ``{"id", "error",
"message"}``. File descriptors travel beside the request that they belong to.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from bwbench.base.messages import LineBuffer, decode, encode
from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import NodeAddresses
from bwbench.network.namespaces.applied import Applied
from bwbench.network.namespaces.backend import WireCounters

MAX_FDS = 32  # more than any request carries
MAX_MESSAGE_BYTES = 1 << 26  # an environment and a command line of the largest size; counters of 254 x 253 pairs


@dataclass(frozen=True)
class Done:
    """An answer that says no more than that it is done."""

    def to_json(self) -> dict[str, Any]:
        """The fields of the message."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Any:
        """The inverse of ``to_json``."""
        return cls(**content)


AnswerT = TypeVar("AnswerT", bound=Done)


@dataclass(frozen=True)
class Request(Generic[AnswerT]):
    """Something for the agent to do, answered by an ``AnswerT``."""

    op: ClassVar[str]
    answer: ClassVar[type[Done]] = Done

    def to_json(self) -> dict[str, Any]:
        """The fields of the message."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Any:
        """The inverse of ``to_json``."""
        return cls(**content)


@dataclass(frozen=True)
class Opened(Done):
    """The network is there.

    Attributes:
        backend, backend_reason: what carries the link, and why this one.
        nodes: their addresses and interfaces.
    """

    backend: str
    backend_reason: str
    applied: Applied
    nodes: tuple[NodeAddresses, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields of the message."""
        nodes = [dict(vars(node)) for node in self.nodes]
        return {**vars(self), "applied": self.applied.to_message(), "nodes": nodes}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Opened:
        """The inverse of ``to_json``."""
        applied, nodes = Applied.from_message(content["applied"]), tuple(NodeAddresses(**n) for n in content["nodes"])
        return cls(content["backend"], content["backend_reason"], applied, nodes)


@dataclass(frozen=True)
class Open(Request[Opened]):
    """Make ``num_nodes`` nodes with ``link`` between them."""

    op: ClassVar[str] = "open"
    answer: ClassVar[type[Done]] = Opened

    link: Link
    num_nodes: int

    def to_json(self) -> dict[str, Any]:
        """The fields of the message."""
        return {"link": self.link.model_dump(mode="json", by_alias=True), "num_nodes": self.num_nodes}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Open:
        """The inverse of ``to_json``."""
        return cls(Link.model_validate(content["link"]), content["num_nodes"])


@dataclass(frozen=True)
class Spawned(Done):
    """A process has started: its id as the agent sees it, and as the parent does."""

    child: int
    pid: int


@dataclass(frozen=True)
class Spawn(Request[Spawned]):
    """Start ``argv`` in a node; beside it come the pipe for its exit status and a descriptor a ``targets``.

    Attributes:
        env, cwd: its whole environment, and its working directory.
        targets: under which numbers it finds the descriptors.
    """

    op: ClassVar[str] = "spawn"
    answer: ClassVar[type[Done]] = Spawned

    node: int
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    targets: Sequence[int]


@dataclass(frozen=True)
class Signal(Request[Done]):
    """Send signal ``number`` to a started process and its group."""

    op: ClassVar[str] = "signal"

    child: int
    number: int


@dataclass(frozen=True)
class Counted(Done):
    """What has crossed the link so far."""

    counters: WireCounters

    def to_json(self) -> dict[str, Any]:
        """The fields of the message."""
        return {"counters": self.counters.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Counted:
        """The inverse of ``to_json``."""
        return cls(WireCounters.from_json(content["counters"]))


@dataclass(frozen=True)
class Count(Request[Counted]):
    """Tell the counters."""

    op: ClassVar[str] = "counters"
    answer: ClassVar[type[Done]] = Counted


@dataclass(frozen=True)
class Healthy(Done):
    """``Health.to_json`` of the back end."""

    health: dict[str, Any]


@dataclass(frozen=True)
class AskHealth(Request[Healthy]):
    """Tell how well the back end keeps up."""

    op: ClassVar[str] = "health"
    answer: ClassVar[type[Done]] = Healthy


@dataclass(frozen=True)
class Play(Request[Done]):
    """Let what varies about the link be ``at_s`` after its begin now."""

    op: ClassVar[str] = "play"

    at_s: float


@dataclass(frozen=True)
class Hold(Request[Done]):
    """Make the link steady again."""

    op: ClassVar[str] = "hold"


REQUESTS: dict[str, type[Request[Any]]] = {
    kind.op: kind for kind in (Open, Spawn, Signal, Count, AskHealth, Play, Hold)
}


class ControlSocket:
    """One end of the connection. A message is one JSON object; its descriptors arrive with its first byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = LineBuffer(MAX_MESSAGE_BYTES)
        self._lines: deque[bytes] = deque()
        self._fds: list[int] = []

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message; raises OSError (TimeoutError where the socket has a time limit)."""
        data = encode(message)
        sent = socket.send_fds(self.connection, [data], list(fds)) if fds else 0
        self.connection.sendall(data[sent:])

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message with its descriptors (not inheritable; the caller's to close); None at the end of file."""
        while not self._lines:
            data, fds, _, _ = socket.recv_fds(self.connection, 65536, MAX_FDS)
            for fd in fds:
                os.set_inheritable(fd, False)
            self._fds += fds
            if not data:
                return None
            self._lines.extend(self._buffer.feed(data))
        fds, self._fds = self._fds, []
        return decode(self._lines.popleft()) or {}, fds

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self.connection.close()
