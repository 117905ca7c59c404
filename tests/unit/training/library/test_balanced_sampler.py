"""Samples of like cost in the same step, every sample once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.utils.data import DistributedSampler

from bwbench import LoadBalancedSampler
from bwbench.base.errors import ConfigError

COSTS = np.random.default_rng(0).lognormal(0, 1, 997)


def epoch(num_replicas: int, costs: Any = COSTS, epoch: int = 0, **options: Any) -> np.ndarray:
    """[samples of a rank, ranks]"""
    rows = []
    for rank in range(num_replicas):
        sampler = LoadBalancedSampler(range(len(costs)), costs, num_replicas=num_replicas, rank=rank, **options)
        sampler.set_epoch(epoch)
        rows.append(list(sampler))
        assert len(rows[-1]) == len(sampler)
    return np.array(rows).T


def plainly(costs: np.ndarray, num_replicas: int) -> set[frozenset[int]]:
    """Groups by the definition: sort, cut."""
    order = sorted(range(len(costs)), key=lambda index: costs[index])
    return {frozenset(order[i : i + num_replicas]) for i in range(0, len(order), num_replicas)}


@pytest.mark.parametrize("shuffle", [True, False])
def test_groups_are_neighbours_by_cost(shuffle: bool) -> None:
    costs = COSTS[:996]
    found = epoch(4, costs, shuffle=shuffle)
    assert {frozenset(group) for group in found.tolist()} == plainly(costs, 4)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("random_level", [0.0, 0.3, 1.0])
def test_every_sample_comes_once_and_a_few_twice(num_replicas: int, random_level: float) -> None:
    found = epoch(num_replicas, random_level=random_level)
    counts = np.bincount(found.reshape(-1), minlength=len(COSTS))
    assert counts.min() == 1 and counts.sum() - len(COSTS) < num_replicas


def test_drop_last_leaves_out_other_samples_in_each_epoch() -> None:
    missing = [set(range(len(COSTS))) - set(epoch(5, epoch=e, drop_last=True).reshape(-1)) for e in range(20)]
    assert {len(left_out) for left_out in missing} == {2}
    assert len(set.union(*missing)) > 20


def test_fewer_samples_than_ranks_are_repeated() -> None:
    assert sorted(epoch(5, COSTS[:2]).reshape(-1).tolist()) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_epochs_differ_and_repeat() -> None:
    assert not np.array_equal(epoch(4, epoch=0), epoch(4, epoch=1))
    assert np.array_equal(epoch(4, epoch=1), epoch(4, epoch=1))
    assert not np.array_equal(epoch(4, seed=1), epoch(4))
    assert np.array_equal(epoch(4, shuffle=False), epoch(4, shuffle=False, epoch=3))


def idle_share(found: np.ndarray, batch: int) -> float:
    """How much of a synchronous step the mean rank waits for the slowest one."""
    steps = len(found) // batch
    cost = COSTS[found[: steps * batch]].reshape(steps, batch, -1).sum(1)
    return float(1 - cost.mean() / cost.max(1).mean())


def test_ranks_wait_less_the_lower_the_random_level() -> None:
    ordinary = [list(DistributedSampler(range(len(COSTS)), 4, rank, seed=0)) for rank in range(4)]  # type: ignore
    plain = idle_share(np.array(ordinary).T, batch=8)
    waits = [idle_share(epoch(4, random_level=level), batch=8) for level in (0.0, 0.1, 1.0)]
    assert waits[0] < waits[1] < waits[2] < plain
    assert waits[0] < 0.03 < 0.25 < plain


def test_no_rank_always_gets_the_cheapest() -> None:
    for shuffle in (True, False):
        sums = COSTS[epoch(4, shuffle=shuffle)].sum(0)
        assert np.ptp(sums) / sums.mean() < 0.04


def test_costs_may_be_a_function() -> None:
    texts = ["a" * (1 + i % 17) for i in range(40)]
    by_function = LoadBalancedSampler(texts, len, num_replicas=4, rank=1)
    by_numbers = LoadBalancedSampler(texts, [len(text) for text in texts], num_replicas=4, rank=1)
    assert list(by_function) == list(by_numbers)


def test_ranks_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = LoadBalancedSampler(range(9), range(9))
    assert (sampler.rank, sampler.num_replicas, len(sampler)) == (2, 3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_replicas": 2, "rank": 2}, "rank is 2, num_replicas 2"),
        ({"random_level": 2}, "it is 0 to 1"),
        ({"random_level": 0.5, "shuffle": False}, "no effect"),
        ({"cost": [1.0]}, r"shape \(1,\) for 3 samples"),
        ({"cost": [1.0, float("nan"), 2.0]}, "finite"),
        ({"num_replicas": 4, "rank": 0, "drop_last": True}, "3 samples cannot be dealt out to 4"),
    ],
)
def test_mistakes_are_said(options: dict[str, Any], message: str) -> None:
    arguments = {"cost": [1.0, 2.0, 3.0], "num_replicas": 1, "rank": 0, **options}
    with pytest.raises(ConfigError, match=message):
        LoadBalancedSampler(range(3), **arguments)
