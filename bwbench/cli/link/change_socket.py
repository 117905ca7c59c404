"""``bwbench link set``: changes to a link that ``link run`` has made, while programs run on it.

A run listens on a socket of its own, of the kind that has no file (the name ends with the run's process id), and lets
in its own user alone. One line of JSON asks, one answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bwbench.base.errors import BwbenchError, ConfigError, LinkError
from bwbench.base.plain_data import JsonObject
from bwbench.network.network import Network

_NAME = "bwbench-link-{pid}"
_LISTED = re.compile(r"@bwbench-link-(\d+)$", re.MULTILINE)
_LIMIT_S = 20.0
_LAST_ANSWER_S = 1.0  # an end waits no longer for one who has connected and asks nothing
_MOST_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("=3i")  # struct ucred: process, user, group


class ChangeSocket:
    """Listens for changes of ``network`` in a thread of its own, as long as the block lasts.

    Attributes:
        changes: what was changed: ``at_s`` since this began, ``keys`` as they were given, and the ``link`` in words.
    """

    def __init__(self, network: Network) -> None:
        self.changes: list[JsonObject] = []
        self._network = network
        self._begun_s = time.monotonic()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ChangeSocket:
        try:
            self._listener.bind("\0" + _NAME.format(pid=os.getpid()))
        except OSError:  # a second network of this process: the first one is who listens
            return self
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if self._thread is not None:
            self._thread.join(_LAST_ANSWER_S)  # while it waits in accept, the name stays taken
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError, ValueError, RecursionError):
                connection.settimeout(_LIMIT_S)
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                if _CREDENTIALS.unpack(credentials)[1] not in (0, os.getuid()):
                    continue
                keys = json.loads(_line(connection))
                connection.sendall(json.dumps(self._answer(keys)).encode() + b"\n")

    def _answer(self, keys: object) -> JsonObject:
        if not isinstance(keys, dict):
            return {"error": f'{str(keys)[:40]!r} is no JSON object; write {{"bandwidth": "2 Mbit/s"}}'}
        try:
            link = self._network.change(**keys)
        except BwbenchError as error:
            return {"error": str(error)}
        self.changes.append(
            {
                "at_s": time.monotonic() - self._begun_s,
                "keys": {key: str(value) for key, value in keys.items()},
                "link": link.describe(),
            }
        )
        return {"link": link.describe()}


def running() -> list[int]:
    """Process ids of the runs that can be asked, of any user."""
    try:
        listed = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return sorted({int(pid) for pid in _LISTED.findall(listed)})


def ask(pid: int | None, keys: Mapping[str, str]) -> str:
    """Have a run change its link; the link that it is now, in words.

    Args:
        pid: of the run; None is the only one.

    Raises ConfigError where there is none, or more than one, and for what the run refuses.
    """
    known = running()
    if pid is None:
        if len(known) != 1:
            listed = f"several run: name one with --run {' or '.join(map(str, known))}" if known else "none runs here"
            raise ConfigError(f"which 'bwbench link run' is to be changed? {listed}")
        pid = known[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_LIMIT_S)
        try:
            connection.connect("\0" + _NAME.format(pid=pid))
            connection.sendall(json.dumps(dict(keys)).encode() + b"\n")
            answer = json.loads(_line(connection))
        except (OSError, ValueError) as error:
            others = f"; these can: {', '.join(map(str, known))}" if known else ""
            raise LinkError(f"--run {pid}: no 'bwbench link run' answers under this process id{others}") from error
    if "error" in answer:
        raise ConfigError(answer["error"])
    return str(answer["link"])


def _line(connection: socket.socket) -> bytes:
    return b"".join(_until_newline(connection))


def _until_newline(connection: socket.socket) -> Iterator[bytes]:
    total = 0
    while data := connection.recv(4096):
        total += len(data)
        if total > _MOST_BYTES:
            raise ValueError("too long")
        yield data
        if data.endswith(b"\n"):
            return
