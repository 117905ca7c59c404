"""Jitter and loss in virtual time: as much as was asked, and in the order that was asked."""

from __future__ import annotations

import math
import statistics
from itertools import groupby, pairwise
from typing import Any

import pytest

from bwbench.network.link.chance import quantiles
from bwbench.network.relay.schedule import RelayModel
from tests.unit.network.relay.virtual_relay import LATENCY_S, Outcome, Submission, model, run

SMALL_BYTES = 100
SERIALISED_S = 2 * SMALL_BYTES * 1e-6
Z = 2.576  # of a 99 % interval


def sparse(number: int, gap_s: float = 0.02, src: int = 0, dst: int = 1) -> list[Submission]:
    return [Submission(index * gap_s, src, dst, SMALL_BYTES) for index in range(number)]


def delays_s(outcome: Outcome, submissions: list[Submission]) -> list[float]:
    return [due_s - submissions[number].time_s - SERIALISED_S for due_s, _, number in outcome.left]


@pytest.mark.parametrize("distribution", ["normal", "uniform", "pareto"])
@pytest.mark.parametrize(
    "how",
    [{"jitter_kind": "correlated"}, {"jitter_kind": "independent"}, {"jitter_kind": "independent", "reorder": True}],
)
def test_jitter_has_the_mean_and_the_spread_that_were_asked(distribution: str, how: dict[str, Any]) -> None:
    asked = model(latency="10 ms", jitter="2 ms", jitter_distribution=distribution, **how)
    frames = sparse(5000)
    found_s = delays_s(run(asked, frames), frames)
    assert statistics.mean(found_s) == pytest.approx(10e-3, rel=0.02)
    assert statistics.stdev(found_s) == pytest.approx(2e-3, rel=0.1)


def test_the_distributions_differ_in_shape() -> None:
    frames = sparse(5000)
    skews = {}
    for distribution in ("uniform", "pareto"):
        asked = model(latency="10 ms", jitter="1 ms", jitter_distribution=distribution)
        scaled = [(delay_s - 10e-3) / 1e-3 for delay_s in delays_s(run(asked, frames), frames)]
        skews[distribution] = statistics.mean(value**3 for value in scaled)
        assert min(scaled) >= min(quantiles(distribution)) / 8192 - 1e-6
        assert max(scaled) <= max(quantiles(distribution)) / 8192 + 1e-6
    assert abs(skews["uniform"]) < 0.1
    assert skews["pareto"] > 1


def test_a_delay_is_never_negative() -> None:
    asked = model(latency="1 ms", jitter="3 ms", jitter_kind="independent", reorder=True)
    frames = sparse(2000)
    found_s = delays_s(run(asked, frames), frames)
    assert min(found_s) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("jitter", ["0.5 ms", "5 ms"])
@pytest.mark.parametrize("kind", ["correlated", "independent"])
def test_frames_of_a_pair_keep_their_order_unless_asked_otherwise(jitter: str, kind: str) -> None:
    frames = sparse(4000, gap_s=2e-4)
    kept = [number for _, _, number in run(model(jitter=jitter, jitter_kind=kind), frames).left]
    assert kept == sorted(kept)
    free_model = model(jitter=jitter, jitter_kind="independent", reorder=True)
    free = [number for _, _, number in run(free_model, frames).left]
    assert sum(later < earlier for earlier, later in pairwise(free)) > 400


def test_one_pair_does_not_hold_back_another() -> None:
    """The order is kept between two nodes, not among all that a node sends."""
    asked = model(jitter="5 ms", latency="20 ms", overrides={2: {"jitter": "0 ms", "latency": "0 ms"}})
    alone = delays_s(run(asked, sparse(500, dst=2)), sparse(500, dst=2))
    frames = sorted(sparse(500, dst=2) + sparse(5000, gap_s=2e-3, dst=1))
    outcome = run(asked, frames)
    beside = [due_s - frames[number].time_s - SERIALISED_S for due_s, dst, number in outcome.left if dst == 2]
    assert statistics.mean(beside) == pytest.approx(statistics.mean(alone), rel=0.05)


