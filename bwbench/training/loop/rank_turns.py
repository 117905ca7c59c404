"""Ranks as threads of one process, of which one runs at a time: it runs until it waits for another.

So whatever a process has once, each rank seems to have for itself, and whoever runs changes what ranks share without a
lock. A rank runs on where no other is ready. Which one comes next follows from what they wait for alone: a training
takes the same turns in every run.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

TURN_LIMIT_S = 1800.0  # a backstop, as for gloo's messages: whether anyone still lives is the parent's business


class RankTurns:
    """Whose turn it is.

    Torch's default random generator is kept apart for each rank; what else draws at random here has its own.

    Args:
        num_ranks: that take turns.
        keep_all_random: Python's and numpy's generators as well, which only code of others draws from; each turn then
            takes some 50 us more.

    Attributes:
        running: the rank whose turn it is.
    """

    def __init__(self, num_ranks: int, *, keep_all_random: bool = False) -> None:
        self._keep_all_random = keep_all_random
        self._threads: dict[int, int] = {}  # of each rank, by the kernel's number
        self._turns = [threading.Semaphore(0) for _ in range(num_ranks)]
        self._ready = deque(range(num_ranks))
        self._waiting: set[int] = set()
        self._failed: str | None = None
        self._errors: dict[int, BaseException] = {}
        self.running = 0

    def run(self, work: Callable[[int], None]) -> dict[int, BaseException]:
        """``work(rank)`` on every rank to its end; returns what was raised, the first error first.

        Where one raises, all that wait then or later raise RuntimeError.
        """
        threads = [
            threading.Thread(target=self._run_rank, args=(work, rank), name=f"bwbench-rank-{rank}", daemon=True)
            for rank in range(len(self._turns))
        ]
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            while thread.is_alive():
                thread.join(TURN_LIMIT_S)
        return self._errors

    def pause(self) -> None:
        """Let the others run until one of them has woken this rank. To be called by whoever runs.

        Raises RuntimeError where that will not be: a rank has failed, or all of them wait.
        """
        rank = self.running
        self.check()
        self._waiting.add(rank)
        if self._ready and self._failed is None:
            kept = _Random.now(everything=self._keep_all_random)
            self._next()
            if not self._turns[rank].acquire(timeout=TURN_LIMIT_S):
                raise RuntimeError(f"rank {rank} has not had its turn for {TURN_LIMIT_S:.0f} s")
            self.running = rank
            kept.put_back()
        elif self._failed is None:
            self._waiting.discard(rank)  # nobody is to give it a turn that it would not take
            self._fail(f"all ranks wait for one another, rank {rank} last")
        self._waiting.discard(rank)
        if self._failed is not None:
            raise RuntimeError(self._failed)

    def check(self) -> None:
        """Raise RuntimeError where this is another thread than that of the rank whose turn it is."""
        if threading.get_ident() != self._threads[self.running]:
            text = "a thread of its own uses the network of virtual nodes, which take turns; "
            raise RuntimeError(text + "a component that starts threads must not declare itself 'virtual'")

    def wake(self, rank: int) -> None:
        """What this rank has waited for is there; nothing where it does not wait."""
        if rank in self._waiting:
            self._waiting.discard(rank)
            self._ready.append(rank)

    def _run_rank(self, work: Callable[[int], None], rank: int) -> None:
        self._threads[rank] = threading.get_ident()
        self._turns[rank].acquire()
        self.running = rank
        try:
            work(rank)
        except BaseException as error:
            self._errors[rank] = error
            self._fail(f"rank {rank} has failed: {error}")
        if not self._ready and self._waiting:
            self._fail(f"rank {rank} has ended, and rank {min(self._waiting)} waits for it or for others that wait")
        self._next()

    def _next(self) -> None:
        """The turn of whoever has been ready for longest; of nobody where all have ended."""
        if self._ready:
            self._turns[self._ready.popleft()].release()

    def _fail(self, why: str) -> None:
        """Nobody waits any more."""
        self._failed = self._failed or why
        for rank in sorted(self._waiting):
            self.wake(rank)


@dataclass(frozen=True)
class _Random:
    """The state of the generators that a process has once; Python's and numpy's None where they are not kept."""

    cuda: list[torch.Tensor]  # by GPU; empty where this process has used none
    torch: torch.Tensor
    python: object | None
    numpy: object | None

    @classmethod
    def now(cls, *, everything: bool) -> _Random:
        """As they are."""
        python, numpy = (random.getstate(), np.random.get_state()) if everything else (None, None)
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        return cls(cuda, torch.get_rng_state(), python, numpy)

    def put_back(self) -> None:
        """As they were."""
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        if self.python is not None and self.numpy is not None:
            random.setstate(self.python)  # type: ignore[arg-type]  # as it was given
            np.random.set_state(self.numpy)  # type: ignore[arg-type]  # likewise
