"""Averages of weights against the means that they stand for, and what an evaluation makes of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bwbench.base.plain_data import JsonObject
from bwbench.base.registry import WEIGHT_AVERAGES
from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.component_parsing import parse_component
from bwbench.experiment.config.resolve import resolve
from bwbench.records.schema import Evaluation
from bwbench.training.loop.checkpoints import Progress
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.evaluation import Evaluator, evaluate
from bwbench.training.loop.process_groups import Groups
from bwbench.training.loop.step import Pacer, Stepper
from bwbench.training.loop.training_loop import TrainingLoop
from bwbench.training.loop.trial_parts import Trial, prepare
from bwbench.training.loop.weight_averages import AbstractWeightAverage, AveragedWeights, Ema, Tail

BATCH = 10


def walk(average: AbstractWeightAverage, steps: int) -> tuple[list[Tensor], list[Tensor]]:
    """What a weight is behind each step, at random, and what the average is."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    averaged = AveragedWeights(model, average)
    trained, averages = [], []
    for step in range(1, steps + 1):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape))
        averaged.take_in(step * BATCH, BATCH)
        trained.append(model.weight.detach().double().clone())
        averages.append(averaged.model.weight.detach().double().clone())
    return trained, averages


def ema(horizon: int) -> Ema:
    return Ema(Ema.Config(horizon=f"{horizon} samples"))


def tail(**options: Any) -> Tail:
    return Tail(Tail.Config(**options))


@pytest.mark.parametrize("horizon", [3, 40, 500])
def test_an_exponential_average_weighs_by_age(horizon: int) -> None:
    trained, averages = walk(ema(horizon), 30)
    for count, average in enumerate(averages, 1):
        ages = [(count - 1 - step) * BATCH for step in range(count)]
        shares = torch.tensor([math.exp(-age / horizon) for age in ages], dtype=torch.float64)
        mean = sum(share * weight for share, weight in zip(shares / shares.sum(), trained, strict=False))
        torch.testing.assert_close(average, mean, rtol=1e-5, atol=1e-5)


def test_samples_count_and_not_steps() -> None:
    """Ten steps of ten samples forget as much as one of a hundred."""
    often, once = ema(400), ema(400)
    kept = math.prod(1.0 - often.newest(10**9, 10) for _ in range(10))
    assert kept == pytest.approx(1.0 - once.newest(10**9, 100)) == pytest.approx(math.exp(-0.25))


def test_a_tail_is_the_mean_of_the_last_part() -> None:
    """300 samples, 30 steps, the last 40 % of them: behind step 18 it begins."""
    trained, averages = walk(tail(share=0.4, over="300 samples"), 30)
    for count in range(18):
        assert torch.equal(averages[count], trained[count])
    for count in range(18, 30):
        mean = torch.stack(trained[18 : count + 1]).mean(0)
        torch.testing.assert_close(averages[count], mean, rtol=1e-5, atol=1e-5)


def test_a_tail_begins_with_a_step_that_it_cuts() -> None:
    average = tail(share=0.5, over="150 samples")  # from 75 samples on
    assert [average.newest(samples, BATCH) for samples in (70, 80, 90, 100)] == [1.0, 1.0, 1 / 2, 1 / 3]


def test_the_last_part_is_one_of_the_whole_training() -> None:
    assert Tail.Config().within(1000).begin_samples == pytest.approx(800)
    assert Tail.Config(over="500 samples").within(1000).begin_samples == pytest.approx(400)
    with pytest.raises(ValueError, match="not known"):
        tail().newest(10, 10)


def test_buffers_are_the_replicas_own() -> None:
    model = nn.BatchNorm1d(3)
    averaged = AveragedWeights(model, ema(100))
    for step in range(1, 4):
        model(torch.randn(8, 3))
        averaged.take_in(step * BATCH, BATCH)
        for mine, trained in zip(averaged.model.buffers(), model.buffers(), strict=True):
            assert torch.equal(mine, trained)


def test_it_is_put_back_and_goes_on_from_its_state() -> None:
    model = nn.Linear(4, 3)
    averaged, again = (AveragedWeights(model, ema(100)) for _ in range(2))
    averaged.take_in(10, 10)
    with torch.no_grad():
        model.weight.add_(1.0)
    averaged.take_in(20, 10)
    state = averaged.state_dict()
    again.load_state_dict(state)
    averaged.take_in(30, 10)
    assert not torch.equal(state["weight"], averaged.model.weight)
    again.take_in(30, 10)
    assert torch.equal(again.model.weight, averaged.model.weight)
    averaged.reset()
    assert torch.equal(averaged.model.weight, model.weight)
    assert averaged.model.weight is not model.weight


