"""The report of a running sweep, served to browsers of this machine: made anew when one asks and records have changed.

Only loopback, and only reading. Looking costs a small share of one processor at most, since cells are timed beside it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TypeAlias

from bwbench.base.errors import BwbenchError, ConfigError, RecordError
from bwbench.records import CellFolder, iter_cells
from bwbench.records.lock import CLAIM, ClaimNote, claim_of
from bwbench.records.packed import PACKED, published_beside
from bwbench.results.analysis.results import Reader
from bwbench.results.page.payload import Facts, build_payload
from bwbench.results.page.render import render_page

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")  # that a browser may call it by; at any port, since a tunnel may have another one
LOOK_EVERY_S = 1.0
MOST_SHARE = 0.05  # of the time that looking may take
MOST_UNREADABLE = 20  # cells that the page names
_RECORDS = ("cell.json", "status.json", "composed.json")
_OF_RANKS = re.compile(r"rank\d+\.jsonl|link\.json|environment\.json")
_HOST = re.compile(r":\d{1,5}\Z")  # the port behind the name in what a browser sends
_LINGERS_S = 60.0  # a connection on which nobody asks or reads anything
# No address of elsewhere, no page of elsewhere that shows this one, no guess at what a file is.
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Fingerprint: TypeAlias = tuple[object, ...]  # differs as soon as the records of a cell do


@dataclass(frozen=True)
class ServedReport:
    """What a browser is shown.

    Attributes:
        version: another one for other content.
        payload: of the page.
        content: the same as JSON.
    """

    version: str
    payload: Facts
    content: bytes


class Watched:
    """A results folder, looked at again and again: cells whose records have not changed are read once.

    What cannot be read is left out and named; where nothing can be read what was seen last stands.

    Args:
        published: whether the published sets beside its own runs are shown as well.
        clock: seconds that only grow.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic, *, published: bool = False) -> None:
        self._folder, self._published, self._clock = folder, published, clock
        self._title = folder.resolve().name.encode(errors="backslashreplace").decode()
        self._reader = Reader()
        self._known: dict[Path, tuple[Fingerprint, CellFolder]] = {}
        self._fingerprints: Fingerprint | None = None
        self._seen: ServedReport | None = None
        self._next_look_s = 0.0
        self._one_at_a_time = threading.Lock()

    def seen(self) -> ServedReport:
        """The newest there is. Raises RecordError where nothing could be read since the beginning."""
        with self._one_at_a_time:
            if self._seen is None or self._clock() >= self._next_look_s:
                began_s = self._clock()
                self._look()
                ended_s = self._clock()
                self._next_look_s = ended_s + max(LOOK_EVERY_S, (ended_s - began_s) * (1 / MOST_SHARE - 1))
            assert self._seen is not None, "looking raises where it has never seen anything"
            return self._seen

    def _look(self) -> None:
        try:
            found = [(cell, *_fingerprint(cell)) for cell in iter_cells(self._folder, published=self._published)]
            if not found:
                raise RecordError(f"{self._folder} holds no records any more")
        except (BwbenchError, OSError) as error:
            self._keep_last(str(error))
            return
        fingerprints = tuple((cell.path, fingerprint) for cell, fingerprint, _ in found)
        if fingerprints == self._fingerprints:
            return
        cells, running, refused = [], {}, []
        for cell, fingerprint, claim in found:
            one = self._kept(cell, fingerprint)
            try:
                if (problem := one.problem) is not None:
                    raise problem
                digest = self._reader.read(one)
            except (RecordError, OSError) as error:  # the latter of a folder that has just been removed
                refused.append(str(error))
                continue
            cells.append(one)
            if claim is not None and one.status is None:
                running[one.path] = f"{claim.doing(is_training=len(digest.curve) > 0)} on {claim.where()}"
        self._known = {cell.path: self._known[cell.path] for cell, _, _ in found}
        if not cells:
            self._keep_last(f"no cell can be read: {refused[0]}")
            return
        try:
            payload = build_payload(cells, self._title, self._reader, running)
        except OSError as error:  # as above: the next look finds it gone
            self._keep_last(str(error))
            return
        self._show({**payload, "live": {"problem": None, "unreadable": refused[:MOST_UNREADABLE]}})
        self._fingerprints = fingerprints

    def _keep_last(self, problem: str) -> None:
        """Show what was seen last, and why there is nothing newer. Raises RecordError where nothing was ever seen."""
        if self._seen is None:
            raise RecordError(f"{self._folder}: {problem}")
        self._fingerprints = None
        self._show({**self._seen.payload, "live": {"problem": problem, "unreadable": []}})

    def _kept(self, cell: CellFolder, fingerprint: Fingerprint) -> CellFolder:
        """The cell as it was read before, where its records are the same."""
        known = self._known.get(cell.path)
        if known is not None and known[0] == fingerprint:
            return known[1]
        self._reader.forget(cell)
        self._known[cell.path] = fingerprint, cell
        return cell

    def _show(self, payload: Facts) -> None:
        content = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        self._seen = ServedReport(hashlib.sha256(content).hexdigest()[:16], payload, content)


