"""One HTTP download into an open file, continued from where that file ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import IO, Any

CHUNK_BYTES = 1 << 18
_TIMEOUT_S = 30.0  # without a single byte
_NO_RANGE = 416  # HTTP: nothing lies beyond the offset asked for

NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)

ReportBytes = Callable[[int, "int | None"], None]


def download(url: str, part: IO[bytes], report: ReportBytes) -> None:
    """Append what is missing of ``url`` to ``part``; start over where the server cannot continue.

    ``report`` gets the bytes in ``part`` so far and the total, None where the server does not say. Raises one of
    NETWORK_ERRORS (what has come so far stays in ``part``), and OSError where ``part`` cannot be written.
    """
    with contextlib.closing(_open(url, part.seek(0, os.SEEK_END))) as response:
        if response.status == _NO_RANGE:
            return  # we have all of it, or too much: the checksum decides
        if response.status != http.client.PARTIAL_CONTENT:
            part.truncate(0)  # the server sends the whole file, whatever we have
        received = part.seek(0, os.SEEK_END)
        length = response.headers.get("Content-Length")
        total = received + int(length) if length is not None else None
        report(received, total)
        for chunk in _chunks(response):
            part.write(chunk)
            received += len(chunk)
            report(received, total)
        part.flush()
    if total is not None and received < total:
        raise ConnectionError(f"the connection ended after {received} of {total} bytes")


def _chunks(response: Any) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(CHUNK_BYTES)
        except OSError as error:  # whatever it is, it is the network's: writing has errors of the same class
            raise ConnectionError(f"the connection broke: {error}") from error
        if not chunk:
            return
        yield chunk


def _open(url: str, offset: int) -> Any:
    """Response to a GET from ``offset`` on; a 416 comes back as a response, other errors raise HTTPError."""
    opener = urllib.request.OpenerDirector()  # not build_opener: no file:// and no ftp://, by redirection neither
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(url, headers={"User-Agent": "bwbench", "Accept-Encoding": "identity"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    try:
        return opener.open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == _NO_RANGE and offset:
            return error
        raise
