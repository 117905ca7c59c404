"""Fetching a data set's official files: resumed after a break, checked, and put in place by rename."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bwbench.base.errors import UnfitMachineError
from bwbench.training.datasets.data_files import (
    CHUNK_BYTES,
    FileDigest,
    RemoteFile,
    checksum,
    found_form,
    has_digest,
    is_whole,
)

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


class FetchError(UnfitMachineError):
    """A file could not be downloaded, or is not what it should be."""


class _BadDigestError(Exception):
    pass


@dataclass(frozen=True)
class DownloadProgress:
    """How far a download is. ``total_bytes`` is None where the server does not say."""

    file: RemoteFile
    received_bytes: int
    total_bytes: int | None


ReportProgress = Callable[[DownloadProgress], None]


def fetch(files: tuple[RemoteFile, ...], data_dir: Path, report: ReportProgress = lambda _: None) -> list[Path]:
    """Bring every one of ``files`` that is missing or damaged into ``data_dir``; returns the paths brought.

    A break leaves ``NAME.part``, which the next call continues. Nothing takes its final name before its checksum is
    right. ``report`` is called after every piece received. Raises FetchError; the message says what to do.
    """
    brought: list[Path] = []
    for file in files:
        if not all(_is_there(result, data_dir) for result in file.results):
            brought += _fetch_one(file, data_dir, report)
    return brought


def _is_there(file: FileDigest, data_dir: Path) -> bool:
    """Whether a file is there, in its own place and form or in another that serves as well, and whole."""
    form = found_form(file, data_dir)
    return form is not None and is_whole(data_dir / form.relative_path, form)


def _fetch_one(file: RemoteFile, data_dir: Path, report: ReportProgress) -> list[Path]:
    """Download, check, place; turns every failure into a FetchError."""
    if urllib.parse.urlsplit(file.url).scheme not in ("http", "https"):
        raise FetchError(f"{file.url} is refused: only http and https addresses are downloaded")
    target = data_dir / file.relative_path
    part_path = target.with_name(target.name + ".part")
    by_hand = f"unpack it into {data_dir}" if file.members else f"put it at {target}"
    try:
        part_path.parent.mkdir(parents=True, exist_ok=True)
        with part_path.open("ab") as part:
            _lock(part, part_path)
            try:
                _complete(part, part_path, file, report)
            except BaseException:
                if os.fstat(part.fileno()).st_size == 0:
                    part_path.unlink(missing_ok=True)  # nothing came: leave nothing
                raise
            if file.members:
                return _unpack(part_path, file, data_dir)
            os.fsync(part.fileno())
            os.replace(part_path, target)
            return [target]
    except _BadDigestError as error:
        part_path.unlink(missing_ok=True)
        raise FetchError(
            f"{file.url} is not the file it should be: {error}. Nothing was kept. Try again; if it stays so, get the "
            f"file elsewhere and {by_hand}"
        ) from None
    except urllib.error.HTTPError as error:
        error.close()  # it is the response, too
        raise FetchError(
            f"{file.url}: the server answered {error.code} {error.reason}. Try again later, or get the file by hand "
            f"and {by_hand}"
        ) from error
    except NETWORK_ERRORS as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise FetchError(
            f"{file.url} could not be downloaded: {reason}. The same command goes on where it stopped; or get the "
            f"file by hand and {by_hand}"
        ) from error
    except OSError as error:
        raise FetchError(
            f"{error.filename or part_path} could not be written: {error.strerror}. Make room or rights there, or set "
            "BWBENCH_DATA to another folder; the same command goes on where it stopped"
        ) from error


def _complete(part: IO[bytes], part_path: Path, file: RemoteFile, report: ReportProgress) -> None:
    """Bring ``part`` to the whole file with the right checksum."""
    resumed = part.seek(0, os.SEEK_END) > 0
    for attempt in (1, 2):
        download(file.url, part, lambda received, total: report(DownloadProgress(file, received, total)))
        try:
            return _check(part_path, file)
        except _BadDigestError:
            if attempt == 2 or not resumed:
                raise
            part.truncate(0)  # the beginning may stem from another version of the file: once more, from scratch


def _unpack(archive_path: Path, file: RemoteFile, data_dir: Path) -> list[Path]:
    """Take the members out of a tar archive, check them, then put them in place and remove the archive."""
    brought = []
    try:
        with tarfile.open(archive_path) as archive:
            for member in file.members:
                source = archive.extractfile(member.relative_path)
                if source is None:
                    raise _BadDigestError(f"{member.relative_path} in it is no file")
                with source:
                    brought.append(_place(source, member, data_dir))
    except (KeyError, EOFError, tarfile.TarError) as error:
        raise _BadDigestError(f"it is no archive with the members expected ({error})") from error
    archive_path.unlink()
    return brought


def _place(source: IO[bytes], member: FileDigest, data_dir: Path) -> Path:
    path = data_dir / member.relative_path
    part_path = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part_path.open("wb") as part:
            while chunk := source.read(CHUNK_BYTES):
                part.write(chunk)
            part.flush()
            os.fsync(part.fileno())
        _check(part_path, member)
        os.replace(part_path, path)
    finally:
        part_path.unlink(missing_ok=True)
    return path


def _check(path: Path, digest: FileDigest) -> None:
    if not has_digest(path, digest):
        name, expected = checksum(digest)
        raise _BadDigestError(f"its {name} is not {expected}")


def _lock(part: IO[bytes], part_path: Path) -> None:
    """Refuse to write into a file that another process writes or has just finished; closing ``part`` unlocks."""
    busy = FetchError(f"{part_path} is being downloaded by another process; wait for that one, then try again")
    try:
        fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(part.fileno()).st_ino != part_path.stat().st_ino:
            raise busy
    except (BlockingIOError, FileNotFoundError):
        raise busy from None