def cell(**changes: Any) -> CellConfig:
    raw: JsonObject = {
        "nodes": 1,
        "link": "unshaped",
        "model": {"cnn": {"width": 4, "hidden": 8}},
        "batch_size": 16,
        "algorithm": "single",
        "optimizer": {"muon": {"lr": 0.05}},
        "weight_average": {"ema": "100 samples"},
        "limit": {"samples": 320},
        "stop": "limit",
        **changes,
    }
    resolved = resolve(raw, (), Path.cwd())
    assert resolved.config is not None, resolved.findings
    return resolved.config


def trained(config: CellConfig, steps: int) -> tuple[Trial, Progress]:
    trial = prepare(config, Groups(ControlPath()))
    progress = Progress(config.global_batch)
    stepper = Stepper(trial, trial.make_feed(), Pacer(None))
    for number in range(1, steps + 1):
        stepper.step(number, progress.samples)
        progress.steps += 1
    return trial, progress


def scored(config: CellConfig, steps: int = 12) -> tuple[Trial, Evaluation]:
    trial, progress = trained(config, steps)
    return trial, Evaluator(trial, progress).score("validation", 0.0)


@pytest.mark.parametrize("counts", ["averaged", "trained"])
def test_an_evaluation_scores_both_and_says_which_counts(counts: str) -> None:
    trial, found = scored(cell(weight_average={"ema": {"horizon": "100 samples", "counts": counts}}))
    assert trial.averaged is not None and found.weights == counts
    both = [evaluate(model, trial.validation) for model in (trial.averaged.model, trial.model)]
    mean, beside = both if counts == "averaged" else reversed(both)
    assert found.mean == pytest.approx(mean) and found.beside == pytest.approx(beside)
    assert mean["loss"] != beside["loss"]


def test_without_an_average_nothing_is_said_of_one() -> None:
    trial, found = scored(cell(weight_average="none"), steps=1)
    assert trial.averaged is None
    assert not {"weights", "beside"} & set(found.to_json())


def test_what_is_trained_does_not_depend_on_an_average() -> None:
    with_it, without = (trained(cell(weight_average=average), 6)[0] for average in ("tail", "none"))
    for one, other in zip(with_it.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_average_is_of_the_steps_that_were_taken() -> None:
    """An exponential average whose horizon is long beside the training is the mean behind all its steps."""
    config = cell(weight_average={"ema": "10000000 samples"})
    trial = prepare(config, Groups(ControlPath()))
    stepper = Stepper(trial, trial.make_feed(), Pacer(None))
    behind: list[list[Tensor]] = []
    for number in range(1, 9):
        stepper.step(number, (number - 1) * config.global_batch)
        behind.append([parameter.detach().clone() for parameter in trial.model.parameters()])
    assert trial.averaged is not None
    for average, *steps in zip(trial.averaged.model.parameters(), *behind, strict=True):
        torch.testing.assert_close(average, torch.stack(steps).mean(0), rtol=1e-4, atol=1e-5)


def test_warming_up_leaves_no_trace() -> None:
    trial = prepare(cell(), Groups(ControlPath()))
    before = [parameter.detach().clone() for parameter in trial.model.parameters()]
    TrainingLoop(trial, recorder=None, channel=None)._warm_up()  # type: ignore[arg-type]
    assert trial.averaged is not None
    for average, model, begin in zip(trial.averaged.model.parameters(), trial.model.parameters(), before, strict=True):
        assert torch.equal(average, begin) and torch.equal(model, begin)


OPTIONS: dict[str, JsonObject] = {"ema": {"horizon": "70 samples"}, "tail": {"over": "200 samples"}}


@pytest.mark.parametrize("name", WEIGHT_AVERAGES.names())
def test_every_average_begins_with_the_first_weights_and_leaves_new_ones_a_share(name: str) -> None:
    component = parse_component({name: OPTIONS.get(name, {})}, WEIGHT_AVERAGES)
    average: AbstractWeightAverage = component.build(WEIGHT_AVERAGES)
    shares = [average.newest(step * BATCH, BATCH) for step in range(1, 40)]
    assert shares[0] == 1.0 and all(0.0 < share <= 1.0 for share in shares)
    assert shares == sorted(shares, reverse=True)
    assert (average.counts is None) == (name == "none")
