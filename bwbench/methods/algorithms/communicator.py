"""Threads beside computing that exchange what they are handed, in the same order on all ranks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

from bwbench.base import emulated_time
from bwbench.methods.algorithms.algorithm import ExchangeReport
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Meter
from bwbench.methods.devices import Device, Mark

NUM_THREADS = 2  # two buckets in flight: one fills the gaps that latency leaves in the other; more only compete
LIVENESS_CHECK_S = 1.0  # how often a waiting thread looks whether the others still live; a result wakes it at once


def threads_for(collective: AbstractCollective, num_buckets: int) -> int:
    """How many threads may exchange the buckets of one algorithm: one where torch numbers the messages itself.

    Torch's own all-reduce has no tag, and NCCL knows none: calls are matched by their order, which two threads would
    not keep. None of their own where the ranks take turns.
    """
    if collective.takes_turns:
        return 0
    by_order = collective.wraps_model or collective.devices is not None
    return 1 if by_order else min(NUM_THREADS, max(1, num_buckets))


class Communicator:
    """Runs jobs in threads of its own; what one of them raises is raised by the next ``check`` or ``wait``.

    All ranks submit the same jobs in the same order. Threads take them in this order, so that the oldest job that is
    not done everywhere has a thread on every rank: jobs that wait for their peers cannot wait in a circle. ``submit``
    and ``wait`` belong to one thread.

    Args:
        num_threads: 0 runs jobs where they are waited for, in their order.
        device: what jobs work on. Each begins behind what the submitting thread had told it by then, in a queue of its
            own beside what it is told later, and has come to its end there when it counts as done.
    """

    def __init__(self, meter: Meter, num_threads: int, device: Device) -> None:
        self._meter, self._device = meter, device
        self._queue: queue.SimpleQueue[tuple[int, Callable[[], None], Mark] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._num_submitted = 0
        self._unfinished: set[int] = set()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"bwbench-communication-{i}", daemon=True)
            for i in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], None]) -> int:
        """Have ``job`` run as soon as a thread is free; returns its number, for ``wait`` and ``done``."""
        number = self._num_submitted
        self._num_submitted += 1
        with self._changed:
            self._unfinished.add(number)
        self._queue.put((number, job, self._device.mark()))
        return number

    def done(self, jobs: Iterable[int]) -> bool:
        """Whether these jobs are done."""
        return self._unfinished.isdisjoint(jobs)

    def check(self) -> None:
        """Raise RuntimeError where a job has failed."""
        if self._error is not None:
            raise RuntimeError(f"communication failed: {self._error}") from self._error

    def wait(self, jobs: Iterable[int] | None = None) -> ExchangeReport:
        """Wait until these jobs are done, all of them by default; returns what that cost.

        Raises at once what any job raised. The report counts the bytes of jobs that are still on their way as far as
        they have been sent; the next report counts the rest.
        """
        begin = emulated_time.monotonic()
        awaited = set(self._unfinished if jobs is None else jobs)
        if not self._threads:
            self._run_here(awaited)
        with self._changed:
            while not self.done(awaited):
                self.check()
                if not any(thread.is_alive() for thread in self._threads):
                    raise RuntimeError("the communication threads have ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of their own waits is limited by the group's timeout
            self.check()
        end = emulated_time.monotonic()
        reading = self._meter.take()
        codec_s = reading.codec_s_within(begin, end)
        return ExchangeReport(
            ready_mono_s=begin,
            exposed_s=max(0.0, end - begin - codec_s),
            codec_s=codec_s,
            payload_bytes=reading.payload_bytes,
        )

    def wait_for(self, sign: threading.Event) -> None:
        """Wait until a job has set ``sign``; raises what any job raised."""
        while not sign.wait(LIVENESS_CHECK_S):
            self.check()

    def close(self) -> None:
        """End the threads once they are done with what they have. Safe to call twice."""
        for _ in self._threads:
            self._queue.put(None)

    def _run_here(self, awaited: set[int]) -> None:
        """Run jobs from the oldest on until these are done; raises what one of them raises, as ``check`` says it."""
        while not self.done(awaited):
            number, job, _ = self._queue.get_nowait() or (0, None, None)
            if job is None:  # closed
                return
            try:
                job()
            except Exception as error:
                self._error = error
                self.check()
            self._unfinished.discard(number)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            number, job, mark = item
            emulated_time.catch_up()
            try:
                with self._device.beside(mark):
                    job()
                emulated_time.catch_up(of_libraries=True)
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._unfinished.discard(number)
                self._changed.notify_all()
