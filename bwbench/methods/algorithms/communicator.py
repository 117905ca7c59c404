"""Communication beside computing: a few threads that take jobs from one queue, in the order in which they came."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable

from bwbench.methods.algorithms.base import ExchangeReport
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.collectives.meter import Meter

NUM_THREADS = 2  # two buckets in flight: one fills the gaps that latency leaves in the other; more only compete
LIVENESS_CHECK_S = 1.0  # how often a waiting thread looks whether the others still live; a result wakes it at once


def threads_for(collective: AbstractCollective, num_buckets: int) -> int:
    """How many threads may exchange the buckets of one algorithm: one where torch numbers the messages itself.

    Torch's own all-reduce has no tag: calls are matched by their order, which two threads would not keep.
    """
    return 1 if collective.wraps_model else min(NUM_THREADS, max(1, num_buckets))


class Communicator:
    """Runs jobs in threads of its own; what one of them raises is raised by the next ``check`` or ``wait``.

    All ranks submit the same jobs in the same order. Threads take them in this order, so that the oldest job that is
    not done everywhere has a thread on every rank: jobs that wait for their peers cannot wait in a circle. ``submit``
    and ``wait`` belong to one thread.
    """

    def __init__(self, meter: Meter, num_threads: int = NUM_THREADS) -> None:
        self._meter = meter
        self._queue: queue.SimpleQueue[tuple[int, Callable[[], None]] | None] = queue.SimpleQueue()
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
        self._queue.put((number, job))
        return number

    @property
    def idle(self) -> bool:
        """Whether everything that was submitted is done."""
        return not self._unfinished

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
        begin = time.monotonic()
        with self._changed:
            awaited = set(self._unfinished if jobs is None else jobs)
            while not self.done(awaited):
                self.check()
                if not any(thread.is_alive() for thread in self._threads):
                    raise RuntimeError("the communication threads have ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of their own waits is limited by the group's timeout
            self.check()
        end = time.monotonic()
        reading = self._meter.take()
        codec_s = reading.codec_s_within(begin, end)
        return ExchangeReport(
            ready_mono_s=begin,
            exposed_s=max(0.0, end - begin - codec_s),
            codec_s=codec_s,
            payload_bytes=reading.payload_bytes,
        )

    def close(self) -> None:
        """End the threads once they are done with what they have. Safe to call twice."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            number, job = item
            try:
                job()
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._unfinished.discard(number)
                self._changed.notify_all()
