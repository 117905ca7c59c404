"""Ranks that take turns: one at a time, in an order of its own, each with its random numbers, and never a hang."""

from __future__ import annotations

import threading

import pytest
import torch

from bwbench.training.loop.rank_turns import RankTurns


def test_one_runs_at_a_time_until_it_waits_and_the_order_is_always_the_same() -> None:
    def orders() -> list[str]:
        turns, told = RankTurns(3), list[str]()

        def work(rank: int) -> None:
            told.append(f"{rank} begins")
            if rank == 2:
                turns.wake(1)
                turns.wake(0)
            else:
                turns.pause()
            told.append(f"{rank} ends")

        assert turns.run(work) == {}
        return told

    assert orders() == ["0 begins", "1 begins", "2 begins", "2 ends", "1 ends", "0 ends"]
    assert all(orders() == orders() for _ in range(20))


def test_each_rank_draws_its_own_random_numbers() -> None:
    turns, drawn = RankTurns(2), dict[int, list[float]]()

    def work(rank: int) -> None:
        torch.manual_seed(rank)
        drawn[rank] = []
        for _ in range(3):
            drawn[rank].append(float(torch.rand(())))
            turns.wake(1 - rank)
            if len(drawn) == 2 or rank == 0:
                turns.pause()
        turns.wake(1 - rank)

    assert turns.run(work) == {}
    for rank in range(2):
        generator = torch.Generator().manual_seed(rank)
        assert drawn[rank] == [float(torch.rand((), generator=generator)) for _ in range(3)]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("last", [0, 1, 2])
def test_where_all_wait_for_one_another_all_are_told(last: int) -> None:
    turns = RankTurns(3)

    def work(rank: int) -> None:
        turns.pause() if rank != 2 else turns.wake(last)
        turns.pause()

    errors = turns.run(work)
    assert sorted(errors) == [0, 1, 2]
    assert all("all ranks wait for one another" in str(error) for error in errors.values())


def test_whoever_waits_for_a_rank_that_has_ended_is_told() -> None:
    turns = RankTurns(2)
    errors = turns.run(lambda rank: turns.pause() if rank == 0 else None)
    assert list(errors) == [0]
    assert "rank 1 has ended" in str(errors[0])


def test_what_a_rank_raises_is_the_first_error_and_ends_the_others() -> None:
    turns = RankTurns(3)

    def work(rank: int) -> None:
        if rank == 1:
            raise ValueError("a broken model")
        turns.pause()

    errors = turns.run(work)
    assert next(iter(errors)) == 1
    assert {str(error) for rank, error in errors.items() if rank != 1} == {"rank 1 has failed: a broken model"}


def test_a_thread_of_its_own_is_refused_and_does_not_hang() -> None:
    turns, said = RankTurns(1), list[str]()

    def other() -> None:
        try:
            turns.pause()
        except RuntimeError as error:
            said.append(str(error))

    def work(rank: int) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)

    assert turns.run(work) == {}
    assert "must not declare itself 'virtual'" in said[0]


@pytest.mark.parametrize("num_ranks", [1, 256])
def test_any_number_of_ranks(num_ranks: int) -> None:
    turns, ended = RankTurns(num_ranks), list[int]()
    assert turns.run(ended.append) == {}
    assert ended == list(range(num_ranks))
