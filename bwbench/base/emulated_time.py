"""Time as a training has it: that of the machine, or the machine's slowed down or sped up by a factor.

In slow motion (``dilation: K``) a training lives in a world whose links and declared computing take K times as long.
Its clock shows the machine's seconds divided by K. What does not take K times as long by itself is our own software:
it is made to. Whoever has computed on the way calls ``catch_up``. With K > 1 that sleeps for K − 1 times what the
calling thread has had of a processor since its last call, so that all of it has taken K times as long. With K < 1
nothing can be taken back, and the clock is put back instead by what it has gone too far. Threads that compute at the
same time have it put back once: by no more than the machine's time that has passed, less what others had it put back.

Where payloads are divided by a number to fit into memory (``shrink``), our software has so much less to do with what
is in them, and takes that many times as long on top for it (``work_on_vectors``): encoding, adding, the optimizer's
step. There are as many messages, buckets and steps as before, so that what each of them costs by itself stays. With
K = 1/2 and half of the bytes software takes as long as it does for the bytes, and no clock is put back: what a message
costs by itself then counts twice. For a device that is faster at it than this machine (``vector_speed``), it takes that
many times less again.

One factor holds for a whole process, and is set before anything is timed; with 1, the default, all of this is the
monotonic clock and nothing else. Threads of libraries (gloo's, torch's) call nobody. What they have computed is what
the process has and no thread of ours. With K < 1 whoever has waited for them puts the clock back for that, too
(``of_libraries``): on a fast link they are what is waited for. With K > 1 it is left as it is: frames come further
apart then, and libraries wake up for each of them and are done before the next one comes. Two nodes at 100 Mbit/s
had steps 1.3 % too short at K = 8 with that, and 8 % too long where libraries were made to take K times as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SHORTEST_SLEEP_S = 2e-4  # what is owed less than this waits for more: waking up takes as long


class _Window:
    """Since when somebody's computing is not in the clock yet, and what of all others' was in it by then."""

    def __init__(self, computed_s: float) -> None:
        self.since_s, self.computed_s = time.monotonic(), computed_s


class _World:
    """What a process knows of the time of its training."""

    def __init__(self) -> None:
        self.factor = self.stretch = 1.0  # of all time; of our own software beside the machine's time
        self.computed_s = 0.0  # that the clock was put back for, by all, in machine seconds
        self.lock = threading.Lock()
        self.own = threading.local()
        self.threads: set[int] = set()  # native ids of those that catch up by themselves
        self.ended_cpu_s = 0.0  # of such threads that have ended
        self.last_cpu_s: dict[int, float] = {}
        self.libraries_cpu_s = 0.0  # what theirs had when somebody last caught up with them
        self.of_libraries = _Window(0.0)


_world = _World()


def dilate(factor: float, work: float = 1.0) -> None:
    """From now on the machine's seconds are ``factor`` to one of the training; for a process that has timed nothing.

    Args:
        work: what our software computes on vectors takes so many times as long as it does, beside the factor; 1, or no
            less than 1 / ``factor``.
    """
    global _world
    _world = _World()
    stretch = factor * work
    _world.factor, _world.stretch = factor, max(1.0, stretch) if factor >= 1.0 else stretch  # 49 * (1 / 49) is below 1


def monotonic() -> float:
    """Seconds of a monotonic clock of the training's time, which ranks of one machine share where none is put back."""
    if _world.factor == 1.0:
        return time.monotonic()
    return (time.monotonic() - _world.computed_s * (1.0 - min(1.0, _world.stretch))) / _world.factor


def machine_s(seconds: float) -> float:
    """What so many seconds of the training take of the machine's."""
    return seconds * _world.factor


