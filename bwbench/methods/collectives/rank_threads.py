"""Several ranks in one process, for contracts and tests: a thread and a gloo group each, met at a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from bwbench.methods.collectives.transport import Members, Round
from bwbench.methods.deferred import dist, torch

T = TypeVar("T")


def round_of(group: dist.ProcessGroup, tag: int = 0) -> Round:
    """A round of all ranks of a group."""
    return Round(tag, Members.all_of(group))


@cache
def loopback() -> Any:
    """gloo's thread that serves sockets, one for all ranks of this process: one each takes three times as long."""
    return dist.ProcessGroupGloo.create_device(interface="lo")


def run_ranks(
    num_ranks: int, work: Callable[[dist.ProcessGroup, int], T], timeout_s: float = 120.0, *, may_leave: bool = False
) -> list[T]:
    """What ``work(group, rank)`` returned, by rank; raises the first error of any rank.

    Leaves torch with one thread. Raises TimeoutError where a rank is not through after twice the timeout.

    Args:
        timeout_s: of every message.
        may_leave: a rank whose work ends takes its connections away at once, as a process that ends does.
    """
    torch.set_num_threads(1)
    gloo: Any = dist  # its stubs leave out what is needed here
    store, device = gloo.HashStore(), loopback()
    met = threading.Barrier(num_ranks)
    results: list[Any] = [None] * num_ranks
    groups: list[dist.ProcessGroup] = []  # kept until all are done: a group that is freed closes on ranks still reading
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            options = gloo.ProcessGroupGloo._Options()
            options._devices = [device]
            options._timeout = timedelta(seconds=timeout_s)
            group: dist.ProcessGroup = gloo.ProcessGroupGloo(store, rank, num_ranks, options)
            if not may_leave:
                groups.append(group)
            met.wait(timeout_s)  # a rank that is through at once would take its group away while others still connect
            results[rank] = work(group, rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * timeout_s)
        if thread.is_alive():
            raise TimeoutError(f"a rank of {num_ranks} is not through after {2 * timeout_s:.0f} s: it waits for ever")
    if errors:
        raise errors[0]
    return results
