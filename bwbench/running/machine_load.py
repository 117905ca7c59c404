"""What else was at work on the machine while a cell ran: other bwbench processes, and whatever else took processors.

Turns (``machine_turn.py``) keep bwbench processes apart that see one another. Who has asked to share the machine, or
runs in a container of its own, trains all the same. Then both are to know it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from bwbench.records.schema import Others
from bwbench.running.machine_turn import THIS_MACHINE, Holder, MachineName, asked, listening, peer

# In mean over the cell, of processors that it needs itself: a step of two halves a processor takes longer by a third.
MOST_TAKEN = 0.5
_PRESSURE = "/proc/pressure/cpu"
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO: the one that is not a container's, the same on every Linux


@dataclass
class Company:
    """Everybody else who trained on this machine since this cell began. See ``in_company``."""

    _socket: socket.socket | None
    _met: dict[Holder, None] = field(default_factory=dict)
    _since: _Used = field(default_factory=lambda: _Used.now())

    def others(self) -> Others:
        """What there was besides this cell until now; its own processes have ended, or their time counts as others'."""
        while self._socket is not None:
            try:
                self._meet(self._socket.accept()[0])
            except OSError:
                break
        return _Used.now().since(self._since, tuple(str(holder) for holder in self._met))

    def _meet(self, connection: socket.socket) -> None:
        with connection:
            holder = peer(connection)
            if holder.pid != os.getpid():  # else of virtual nodes that this sweep trains at once
                self._met[holder] = None


@contextlib.contextmanager
def in_company(machine: MachineName = THIS_MACHINE) -> Iterator[Company]:
    """Be known to others who train meanwhile, and know them.

    Everybody listens at a name of its own, and whoever begins connects to all that it finds: the one sees whom it has
    found, the other who has come, with the kernel's word for who that is. Nobody has to look meanwhile.
    """
    prefix = f"\0{machine.name}-trains-"
    with contextlib.ExitStack() as held:
        own = f"{prefix}{uuid.uuid4().hex}"
        company = Company(None)
        with contextlib.suppress(OSError):  # a machine that has no such sockets
            company = Company(held.enter_context(listening(own)))
        for name in _names(prefix):
            if name != own and (connection := asked(name)) is not None:
                company._meet(connection)
        yield company


def _names(prefix: str) -> Iterator[str]:
    """Abstract sockets of this network namespace that begin so; the kernel lists them with ``@`` in front."""
    with contextlib.suppress(OSError), open("/proc/net/unix", errors="replace") as file:
        for line in file:
            name = line.rstrip("\n").rpartition(" ")[2]
            if name.startswith("@" + prefix[1:]):
                yield "\0" + name[1:]


@dataclass(frozen=True)
class _Used:
    """Processor time by now, in seconds: of all on the processors that this process may use, and of it and its ended
    children; and for how long somebody has waited for a processor. None where the kernel does not tell."""

    at_mono_s: float
    all_s: float | None
    own_s: float
    waited_s: float | None

    @classmethod
    def now(cls) -> _Used:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(one.ru_utime + one.ru_stime for one in used)
        return cls(time.monotonic(), _busy_s(), own_s, _waited_s())

    def since(self, before: _Used, trained: tuple[str, ...]) -> Others:
        """What others took from then to now."""
        wall_s = max(self.at_mono_s - before.at_mono_s, 1e-9)
        cores = pressure = None
        if self.all_s is not None and before.all_s is not None:
            cores = max(0.0, self.all_s - before.all_s - (self.own_s - before.own_s)) / wall_s
        if self.waited_s is not None and before.waited_s is not None:
            pressure = (self.waited_s - before.waited_s) / wall_s
        return Others(trained=trained, cores=cores, pressure=pressure)


def _busy_s() -> float | None:
    """Of the processors that this process may use: user, nice and system time, and what a hypervisor took.

    Interrupts are left out: a part of them belongs to this cell's own frames.
    """
    wanted = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    busy = 0
    try:
        with open("/proc/stat", encoding="utf-8") as file:
            for name, *ticks in map(str.split, file):
                if name in wanted:
                    busy += sum(int(ticks[index]) for index in (0, 1, 2, 7))
    except (OSError, ValueError, IndexError):
        return None
    return busy / os.sysconf("SC_CLK_TCK")


def _waited_s() -> float | None:
    """``some avg10=0.00 avg60=0.00 avg300=0.00 total=123``, the total in microseconds."""
    try:
        with open(_PRESSURE, encoding="utf-8") as file:
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def sees_whole_machine() -> bool:
    """Whether every bwbench of the machine can be met: not from a container, where only its load is seen."""
    try:
        return os.readlink("/proc/self/ns/pid") == f"pid:[{_FIRST_PID_NAMESPACE}]"
    except OSError:
        return True


def disturbed(others: Others, needed_cores: int, *, judges_load: bool) -> str | None:
    """Why a cell's times are not its own, in words; None where they are, as far as anybody can know.

    Args:
        needed_cores: that its workers compute on; others may have those that are left.
        judges_load: whether what programs took that are no bwbench counts.
    """
    if others.trained:
        return f"another bwbench trained on this machine meanwhile ({'; '.join(others.trained)})"
    present = len(os.sched_getaffinity(0))
    allowed = max(0, present - needed_cores) + MOST_TAKEN
    if judges_load and others.cores is not None and others.cores > allowed:
        return f"other programs took {others.cores:.1f} of the {present} processors of this machine meanwhile"
    return None
