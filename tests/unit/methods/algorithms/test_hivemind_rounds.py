"""Rounds of ``hivemind`` that fail on one node, with a stand-in for its averager: hivemind itself is in tests/e2e."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from bwbench.methods.algorithms.hivemind_average import HivemindConfig, RunningHivemind


class Step:
    """What a step of the averager comes to: a mean, None, or what is raised; it is noted whether it was cancelled."""

    def __init__(self, averager: Averager, outcome: object) -> None:
        self.averager, self.outcome, self.cancelled = averager, outcome, False

    def result(self, _timeout_s: float) -> object:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is not None:
            self.averager.tensor.mul_(10)
        return self.outcome

    def cancel(self) -> None:
        self.cancelled = True


class Averager:
    """Multiplies its tensor by ten when a step succeeds."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes, self.steps, self.tensor = list(outcomes), [], torch.zeros(2)

    @contextlib.contextmanager
    def get_tensors(self) -> Iterator[list[torch.Tensor]]:
        yield [self.tensor]

    def step(self, timeout: float, wait: bool) -> Step:
        assert timeout > 5 and not wait
        self.steps.append(Step(self, self.outcomes.pop(0)))
        return self.steps[-1]


class Control:
    """What other ranks say of each attempt: the share of them that failed."""

    def __init__(self, *others: float) -> None:
        self.others = list(others)

    def average(self, values: torch.Tensor) -> None:
        values.add_(self.others.pop(0)).div_(2)


def running(averager: Averager, control: Control, timeout_s: float = 600.0) -> RunningHivemind:
    """One of two ranks, whose parameters are ones."""
    made = RunningHivemind.__new__(RunningHivemind)
    made._averager, made._context = averager, SimpleNamespace(control=control)
    made._options = HivemindConfig.model_validate({"timeout": timeout_s})
    made._parameters, made._round_bytes = [torch.nn.Parameter(torch.ones(2))], 8
    return made


@pytest.mark.parametrize(
    ("mine", "others"),
    [([{}], [0]), ([{}, {}], [1, 0]), ([RuntimeError("lost"), {}], [0, 0]), ([None, RuntimeError(), {}], [1, 0, 0])],
)
def test_a_round_counts_once_all_have_a_mean(mine: list[object], others: list[float]) -> None:
    averager = Averager(*mine)
    rank = running(averager, Control(*others))
    report = rank._average()
    assert rank._parameters[0].tolist() == [10, 10]  # a mean of what the round began with, and not of another mean
    assert (len(averager.steps), report.payload_bytes) == (len(mine), 8)
    assert [step.cancelled for step in averager.steps] == [isinstance(outcome, Exception) for outcome in mine]


def test_a_round_that_takes_too_long_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 40))
    monkeypatch.setattr(
        "bwbench.methods.algorithms.hivemind_average.time", SimpleNamespace(monotonic=lambda: next(now))
    )
    rank = running(Averager(*[RuntimeError("no route")] * 9), Control(*[0] * 9), timeout_s=300)
    with pytest.raises(RuntimeError, match=r"no average within 300 s \(RuntimeError\('no route'\)\)"):
        rank._average()
    assert rank._parameters[0].tolist() == [1, 1]
