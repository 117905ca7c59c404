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

from bwbench.base.errors import BwbenchError, ConfigError, LaunchError, LinkError, UnfitMachineError
from bwbench.base.messages import LineBuffer, decode, encode
from bwbench.base.plain_data import JsonObject

MAX_FDS = 32  # more than any request carries
MAX_MESSAGE_BYTES = 1 << 26  # an environment and a command line of the largest size; counters of 254 x 253 pairs

# Errors that cross to the parent as themselves; anything else arrives as a LinkError with the traceback's last line.
ERRORS: dict[str, type[BwbenchError]] = {
    kind.__name__: kind for kind in (ConfigError, LaunchError, LinkError, UnfitMachineError)
}


@dataclass(frozen=True)
class Done:
    """An answer that says no more than that it is done. The fields of every answer are plain data."""


AnswerT = TypeVar("AnswerT", bound=Done)
REQUESTS: dict[str, type[Request[Any]]] = {}


@dataclass(frozen=True)
class Request(Generic[AnswerT]):
    """Something for the agent to do, answered by an ``AnswerT``. Its fields are plain data."""

    op: ClassVar[str]
    answer: ClassVar[type[Done]]

    def __init_subclass__(cls, op: str, answer: type[Done] = Done) -> None:
        super().__init_subclass__()
        cls.op, cls.answer = op, answer
        REQUESTS[op] = cls


@dataclass(frozen=True)
class Opened(Done):
    """The network is there: what carries the link, why this one, and what was set (``Network.applied``)."""

    backend: str
    backend_reason: str
    applied: JsonObject


@dataclass(frozen=True)
class Open(Request[Opened], op="open", answer=Opened):
    """Make ``num_nodes`` nodes with ``link`` (its keys, every default filled in) between them.

    Attributes:
        control_path: whether there is a second network, which nothing shapes.
        dilation: so many times slower than ``link`` says; see ``Link.dilated``.
    """

    link: JsonObject
    num_nodes: int
    control_path: bool
    dilation: float = 1.0


@dataclass(frozen=True)
class Spawned(Done):
    """A process has started: its id as the agent sees it, and as the parent does."""

    child: int
    pid: int


@dataclass(frozen=True)
class Spawn(Request[Spawned], op="spawn", answer=Spawned):
    """Start ``argv`` in a node; beside it come the pipe for its exit status and a descriptor a ``targets``.

    Attributes:
        env, cwd: its whole environment, and its working directory.
        targets: under which numbers it finds the descriptors.
        few_rights: whether it goes without most of what root may.
        terminal: whether descriptor 0 is a terminal that is to be its own, with Ctrl-C and job control.
    """

    node: int
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    targets: Sequence[int]
    few_rights: bool = False
    terminal: bool = False


@dataclass(frozen=True)
class Signal(Request[Done], op="signal"):
    """Send signal ``number`` to a started process and its group."""

    child: int
    number: int


@dataclass(frozen=True)
class Counted(Done):
    """``WireCounters.to_json`` of what has crossed the link so far."""

    rows: list[dict[str, int | None]]


@dataclass(frozen=True)
class Count(Request[Counted], op="counters", answer=Counted):
    """Tell the counters."""


@dataclass(frozen=True)
class Healthy(Done):
    """``AbstractBackend.health``."""

    health: JsonObject


@dataclass(frozen=True)
class AskHealth(Request[Healthy], op="health", answer=Healthy):
    """Tell how well the back end keeps up."""


@dataclass(frozen=True)
class Unroutable(Done):
    """``Wiring.unroutable``, node by node."""

    attempts: list[int]


@dataclass(frozen=True)
class AskUnroutable(Request[Unroutable], op="unroutable", answer=Unroutable):
    """Tell who has looked for something beyond the nodes."""


@dataclass(frozen=True)
class Play(Request[Done], op="play"):
    """Let what varies about the link be ``at_s`` after its begin now; None makes the link steady again."""

    at_s: float | None


@dataclass(frozen=True)
class Changed(Done):
    """The link has become another one: what was set."""

    applied: JsonObject


@dataclass(frozen=True)
class Change(Request[Changed], op="change", answer=Changed):
    """Make the link another one while it runs.

    Attributes:
        link: its keys, every default filled in; of the same medium and disciplines.
        dilation: as it was opened with.
    """

    link: JsonObject
    dilation: float


class ControlSocket:
    """One end of the connection. A message is one JSON object; its descriptors arrive with its first byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = LineBuffer(MAX_MESSAGE_BYTES)
        self._lines: deque[bytes] = deque()
        self._fds: list[int] = []

    def send(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> None:
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
