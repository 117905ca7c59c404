"""Steps of a model of shapes whose declared times vary: each takes its own, and no more is waiting than was waited."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from bwbench.base.model_shapes import Layer, ModelShapes, to_json
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.config.step_trace import asked_of
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.collectives import Members
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.evaluation import training_loss
from bwbench.training.loop.feed import EmptyFeed
from bwbench.training.loop.process_groups import Groups
from bwbench.training.loop.real_size import skipped_steps
from bwbench.training.loop.step import Pacer, Stepper
from bwbench.training.loop.trial_parts import prepare
from bwbench.training.models.shapes import ShapesConfig
from bwbench.training.models.shapes_module import ShapesModule

MODEL = ModelShapes("m", (Layer("a", ((8, 3), (8,)), 1.0), Layer("b", ((4, 8), (4,)), 2.0)))
SPREAD = {"mean": "100 ms", "spread": "50 %"}


@pytest.fixture
def slept_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept so far; nothing else takes time here."""
    slept: list[float] = []
    others, sleep = {*threading.enumerate()} - {threading.main_thread()}, time.sleep  # what other tests left running

    def note(seconds: float) -> None:
        (sleep if threading.current_thread() in others else slept.append)(seconds)

    monkeypatch.setattr(time, "sleep", note)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + sum(slept))
    return slept


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("algorithm", ["single", "no-communication"])  # without and with memory
def test_each_step_takes_what_it_is_declared_to(
    algorithm: str, accumulate: int, tmp_path: Path, slept_s: list[float]
) -> None:
    (tmp_path / "m.json").write_text(json.dumps(to_json(MODEL)))
    raw = {"nodes": 1 if algorithm == "single" else 2, "link": "unshaped", "model": {"shapes": "m.json"}}
    raw |= {"batch_size": 8, "accumulate": accumulate, "compute": {"step_time": SPREAD}, "limit": {"steps": 40}}
    config = resolve({**raw, "algorithm": algorithm}, (), tmp_path).config
    assert config is not None
    trial, asked = prepare(config, Groups(ControlPath())), asked_of(config, 0)
    assert asked is not None and trial.shapes is not None
    assert trial.shapes.in_memory == (algorithm != "single")
    plain_s = Stepper(trial, EmptyFeed(), Pacer(None)).plain_backward_s()
    assert plain_s == pytest.approx(trial.declared_backward_s) == 0.1 * 2 / 3 / accumulate
    pacer = Pacer(asked)
    pacer.observe(plain_s - trial.declared_backward_s)
    stepper = Stepper(trial, EmptyFeed(), pacer)
    taken_s = [stepper.step(number, 0).ledger.duration_s for number in range(1, 21)]
    wanted_s = [asked(number, 0.0) for number in range(1, 21)]
    assert max(wanted_s) > 2 * min(wanted_s)
    assert taken_s == pytest.approx(wanted_s)


@pytest.mark.parametrize("waited_s", [0.0, 0.05])
def test_torchs_ddp_is_charged_for_waiting_and_not_for_a_pass_that_is_declared_longer(
    waited_s: float, slept_s: list[float]
) -> None:
    def work(gloo: dist.ProcessGroup, rank: int) -> list[float]:
        group = dist.ProcessGroup(dist.HashStore(), rank, 1)  # torch's DDP takes no bare gloo group
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        module = ShapesModule(MODEL, ShapesConfig(), rank)
        collective = COLLECTIVES.load("torch")()
        collective.connect(group)
        optimizer, codec = torch.optim.SGD(module.parameters(), lr=0.1), COMPRESSIONS.load("none")
        running = EveryStep().attach(
            Context(
                module,
                optimizer,
                collective,
                codec,
                group,
                ControlPath(group),
                nullcontext(),  # type: ignore[arg-type]
                Members.all_of(group),
                declared_backward_s=module.backward_s,
            )
        )
        module.begin_step(0.3)
        running.rehearse(module.backward_s() + 0.01)
        found = []
        for step_s in (0.3, 0.9, 0.1):
            module.begin_step(step_s)
            running.begin_step()
            began_s = time.monotonic()
            inputs, targets = EmptyFeed().next()
            torch.autograd.backward(training_loss(running.module(inputs), targets))
            time.sleep(0.01 + waited_s)  # as if in the pass: what it takes beyond what is declared, and waiting
            running.gradients_ready(began_s)
            report = running.finish()
            assert report.hidden_s == report.exposed_s
            found.append(report.exposed_s)
        return found

    (found,) = run_ranks(1, work)
    assert found == pytest.approx([waited_s] * 3)


@pytest.mark.parametrize(
    ("algorithm", "steps"), [({"qadam": {"warmup_steps": 3}}, 3), ("ring", 0), ({"local-sgd": {"warmup": 4}}, 0)]
)
def test_a_warm_up_is_left_out_where_nothing_is_learnt(algorithm: object, steps: int, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(to_json(MODEL)))
    raw = {"nodes": 2, "link": "unshaped", "model": {"shapes": "m.json"}, "batch_size": 8, "limit": {"steps": 4}}
    raw |= {"compute": {"step_time": "100 ms"}, "algorithm": algorithm}
    raw |= {"optimizer": "adam"} if steps else {}
    config = resolve(raw, (), tmp_path).config
    assert config is not None
    assert skipped_steps(config, ShapesModule(MODEL, ShapesConfig(), 0)) == steps
