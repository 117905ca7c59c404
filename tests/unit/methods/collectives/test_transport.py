"""Who takes part is told with each round: some ranks of a group average, in any order, and the others are not asked."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.registry import COLLECTIVES
from bwbench.methods.collectives import Members, Round
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression.codec import NoCompression

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
