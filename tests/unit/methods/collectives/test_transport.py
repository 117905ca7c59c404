"""Who takes part is told with each round: some ranks of a group average, in any order, and the others are not asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from bwbench.base.registry import COLLECTIVES
from bwbench.methods.algorithms.communicator import Communicator
from bwbench.methods.collectives import Members, Round
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.transport import SHARED_ROOM_BYTES, Meter, Transport
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.devices import device_of

pytestmark = pytest.mark.timeout(60)
NAMES = ["ring", "all-gather", "scatter-gather", "parameter-server", "hierarchical", "sharded"]


@pytest.mark.parametrize("ranks", [(0, 2, 3), (3, 1), (2,), (0, 1, 2, 3)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_elements", [100, 50_000])
def test_the_mean_is_over_the_members_of_the_round(name: str, ranks: tuple[int, ...], num_elements: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(num_elements, generator=generator) for _ in range(4)]

    def work(group, rank):
        collective = COLLECTIVES.load(name)()
        collective.connect(group)
        bucket = values[rank].clone()
        if rank in ranks:
            collective.average(bucket, NoCompression(), Round(0, Members(ranks, ranks.index(rank))))
        return bucket

    results = run_ranks(4, work)
    expected = torch.stack([values[rank] for rank in ranks]).mean(0)
    for rank in range(4):
        if rank in ranks:
            assert torch.equal(results[rank], results[ranks[0]])
            assert torch.allclose(results[rank], expected, atol=1e-6)
        else:
            assert torch.equal(results[rank], values[rank])


def test_members_may_change_from_round_to_round() -> None:
    rounds = [(0, 1), (1, 2), (0, 1, 2)]

    def work(group, rank):
        collective = COLLECTIVES.load("ring")()
        collective.connect(group)
        bucket = torch.full((3000,), float(rank))
        for ranks in rounds:
            if rank in ranks:
                collective.average(bucket, NoCompression(), Round(7, Members(ranks, ranks.index(rank))))
        return bucket

    for bucket in run_ranks(3, work):
        assert torch.allclose(bucket, torch.tensor((0.5 + 1.25 + 1.25) / 3))


def test_everybody_of_a_group_and_one_alone() -> None:
    assert Members.all_of(None) == Members((0,), 0)
    assert run_ranks(3, lambda group, rank: Members.all_of(group)) == [Members((0, 1, 2), place) for place in range(3)]


def test_small_buckets_of_a_thread_share_their_rooms_and_a_large_one_has_its_own() -> None:
    transport = Transport(None, Meter())  # type: ignore[arg-type]

    def room(bucket_bytes: int, tag: int) -> int:
        with transport.rooms_for(bucket_bytes):
            return transport.buffer(tag, "ring", 1000).data_ptr()

    first = room(SHARED_ROOM_BYTES, 0)
    assert room(4000, 1) == first
    large = room(SHARED_ROOM_BYTES + 1, 2)
    assert large not in (first, room(SHARED_ROOM_BYTES + 1, 3)) and room(SHARED_ROOM_BYTES + 1, 2) == large
    with ThreadPoolExecutor(1) as other:
        assert other.submit(room, 4000, 1).result() not in (first, large)
    assert transport.buffer(0, "ring", 1000).data_ptr() != first  # outside of an exchange by its tag, as ever


@pytest.mark.parametrize("name", [*NAMES, "gossip-pair", "neighbours"])
def test_two_threads_that_share_rooms_average_what_each_was_given(name: str) -> None:
    """Buckets of many sizes, two at a time, each room used again at once."""
    lengths = [70_000, 300, 50_000, 9_000, 120_000, 40, 64_000, 30_000]
    values = [[torch.full((length,), float(rank * 100 + i)) for i, length in enumerate(lengths)] for rank in range(4)]

    def work(group, rank):
        collective = COLLECTIVES.load(name)()
        collective.connect(group)
        members = Members.all_of(group)
        buckets = [bucket.clone() for bucket in values[rank]]
        communicator = Communicator(collective.meter, 2, device_of(buckets[0]))
        for _ in range(3):
            for i, bucket in enumerate(buckets):
                communicator.submit(partial(collective.average, bucket, NoCompression(), Round(i, members)))
            communicator.wait()
        communicator.close()
        return buckets

    for i, found in enumerate(zip(*run_ranks(4, work), strict=True)):
        for bucket in found:
            assert bucket.unique().numel() == 1 and i <= float(bucket[0]) <= 300 + i
            assert name in ("gossip-pair", "neighbours") or float(bucket[0]) == pytest.approx(150.0 + i)
        assert sum(float(bucket[0]) for bucket in found) / 4 == pytest.approx(150.0 + i)
