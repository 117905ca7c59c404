"""Averaging weights in a thread of its own while training goes on, with a stop that leaves nobody behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch

VOTE_TAG = 1 << 20  # beyond the tags of buckets
VOTE_BYTES = 8
LIVENESS_CHECK_S = 1.0  # how often a waiting thread looks whether the other one still lives; a result wakes it at once
CLOSE_S = 1.0  # how long ``close`` waits; a thread that hangs in a message ends with the process


class BackgroundAveraging:
    """Rounds in which all ranks average a copy of their weights, one after the other, in a daemon thread.

    What a round finds is a difference, mean minus copy, that ``apply`` adds to the weights. A copy taken before the
    differences of earlier rounds were applied holds them already, so that none counts twice and the mean of
    (weights + what is still to be applied) over all ranks changes by training alone.

    Stretches between ``resume`` and ``hold`` are counted, and all ranks have the same ones. Before each round all
    ranks vote; as soon as one votes hold, all end the stretch there, the others too, which then go on training alone
    until their own ``hold``. Every rank votes at least once in every stretch, so that no vote and no exchange is ever
    left to a rank alone.

    Args:
        weights: what the optimizer changes, fp32 vectors. Change them with ``lock`` held only.
        interval_s: from the begin of one round to the begin of the next, at least.
    """

    def __init__(
        self,
        weights: Sequence[torch.Tensor],
        codecs: Sequence[AbstractCodec],
        collective: AbstractCollective,
        interval_s: float,
    ) -> None:
        import torch

        self._weights, self._codecs, self._collective = weights, codecs, collective
        self._interval_s = interval_s
        self._pending = [torch.zeros_like(flat) for flat in weights]  # found, not applied yet
        self._found = False
        self._copies = [torch.zeros_like(flat) for flat in weights]
        self._means = [torch.zeros_like(flat) for flat in weights]
        self.lock = threading.Lock()  # weights and pending differences
        self._changed = threading.Condition()  # what follows
        self._begun = self._ended = self._asked_to_end = 0  # numbers of stretches
        self._closed = False
        self._error: BaseException | None = None
        self.rounds = 0
        self._thread = threading.Thread(target=self._work, name="bwbench-averaging", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Begin a stretch; nothing changes where one is open."""
        with self._changed:
            self._begun = self._asked_to_end + 1
            self._changed.notify_all()

    def hold(self) -> None:
        """End the stretch: returns once nothing is on its way, with all differences applied.

        That may take until every other rank has called it too, or has come to its next vote. Raises RuntimeError where
        the thread has failed.
        """
        with self._changed:
            self._asked_to_end = self._begun
            self._changed.notify_all()
            while self._ended < self._begun:
                self.check()
                if not self._thread.is_alive():
                    raise RuntimeError("the averaging thread has ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of its own waits is limited by the group's timeout
        self.check()
        with self.lock:
            self.apply()

    def check(self) -> None:
        """Raise RuntimeError where the thread has failed."""
        if self._error is not None:
            raise RuntimeError(f"averaging in the background failed: {self._error}") from self._error

    def apply(self) -> None:
        """Add to the weights what has been found since the last call. Call it with ``lock`` held."""
        if not self._found:
            return
        self._found = False
        for flat, difference in zip(self._weights, self._pending, strict=True):
            flat.add_(difference)
            difference.zero_()

    def forget(self) -> None:
        """Drop what has not been applied. Only while held."""
        for difference in self._pending:
            difference.zero_()
        self._found = False
        self.rounds = 0

    def rehearse(self) -> None:
        """One round without its result; only while held, on all ranks."""
        self._vote(True)
        self._average_copies()

    def close(self) -> None:
        """End the thread, at once where it is idle. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        try:
            while self._stretch_has_begun():
                self._stretch()
                with self._changed:
                    self._ended += 1
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _stretch_has_begun(self) -> bool:
        """Wait for it; False where the thread is to end instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._begun > self._ended)
            return not self._closed

    def _stretch(self) -> None:
        """Rounds until one rank votes hold."""
        next_s = time.monotonic() + self._interval_s
        while True:
            with self._changed:
                self._changed.wait_for(self._told_to_end, max(0.0, next_s - time.monotonic()))
                told_to_end = self._told_to_end()
            next_s = time.monotonic() + self._interval_s
            if not self._vote(not told_to_end):
                return
            self._average_copies()
            with self.lock:
                for pending, mean, own in zip(self._pending, self._means, self._copies, strict=True):
                    pending.add_(mean.sub_(own))
                self._found = True
            self.rounds += 1

    def _told_to_end(self) -> bool:
        return self._closed or self._asked_to_end > self._ended

    def _average_copies(self) -> None:
        with self.lock:
            for copy, flat, pending in zip(self._copies, self._weights, self._pending, strict=True):
                copy.copy_(flat).add_(pending)
        for bucket, (mean, copy) in enumerate(zip(self._means, self._copies, strict=True)):
            mean.copy_(copy)
            self._collective.average(mean, self._codecs[bucket], tag=bucket)

    def _vote(self, go: bool) -> bool:
        """Whether every rank votes to go on: N-1 messages of 8 bytes from each."""
        import torch

        group, rank, size = self._collective.group, self._collective.rank, self._collective.size
        own, votes = torch.tensor([int(go)]), torch.ones(size, dtype=torch.int64)
        peers = [(rank + distance) % size for distance in range(1, size)]
        under_way = [group.recv([votes[peer : peer + 1]], peer, VOTE_TAG) for peer in peers]
        for peer in peers:
            self._collective.meter.sent(VOTE_BYTES)
            under_way.append(group.send([own], peer, VOTE_TAG))
        for work in under_way:
            work.wait()
        return go and bool(votes.all())
