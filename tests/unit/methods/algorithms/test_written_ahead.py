"""Gradients that are made only to be sent: written before they are due, sent when they are, each once and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from bwbench.base.model_shapes import Layer, ModelShapes
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.buckets import BucketExchange
from bwbench.methods.algorithms.communicator import NUM_THREADS
from bwbench.methods.collectives import Members
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.models.shapes import ShapesConfig
from bwbench.training.models.shapes_module import ShapesModule

LENGTHS = (40, 30, 20, 10)  # a bucket each, the last one first
MODEL = ModelShapes("m", tuple(Layer(f"l{length}", ((length, 5),), 1.0) for length in LENGTHS))
WAIT_S = 20.0


class Rank:
    """One rank of an exchange, and what happened there."""

    def __init__(self, group: Any, rank: int) -> None:
        self.module = ShapesModule(MODEL, ShapesConfig(), rank, in_memory=False)
        self.written: list[int] = []
        self.averaged: list[torch.Tensor] = []
        collective = COLLECTIVES.load("ring")()
        collective.connect(group)
        average = collective.average

        def observed(values: torch.Tensor, *others: Any) -> None:
            average(values, *others)
            self.averaged.append(values.clone())

        collective.average = observed
        optimizer, codec = torch.optim.SGD(self.module.parameters(), lr=0.1), COMPRESSIONS.load("none")
        control: Any = None
        clock: Any = nullcontext()
        context = Context(
            self.module, optimizer, collective, codec, group, control, clock, Members.all_of(group), write_gradient=self
        )
        self.exchange = BucketExchange(context, 4.0)

    def __call__(self, index: int, out: torch.Tensor) -> None:
        self.module.write_gradient(index, out)
        self.written.append(index)

    def backward(self) -> None:
        torch.autograd.backward(self.module(torch.zeros(1, 0)).sum())


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def test_threads_have_their_buckets_before_the_pass_begins_and_send_none_of_them() -> None:
    def work(group: Any, rank: int) -> list[torch.Tensor]:
        one = Rank(group, rank)
        for step in (1, 2):
            one.written.clear()
            one.averaged.clear()
            one.module.begin_step(None)
            one.exchange.begin_step()
            with one.exchange.micro_step(last=True):
                until(lambda: len(one.written) == NUM_THREADS)
                time.sleep(0.05)
                assert sorted(one.written) == [2, 3] and not one.averaged
                one.backward()
            one.exchange.finish()
            assert sorted(one.written) == [0, 1, 2, 3]
            assert one.module.steps == step
        one.exchange.close()
        return sorted(one.averaged, key=len)

    found = run_ranks(2, work)
    expected = []
    for index, length in enumerate(LENGTHS):
        mean = torch.zeros(length * 5)
        for rank in (0, 1):
            module, part = ShapesModule(MODEL, ShapesConfig(), rank, in_memory=False), torch.empty(length * 5)
            module.begin_step(None)
            module.begin_step(None)
            module.write_gradient(index, part)
            mean += part / 2
        expected.append(mean)
    for averaged in found:
        assert [len(values) for values in averaged] == [50, 100, 150, 200]
        for values, mean in zip(averaged, reversed(expected), strict=True):
            torch.testing.assert_close(values, mean)


def test_a_pass_that_adds_up_micro_steps_writes_in_the_last_one_alone() -> None:
    def work(group: Any, rank: int) -> None:
        one = Rank(group, rank)
        one.module.begin_step(None)
        one.exchange.begin_step()
        with one.exchange.micro_step(last=False):
            one.backward()
        assert not one.written
        with one.exchange.micro_step(last=True):
            one.backward()
        one.exchange.finish()
        assert sorted(one.written) == [0, 1, 2, 3] and len(one.averaged) == 4
        one.exchange.close()

    run_ranks(2, work)


def test_closing_lets_threads_go_that_wait_for_gradients() -> None:
    def work(group: Any, rank: int) -> None:
        one = Rank(group, rank)
        one.exchange.begin_step()
        with one.exchange.micro_step(last=True):
            until(lambda: len(one.written) == NUM_THREADS)
        threads = one.exchange._communicator._threads
        one.exchange.close()
        for thread in threads:
            thread.join(WAIT_S)
        assert not any(map(threading.Thread.is_alive, threads)) and not one.averaged

    run_ranks(1, work)