def _fingerprint(cell: CellFolder) -> tuple[Fingerprint, ClaimNote | None]:
    """What tells whether a cell has changed; and who holds it, which dies without a trace on the disk."""
    if cell.is_packed:
        folders = (cell.path.parent, published_beside(cell.path.parent))
        return tuple(one for folder in folders for one in _stat(folder / PACKED)), None
    claim = claim_of(cell.path) if os.path.lexists(cell.path / CLAIM) else None
    places = [cell.path / name for name in _RECORDS]
    if (attempt := cell.last_attempt) is not None:
        with contextlib.suppress(OSError):
            names = sorted(entry.name for entry in os.scandir(attempt) if _OF_RANKS.fullmatch(entry.name))
            places += [attempt / name for name in names]
    return (claim, *(one for place in places for one in _stat(place))), claim


def _stat(place: Path) -> Iterator[object]:
    try:
        found = os.stat(place)
    except OSError:
        return
    yield place.name, found.st_mtime_ns, found.st_size, found.st_ino


class WatchServer(ThreadingHTTPServer):
    """Answers GET on loopback: the page at ``/``, and what it asks for again at ``/payload.json``."""

    daemon_threads = True  # a browser that does not read its answer keeps nobody from ending
    block_on_close = False

    def __init__(self, watched: Watched, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.watched = watched
        self._page: tuple[str, bytes] | None = None

    def server_bind(self) -> None:
        """Take the port; without asking a name server what the address is called, as HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def page(self, seen: ServedReport) -> bytes:
        """The whole page, rendered once for equal content."""
        if self._page is None or self._page[0] != seen.version:
            self._page = seen.version, render_page(seen.payload, live=seen.version).encode()
        return self._page[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that has left is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version, sys_version = "bwbench", ""
    timeout = _LINGERS_S

    def do_GET(self) -> None:
        # A page of elsewhere, whose name its owner lets mean this machine, shall not read what stands here.
        if _HOST.sub("", self.headers.get("Host", "")) not in _NAMES:
            self._answer(HTTPStatus.FORBIDDEN, f"ask for {self.server.url} by that address".encode())
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/payload.json"):
            self._answer(HTTPStatus.NOT_FOUND, b"there is / and /payload.json")
            return
        try:
            seen = self.server.watched.seen()
        except RecordError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode(errors="backslashreplace"))
            return
        if path == "/":
            self._answer(HTTPStatus.OK, self.server.page(seen), "text/html; charset=utf-8")
        elif self.headers.get("If-None-Match") == f'"{seen.version}"':
            self._answer(HTTPStatus.NOT_MODIFIED, b"", etag=seen.version)
        else:
            self._answer(HTTPStatus.OK, seen.content, "application/json", seen.version)

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, b"this server is for reading: GET")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _answer(
        self, status: HTTPStatus, content: bytes, kind: str = "text/plain; charset=utf-8", etag: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if etag is not None:
            self.send_header("ETag", f'"{etag}"')
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what a browser asks is no news."""


def open_server(folder: Path, port: int, *, published: bool = False) -> WatchServer:
    """A server for the report of a folder; ``port`` 0 takes any that is free, ``published`` is as in ``Watched``.

    Raises ConfigError where the port cannot be had, RecordError where nothing can be read.
    """
    watched = Watched(folder, published=published)
    watched.seen()
    try:
        return WatchServer(watched, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            said = "is in use; choose another one, or --port 0 for any that is free"
        elif error.errno in (errno.EACCES, errno.EPERM):
            said = "needs rights that this user lacks; choose one from 1024 on"
        else:
            said = f"cannot be had ({os.strerror(error.errno or 0)}); choose another one"
        raise ConfigError(f"--port: {port} {said}") from None