def emulated_values(values: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """What was measured in the machine's time, in emulated time: rates (``…_bps``) and times (``…_s``), as known."""
    known = {name: value for name, value in values.items() if value is not None}
    rates = {name: value * factor for name, value in known.items() if name.endswith("_bps")}
    return rates | {name: value / factor for name, value in known.items() if name.endswith("_s")}


def sleep(seconds: float) -> None:
    """Sleep for seconds of the training."""
    time.sleep(machine_s(seconds))


def catch_up(*, of_libraries: bool = False) -> None:
    """Have what this thread has computed since its last call take as long as it would in the training's world.

    Args:
        of_libraries: where the clock is put back, also for what threads have computed that call nobody, since anyone
            last did so: for whoever has just waited for what they do.
    """
    if not _catches_up():
        return
    computed_s = _own_cpu_s()
    if _world.stretch < 1.0:
        _world.own.window = _put_back(computed_s, _world.own.window)
        if of_libraries:
            _world.of_libraries = _put_back(_libraries_cpu_s(), _world.of_libraries)
        return
    factor = _world.stretch if getattr(_world.own, "on_vectors", False) else max(1.0, _world.factor)
    owed_s = _world.own.owed_s + computed_s * (factor - 1.0)
    if owed_s > SHORTEST_SLEEP_S:
        began_s = time.monotonic()
        time.sleep(owed_s)
        owed_s -= time.monotonic() - began_s  # woken too late, it owes less the next time
        _own_cpu_s()  # what sleeping takes is nobody's
    _world.own.owed_s = owed_s


@contextmanager
def work_on_vectors() -> Iterator[None]:
    """What this thread computes inside grows with what is sent; it waits for nobody there, and sends nothing."""
    if _world.stretch == _world.factor:
        yield
        return
    catch_up()
    own = _world.own
    before, own.on_vectors = getattr(own, "on_vectors", False), True
    try:
        yield
    finally:
        catch_up()
        own.on_vectors = before


def forget_computed() -> None:
    """Owe nothing for what this thread and libraries have computed so far: it was not part of the training's time."""
    if _catches_up():
        _own_cpu_s()
    if _world.stretch < 1.0:
        _libraries_cpu_s()
        _world.own.window = _world.of_libraries = _Window(_world.computed_s)


def _catches_up() -> bool:
    """Whether anything that is computed takes longer than it does, or is taken off the clock."""
    return _world.stretch != 1.0 or _world.factor > 1.0


def _put_back(computed_s: float, window: _Window) -> _Window:
    """Put the clock back for what was computed since ``window`` began; returns the one that begins now."""
    with _world.lock:
        others_s = _world.computed_s - window.computed_s
        _world.computed_s += max(0.0, min(computed_s, time.monotonic() - window.since_s - others_s))
        return _Window(_world.computed_s)


def _own_cpu_s() -> float:
    """Processor time of this thread since it was last asked; 0 for the first time."""
    now_s = time.thread_time()
    known: float | None = getattr(_world.own, "cpu_s", None)
    _world.own.cpu_s = now_s
    if known is None:
        _world.own.owed_s, _world.own.window = 0.0, _Window(_world.computed_s)
        with _world.lock:
            _world.threads.add(threading.get_native_id())
        return 0.0
    return now_s - known


def _libraries_cpu_s() -> float:
    """Processor time of all threads that catch up with nothing themselves, since it was last asked."""
    with _world.lock:
        for thread in tuple(_world.threads):
            try:
                _world.last_cpu_s[thread] = time.clock_gettime(_clock_of(thread))
            except OSError:  # it has ended
                _world.threads.discard(thread)
                _world.ended_cpu_s += _world.last_cpu_s.get(thread, 0.0)
        ours_s = _world.ended_cpu_s + sum(_world.last_cpu_s.get(thread, 0.0) for thread in _world.threads)
        theirs_s = max(_world.libraries_cpu_s, time.process_time() - ours_s)
        since_s, _world.libraries_cpu_s = theirs_s - _world.libraries_cpu_s, theirs_s
    return since_s


def _clock_of(thread: int) -> int:
    """Linux's clock of the processor time of a thread of this process."""
    return (~thread << 3) | 0b110