def test_each_end_contributes_its_part_of_the_jitter() -> None:
    asked = model(latency="20 ms", jitter="3 ms", overrides={1: {"jitter": "0 ms"}})
    frames = sparse(5000)
    found_s = delays_s(run(asked, frames), frames)
    assert statistics.stdev(found_s) == pytest.approx(3e-3 / math.sqrt(2), rel=0.1)


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("medium", ["switched", "shared"])
def test_loss_lies_within_the_binomial_interval(loss: float, medium: str) -> None:
    frames = sparse(20_000, gap_s=1e-3)
    lost = len(run(model(loss=loss, medium=medium), frames).lost)
    assert abs(lost - loss * len(frames)) <= Z * math.sqrt(loss * (1 - loss) * len(frames))


def test_each_end_contributes_its_part_of_the_loss() -> None:
    frames = sparse(20_000, gap_s=1e-3)
    lost = len(run(model(loss=0.19, overrides={1: {"loss": 0.0}}), frames).lost)
    assert lost / len(frames) == pytest.approx(0.1, rel=0.07)  # 1 - sqrt(1 - 0.19)


def runs_of_losses(outcome: Outcome, number: int) -> list[int]:
    lost = set(outcome.lost)
    return [len(list(group)) for is_lost, group in groupby(range(number), lost.__contains__) if is_lost]


@pytest.mark.parametrize("burst", [1.5, 4, 20])
def test_bursts_are_as_long_as_was_asked(burst: float) -> None:
    """And the share of lost frames is the same as without bursts. Frames in a burst are lost one and all."""
    frames = sparse(100_000, gap_s=1e-3)
    outcome = run(model(loss=0.05, loss_burst=burst), frames)
    runs = runs_of_losses(outcome, len(frames))
    assert statistics.mean(runs) == pytest.approx(burst, rel=0.1)
    assert len(outcome.lost) / len(frames) == pytest.approx(0.05, rel=0.1)


def test_the_states_of_the_chain_may_lose_with_probabilities_of_their_own() -> None:
    frames = sparse(100_000, gap_s=1e-3)
    asked = model(loss=0.05, loss_burst=10, loss_in_bad=0.5, loss_in_good=0.01)
    outcome = run(asked, frames)
    assert len(outcome.lost) / len(frames) == pytest.approx(0.05, rel=0.1)
    assert statistics.mean(runs_of_losses(outcome, len(frames))) < 3


def test_every_receiver_has_a_chain_of_its_own() -> None:
    frames = sorted(sparse(5000, dst=1) + sparse(5000, dst=2))
    outcome = run(model(loss=0.1, loss_burst=10), frames)
    alone = run(model(loss=0.1, loss_burst=10), sparse(5000, dst=1))
    times_s = [[frames[number].time_s for number in outcome.lost if frames[number].dst == dst] for dst in (1, 2)]
    assert times_s[0] == [number * 0.02 for number in alone.lost]
    assert times_s[0] != times_s[1]


def lost(asked: RelayModel) -> list[int]:
    return run(asked, sparse(3000)).lost


def test_the_seed_says_what_is_lost_and_the_jitter_does_not() -> None:
    asked = model(loss=0.1)
    assert lost(asked) == lost(model(loss=0.1)) != lost(model(loss=0.1, seed=2))
    assert lost(asked) == lost(model(loss=0.1, jitter="0.1 ms"))
    assert lost(asked) == lost(model(loss=0.1, jitter="0.1 ms", jitter_distribution="pareto"))


def test_the_seed_says_what_is_late_and_the_loss_does_not() -> None:
    frames = sparse(500)

    def due_s(**changes: Any) -> dict[int, float]:
        return run(model(jitter="0.1 ms", **changes), frames).ends_s

    everything, most = due_s(), due_s(loss=0.1)
    assert len(most) < len(everything)
    assert most.items() <= everything.items()
    assert everything == due_s() != due_s(seed=2)


def test_a_link_without_chance_draws_nothing() -> None:
    frames = sparse(100)
    assert run(model(seed=5), frames).ends_s == run(model(), frames).ends_s
    found_s = delays_s(run(model(), frames), frames)
    assert found_s == pytest.approx([LATENCY_S] * 100)
