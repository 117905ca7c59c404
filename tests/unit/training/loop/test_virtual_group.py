"""The process group of virtual nodes: gloo's sums to the bit, and messages as gloo's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
import torch.distributed as dist

from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.loop.rank_turns import RankTurns
from bwbench.training.loop.virtual_group import VirtualGroup, VirtualNetwork, ring_sum

T = TypeVar("T")
SIZES = (1, 3, 7, 650, 100_003, 3 * 1024 * 1024 + 5)  # of which the last takes more segments than two a rank


def run_virtual(num_ranks: int, work: Callable[[VirtualGroup, int], T]) -> list[T]:
    """What ``work(group, rank)`` returned, by rank; raises the first error of any rank."""
    turns = RankTurns(num_ranks)
    groups, found = VirtualNetwork(turns, num_ranks).groups(), dict[int, T]()

    def run(rank: int) -> None:
        found[rank] = work(groups[rank], rank)

    for error in turns.run(run).values():
        raise error
    return [found[rank] for rank in range(num_ranks)]


def values(num_ranks: int, elements: int, kind: torch.dtype) -> list[torch.Tensor]:
    return [
        (10 * torch.randn(elements, generator=torch.Generator().manual_seed(rank))).to(kind)
        for rank in range(num_ranks)
    ]


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5, 8])
def test_sums_have_the_bits_of_gloo(num_ranks: int) -> None:
    given = [values(num_ranks, size, kind) for size in SIZES for kind in (torch.float32, torch.float16, torch.float64)]

    def by_gloo(group: dist.ProcessGroup, rank: int) -> list[torch.Tensor]:
        summed = [one[rank].clone() for one in given]
        for one in summed:
            group.allreduce([one]).wait()
        return summed

    for one, other in zip(run_ranks(num_ranks, by_gloo)[0], map(ring_sum, given), strict=True):
        assert torch.equal(one, other), (len(one), one.dtype)


def test_messages_are_matched_by_sender_and_tag_in_their_order_and_may_be_shorter() -> None:
    def work(group: VirtualGroup, rank: int) -> list[list[int]]:
        if rank == 0:
            group.send([torch.tensor([1, 2])], 1, 7).wait()
            group.send([torch.tensor([3])], 1, 8).wait()
            last = torch.tensor([4])
            group.send([last], 1, 7)
            last.zero_()  # what was sent is a copy
            return []
        buffers = [torch.zeros(2, dtype=torch.int64) for _ in range(3)]
        works = [group.recv([buffer], 0, tag) for buffer, tag in zip(buffers, (8, 7, 7), strict=True)]
        for one in works:
            one.wait()
        return [buffer.tolist() for buffer in buffers]

    assert run_virtual(2, work)[1] == [[3, 0], [1, 2], [4, 0]]


def test_a_message_that_is_too_long_is_an_error() -> None:
    def work(group: VirtualGroup, rank: int) -> None:
        if rank == 0:
            group.send([torch.zeros(3)], 1, 0)
        else:
            group.recv([torch.zeros(2)], 0, 0).wait()

    with pytest.raises(RuntimeError, match="12 bytes for a buffer of 8"):
        run_virtual(2, work)


def test_what_all_do_together() -> None:
    def work(group: VirtualGroup, rank: int) -> tuple[list[int], list[int]]:
        own = torch.tensor([rank])
        gathered = [torch.empty_like(own) for _ in range(group.size())]
        group.barrier().wait()
        group.allgather([gathered], [own]).wait()
        options = dist.BroadcastOptions()
        options.rootRank = 2
        group.broadcast([own], options).wait()
        return [int(one) for one in gathered], own.tolist()

    assert run_virtual(3, work) == [([0, 1, 2], [2])] * 3


def test_only_sums_are_formed() -> None:
    def work(group: VirtualGroup, rank: int) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group.allreduce([torch.zeros(1)], options)

    with pytest.raises(NotImplementedError):
        run_virtual(1, work)
