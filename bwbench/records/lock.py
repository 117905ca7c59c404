"""Locks that die with their holder: a short one for an experiment's plan, and the claim on a cell while it runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bwbench.base.errors import CellTakenError, ConfigError, RecordError, UnfitMachineError
from bwbench.records.files import read_json

CLAIM = ".claim"
PLAN_LOCK = ".lock"
PLAN_LIMIT_S = 600.0  # 10,000 cells take a minute on a network disk, and all tasks of an array job come at once
_LOOKS = 3  # a reader of claims holds a shared lock for some microseconds: who finds it there looks again …
_LOOK_AGAIN_S = 0.02  # … a moment later


def check_locks(folder: Path) -> None:
    """Try whether locks keep two holders apart where results lie: all claims rest on it.

    On network disks the kernel may take locks and keep nobody out (NFS without lockd, some file systems of user space).

    Raises UnfitMachineError where they do not, OSError where nothing can be written.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".locks-") as one, open(one.name, "rb") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError as error:
            why = error.strerror
        else:
            why = "two holders had one lock at once"
    raise UnfitMachineError(
        f"{folder}: locks do not work on its disk ({why}), so that two processes could run one cell at once; mount it "
        "with locks (NFS: without nolock), or choose a folder on another disk with --results"
    )


def lock_file(path: Path) -> int:
    """Descriptor of a file to lock, made where it is missing: never of what a link leads to, or of a pipe.

    Raises RecordError where it is one of these, OSError where the disk is full or not writable.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RecordError(f"{path}: is a link, where a lock is a file of its own; remove it") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordError(f"{path}: is no regular file, which a lock is; remove it")
    return descriptor


@contextlib.contextmanager
def locked(folder: Path, limit_s: float = PLAN_LIMIT_S) -> Iterator[None]:
    """Hold an experiment's folder for a moment, made where it is missing, to write its plan.

    Raises ConfigError where another process holds it for longer than ``limit_s``, OSError where the disk is full or
    not writable, UnfitMachineError where locks keep nobody out there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_locks(folder)
    deadline = time.monotonic() + limit_s
    with open(lock_file(folder / PLAN_LOCK), "rb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    text = f"another bwbench has been planning in {folder} for {limit_s:.0f} s; is it stopped?"
                    raise ConfigError(f"{text} End it, or choose another --results") from None
                time.sleep(_LOOK_AGAIN_S)
        yield


@dataclass(frozen=True)
class ClaimNote:
    """What the process that holds a cell says of itself; None where it has not said it, or it could not be read."""

    pid: int | None = None
    host: str | None = None
    since_unix_s: float | None = None
    phase: str | None = None

    def doing(self, *, is_training: bool) -> str:
        """What is being done, in words: a cell of which something was evaluated trains, though nobody has noted it."""
        phase = str(self.phase or "opening the link")  # whatever stands in a file that anybody may have written
        return "training" if is_training and phase.startswith("starting") else phase

    def where(self) -> str:
        """``HOST (process 123)``."""
        return f"{self.host or '?'} (process {self.pid or '?'})"


@dataclass
class Claim:
    """A cell's claim while it is held; ``note`` says to other processes what is being done."""

    _descriptor: int
    _content: ClaimNote

    def note(self, phase: str | None) -> None:
        """Say in the claim what is being done. Best effort: a full disk is met where it matters."""
        self._content = replace(self._content, phase=phase)
        with contextlib.suppress(OSError):
            kept = {key: value for key, value in vars(self._content).items() if value is not None}
            text = json.dumps(kept).encode()
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))


@contextlib.contextmanager
def claimed(cell_folder: Path) -> Iterator[Claim]:
    """Hold a cell, whose folder is made where it is missing, so that no other process runs it. Dies with its holder.

    Raises CellTakenError where another process holds it, OSError where the disk is full or not writable.
    """
    cell_folder.mkdir(parents=True, exist_ok=True)
    path = cell_folder / CLAIM
    descriptor = _take(path)
    if descriptor is None:
        holder = _content_of(path)
        who = "another process" if holder.pid is None else f"process {holder.pid} on {holder.host}"
        raise CellTakenError(f"{cell_folder.name}: {who} is at it")
    try:
        claim = Claim(descriptor, ClaimNote(os.getpid(), platform.node(), time.time()))
        claim.note(None)
        yield claim
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is held, so that nobody can hold a file that has no name any more
        os.close(descriptor)


def claim_of(cell_folder: Path) -> ClaimNote | None:
    """What the process that runs a cell at this moment says of itself; None where none does."""
    path = cell_folder / CLAIM
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # no pipe is waited for
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _content_of(path)
    finally:
        os.close(descriptor)
    return None


def _take(path: Path) -> int | None:
    """A descriptor that holds the lock on the file of this name; None where another process holds it."""
    for _ in range(_LOOKS):
        descriptor = lock_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            time.sleep(_LOOK_AGAIN_S)
        except FileNotFoundError:  # its last holder has removed the name in between
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def _content_of(path: Path) -> ClaimNote:
    """What a claim says; empty where it is never whole: its holder writes over it while it is read."""
    for _ in range(_LOOKS):
        if isinstance(content := read_json(path), dict):
            return ClaimNote(**{key: content.get(key) for key in ClaimNote.__dataclass_fields__})
        time.sleep(_LOOK_AGAIN_S)
    return ClaimNote()
