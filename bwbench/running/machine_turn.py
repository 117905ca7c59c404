"""Whose turn it is on a machine: of all who ask, whichever their user and environment, one at a time trains.

Two cells at a time would take each other's processors, and both their times be wrong. The turn is held in two ways, so
that either is enough to see one another: an abstract Unix socket, which all of a network namespace share, and a lock on
a file of a fixed folder, which containers may share. Both are the kernel's, which takes them back with their process.
Who shares neither is seen by the load alone (``machine_load.py``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from bwbench.base.errors import UnfitMachineError
from bwbench.running.launch.liveness import is_stopped

SHARE: Final = "BWBENCH_SHARE_MACHINE"  # not empty: whoever sets it accepts that times disturb each other
TURN_LIMIT_S = 48 * 3600.0  # another sweep may well take a day
_LOOK_S = 0.2
_ASK_S = 2.0  # how often who waits looks whom it waits for
# What lies under a name that all know may be anybody's: a link to elsewhere, or a pipe that nobody writes to.
_WARILY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BACKLOG = 4096  # who asks is never answered but by the kernel, and keeps its place in this queue while it waits


@dataclass(frozen=True)
class MachineName:
    """By what those who train on a machine know it; never by anything that a user's environment may change.

    Attributes:
        name: of abstract sockets, and of files in ``folder``.
    """

    name: str = "bwbench"
    folder: Path = Path("/tmp")  # of a fixed name: TMPDIR may differ between two shells of one user


THIS_MACHINE: Final = MachineName()


def shares_machine() -> bool:
    """Whether the user accepts that others train on the machine meanwhile."""
    return bool(os.environ.get(SHARE))


@dataclass(frozen=True)
class Holder:
    """A process that holds a turn; its ``pid`` is 0 where that belongs to another PID namespace."""

    pid: int
    user: str

    @property
    def stopped(self) -> bool:
        """Whether it is stopped, so that waiting for it has no end."""
        return self.pid != 0 and is_stopped(self.pid)

    def __str__(self) -> str:
        who = f"process {self.pid} of {self.user}" if self.pid else f"a process of {self.user} in another container"
        return f"{who}, which is stopped (kill -CONT {self.pid} lets it go on)" if self.stopped else who


TakeTurn: TypeAlias = "Callable[[Callable[[str], None]], contextlib.AbstractContextManager[None]]"


@contextlib.contextmanager
def machine_turn(
    waits: Callable[[str], None], limit_s: float = TURN_LIMIT_S, machine: MachineName = THIS_MACHINE
) -> Iterator[None]:
    """Hold the machine; given back at the end, or by the kernel with the process.

    Args:
        waits: called with the words for whom it is waited for, and again when those change.

    Raises UnfitMachineError after ``limit_s``.
    """
    if shares_machine():
        yield
        return
    deadline = time.monotonic() + limit_s
    with _both(machine, "turn") as turn, _both(machine, "next") as coming:
        # Who comes next holds a lock of its own: a sweep that has just ended a cell gets behind it.
        told = ""
        for lock in (*coming, *turn):
            asked_mono_s = -_ASK_S
            while not lock.take():
                now = time.monotonic()
                if now > deadline or now - asked_mono_s > _ASK_S:
                    asked_mono_s, words = now, _waiting_for([*turn, *coming])
                    if words != told:
                        waits(told := words)
                if now > deadline:
                    text = f"{told} has been running cells on this machine for {limit_s / 3600:.0f} h"
                    raise UnfitMachineError(f"{text}; end it, or run beside it with {SHARE}=1 in the environment")
                time.sleep(_LOOK_S)
        for lock in coming:
            lock.close()
        yield


class SharedTurn:
    """One turn for several runs of this process at once: taken for the first, given back after the last."""

    def __init__(self, machine: MachineName = THIS_MACHINE) -> None:
        self._machine, self._num_holders = machine, 0
        self._turn = contextlib.ExitStack()

    @contextlib.contextmanager
    def held(self, waits: Callable[[str], None]) -> Iterator[None]:
        """Hold the machine together with the others; ``waits`` and errors as of ``machine_turn``."""
        if self._num_holders == 0:
            self._turn.enter_context(machine_turn(waits, machine=self._machine))
        self._num_holders += 1
        try:
            yield
        finally:
            self._num_holders -= 1
            if self._num_holders == 0:
                self._turn.close()


def turn_is_awaited(machine: MachineName = THIS_MACHINE) -> bool:
    """Whether somebody waits for the machine, who would wait for ever if a shared turn were never given back."""
    if shares_machine():
        return False
    with _both(machine, "next") as coming:
        return not all(lock.take() for lock in coming)


def _waiting_for(locks: list[_Lock]) -> str:
    """Words for who is in the way: whoever is stopped, else who has the turn, else who comes next."""
    holders = [holder for lock in locks if (holder := lock.holder()) is not None and holder.pid != os.getpid()]
    found = next((holder for holder in holders if holder.stopped), None) or next(iter(holders), None)
    return f"another bwbench ({found})" if found is not None else "another bwbench"


class _Lock(Protocol):
    def take(self) -> bool:
        """Hold it, unless somebody does; true as well where this kind of lock is not to be had here."""

    def holder(self) -> Holder | None:
        """Who holds it; None where nobody does, or nobody knows."""

    def close(self) -> None:
        """Give it back; safe to call twice."""


@contextlib.contextmanager
def _both(machine: MachineName, which: str) -> Iterator[tuple[_Lock, ...]]:
    """The two locks of one name, not yet taken. All take them in this order, so that no two wait for each other."""
    name = f"{machine.name}-{'machine' if which == 'turn' else which}"
    locks = (_SocketLock(f"\0{name}"), _FileLock(machine.folder / f"{name}.lock"))
    try:
        yield locks
    finally:
        for lock in locks:
            lock.close()


class _SocketLock:
    """An abstract socket that listens: one process at a time may, and the kernel tells who it is."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._asked: socket.socket | None = None

    def take(self) -> bool:
        if self._socket is not None:
            return True
        try:
            self._socket = listening(self._address)
        except OSError as error:
            return error.errno != errno.EADDRINUSE
        return True

    def holder(self) -> Holder | None:
        if self._asked is None or _hung_up(self._asked):
            if self._asked is not None:
                self._asked.close()
            self._asked = asked(self._address)
        return peer(self._asked) if self._asked is not None else None

    def close(self) -> None:
        for one in (self._socket, self._asked):
            if one is not None:
                one.close()


