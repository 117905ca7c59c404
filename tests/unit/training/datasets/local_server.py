"""A file server on the loopback interface that misbehaves as asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class LocalServer:
    """What is served, how it goes wrong, and what was asked.

    Attributes:
        files: content by path.
        cut_after: send only so many bytes of each answer's body, then close.
        ranges: whether requests for a part are honoured.
        redirect_to: answer everything with a redirection to there.
        requests: path and Range header of every request so far.
    """

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: int | None = None
    ranges: bool = True
    redirect_to: str | None = None
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def serve() -> Iterator[LocalServer]:
    state = LocalServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.requests.append((self.path, wanted))
            if state.redirect_to is not None:
                self.send_response(302)
                self.send_header("Location", state.redirect_to)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            offset = int(wanted.split("=")[1].rstrip("-")) if wanted and state.ranges else 0
            if offset and offset >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if offset else 200)
            self.send_header("Content-Length", str(len(content) - offset))
            self.end_headers()
            body = content[offset:]
            self.wfile.write(body if state.cut_after is None else body[: state.cut_after])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
