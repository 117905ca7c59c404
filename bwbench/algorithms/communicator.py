"""Communication beside computing: a few threads that take jobs from one queue, in the order in which they came."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from bwbench.algorithms.base import ExchangeReport
from bwbench.collectives.meter import Meter

NUM_THREADS = 2  # two buckets in flight: one fills the gaps that latency leaves in the other; more only compete
LIVENESS_CHECK_S = 1.0  # how often a waiting thread looks whether the others still live; a result wakes it at once


class Communicator:
    """Runs jobs in threads of its own; what one of them raises is raised by the next ``check`` or ``wait``.

    All ranks submit the same jobs in the same order. ``submit`` and ``wait`` belong to one thread.
    """

    def __init__(self, meter: Meter, num_threads: int = NUM_THREADS) -> None:
        self._meter = meter
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._num_submitted = self._num_done = 0
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"bwbench-communication-{i}", daemon=True)
            for i in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Have ``job`` run as soon as a thread is free."""
        self._num_submitted += 1
        self._queue.put(job)

    @property
    def idle(self) -> bool:
        """Whether everything that was submitted is done."""
        return self._num_done == self._num_submitted

    def check(self) -> None:
        """Raise RuntimeError where a job has failed."""
        if self._error is not None:
            raise RuntimeError(f"communication failed: {self._error}") from self._error

    def wait(self) -> ExchangeReport:
        """Wait until all jobs are done; returns what that cost. Raises at once what a job raised."""
        begin = time.monotonic()
        with self._changed:
            while self._num_done < self._num_submitted:
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
        while (job := self._queue.get()) is not None:
            try:
                job()
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._num_done += 1
                self._changed.notify_all()