class _FileLock:
    """A lock on a file that any user may have made; not to be had where there can be no such file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _opened(path)

    def take(self) -> bool:
        if self._descriptor is None:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a disk that has no locks
        return True

    def holder(self) -> Holder | None:
        """By the kernel's list of locks: ``1: FLOCK  ADVISORY  WRITE 321 fe:01:1234 0 EOF``."""
        if self._descriptor is None:
            return None
        inode = str(os.fstat(self._descriptor).st_ino)
        with contextlib.suppress(OSError, ValueError), open("/proc/locks") as file:
            for _, kind, *_, pid, place, _, _ in (line.split() for line in file if "->" not in line):
                if kind == "FLOCK" and place.rpartition(":")[2] == inode:
                    return Holder(int(pid), _owner(int(pid)))
        return None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def listening(address: str) -> socket.socket:
    """A socket that others may connect to; it answers none, but what they ask of it the kernel tells. Raises OSError.

    Bound and listening are two steps; who asks in between is refused, and asks again.
    """
    one = socket.socket(socket.AF_UNIX)
    try:
        one.bind(address)
        one.listen(_BACKLOG)
    except OSError:
        one.close()
        raise
    one.setblocking(False)
    return one


def asked(address: str) -> socket.socket | None:
    """A connection to whoever listens there; None where nobody does."""
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect(address)
    except OSError:
        one.close()
        return None
    return one


def peer(connection: socket.socket) -> Holder:
    """Who is at the other end, as the kernel knows it."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Holder(pid, _user(uid))


def _hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _owner(pid: int) -> str:
    try:
        return _user(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return "another user"


def _opened(path: Path) -> int | None:
    """A descriptor to lock; None where there can be none."""
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
        try:  # not created where it is there: the kernel forbids that in /tmp to all but the file's owner
            return os.open(path, flags | _WARILY, 0o644)
        except OSError:
            continue
    return None
