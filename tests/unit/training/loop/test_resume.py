"""Training that goes on from a checkpoint is, to the last bit, what it would have been without the interruption."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from bwbench.base.plain_data import JsonObject
from bwbench.base.registry import ALGORITHMS
from bwbench.base.step_time import SteadyStepTime
from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.method_names import PRESETS
from bwbench.experiment.config.resolve import resolve
from bwbench.methods.collectives.rank_threads import loopback, run_ranks
from bwbench.records import EventWriter, read_events
from bwbench.records.checkpoint import find_checkpoint
from bwbench.records.schema import Environment
from bwbench.training.loop.checkpoints import Checkpoints
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.process_groups import Groups
from bwbench.training.loop.recorder import Channel, Recorder
from bwbench.training.loop.step import Pacer
from bwbench.training.loop.training_loop import TrainingLoop
from bwbench.training.loop.trial_parts import prepare

NUM_RANKS = 2
EVERY, CHECKPOINT, STEPS = 9, 18, 24  # an evaluation and its checkpoint after 9 and 18 steps, none after the last
SEEDING = threading.Lock()  # threads share torch's random state, which a replica is made from
EVENTS_THAT_COUNT = ("step", "samples", "loss", "lr", "payload_bytes")

# What is rare by default happens in a few steps; each where the algorithm has such an option. No divisor of 18, so that
# rounds are under way and residuals full at the checkpoint.
SHORT = {"period": 7, "overlap": 0, "warmup": 11, "fragments": 2, "warmup_steps": 11, "interval": 4}
OVERLAPPED = {"overlapped-local-sgd": 3, "streaming-diloco": 2}
# Its results depend on when a thread gets its turn; those that torch exchanges need processes of their own.
NOT_HERE = ("async", "single", "torch", "hivemind", "deco-sgd")
METHODS = [name for name, preset in PRESETS.items() if not {*NOT_HERE} & {preset.algorithm, preset.collective}]


def config_of(name: str, **changes: Any) -> CellConfig:
    algorithm = ALGORITHMS.load(PRESETS[name].algorithm)
    short = {**SHORT, "overlap": OVERLAPPED.get(name, 0)}
    known = {field.alias or key for key, field in algorithm.Config.model_fields.items()}
    sgd = {"lr": 0.05} if name in ("dgc", "dgc-int4", "demo") else {"lr": 0.05, "momentum": 0.9}  # its own momentum
    raw = {
        "nodes": NUM_RANKS,
        "link": "unshaped",
        "model": "mlp",
        "dataset": "digits",
        "batch_size": 16,
        "algorithm": {name: {key: value for key, value in short.items() if key in known}},
        "optimizer": {algorithm.optimizers[0]: {"lr": 1e-3}} if algorithm.optimizers else {"sgd": sgd},
        "evaluate": {"every": f"{32 * EVERY} samples"},
        "limit": {"samples": 32 * STEPS},
        "stop": "limit",
        **changes,
    }
    resolved = resolve(raw, (), Path.cwd(), combine=True)
    assert resolved.config is not None, resolved.findings
    return resolved.config


def train(config: CellConfig, attempt: Path, resumed_from: Path | None = None, interval_s: float = 0.0) -> None:
    """All ranks of one attempt, by default with a checkpoint at every evaluation."""
    attempt.mkdir(exist_ok=True)
    (attempt / "environment.json").write_text("{}")
    shared, requests = dist.HashStore(), dist.HashStore()

    def work(data: dist.ProcessGroup, rank: int) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [loopback()]
        control = ControlPath(dist.ProcessGroupGloo(shared, rank, NUM_RANKS, options), requests)
        channel = Channel(None)
        with closing(EventWriter(attempt / f"rank{rank}.jsonl")) as writer:
            recorder = Recorder(writer, channel)
            checkpoints = Checkpoints(attempt, interval_s, control, recorder, channel, resumed_from)
            with SEEDING:
                trial = prepare(config, Groups(control, data))
            TrainingLoop(trial, recorder, channel, checkpoints).run()

    run_ranks(NUM_RANKS, work)


def resume(config: CellConfig, cell: Path) -> None:
    """A second attempt from the checkpoint that the first one has left, as the program begins it."""
    checkpoint, refused = find_checkpoint(cell, NUM_RANKS, Environment())
    assert checkpoint is not None and refused is None
    assert checkpoint.step == CHECKPOINT
    attempt = cell / "attempt-2"
    attempt.mkdir()
    checkpoint.begin(attempt)
    train(config, attempt, checkpoint.folder)


def events(cell: Path, attempt: int, rank: int, kind: str) -> list[dict[str, Any]]:
    return [event for event in every_event(cell, attempt, rank) if event["event"] == kind]


def every_event(cell: Path, attempt: int, rank: int) -> list[dict[str, Any]]:
    return [event.to_json() for event in read_events(cell / f"attempt-{attempt}" / f"rank{rank}.jsonl")]


def assert_alike(cell: Path) -> None:
    for rank in range(NUM_RANKS):
        whole, again = (events(cell, attempt, rank, "step") for attempt in (1, 2))
        for one, other in zip(whole, again, strict=True):
            assert [one[key] for key in EVENTS_THAT_COUNT] == [other[key] for key in EVENTS_THAT_COUNT]
        whole, again = (events(cell, attempt, rank, "eval") for attempt in (1, 2))
        assert [(e["step"], e["mean"]) for e in whole] == [(e["step"], e["mean"]) for e in again]
        (whole_end,), (end,) = (events(cell, attempt, rank, "end") for attempt in (1, 2))
        for key in ("replica_sha256", "step", "samples", "payload_bytes", "reason"):
            assert end[key] == whole_end[key], key


@pytest.mark.parametrize("method", METHODS)
def test_training_resumes_bit_exactly(method: str, tmp_path: Path) -> None:
    config = config_of(method)
    train(config, tmp_path / "attempt-1")
    resume(config, tmp_path)
    assert_alike(tmp_path)


def test_what_an_optimizer_keeps_of_whole_buckets_resumes_too(tmp_path: Path) -> None:
    """Two micro-steps a step, momentum in one vector, a learning rate that depends on the samples."""
    sgd = {"lr": 0.05, "momentum": 0.9, "flat": True, "warmup": f"{64 * CHECKPOINT + 128} samples"}
    limits = {"evaluate": {"every": f"{64 * EVERY} samples"}, "limit": {"samples": 64 * STEPS}}
    config = config_of("threshold", accumulate=2, optimizer={"sgd": sgd}, **limits)
    train(config, tmp_path / "attempt-1")
    resume(config, tmp_path)
    assert_alike(tmp_path)


@pytest.mark.parametrize("average", [{"ema": "200 samples"}, {"tail": {"share": 0.5, "counts": "trained"}}], ids=str)
@pytest.mark.parametrize("method", ["ring", "local-sgd"])
def test_averages_of_weights_and_a_decaying_rate_resume_too(method: str, average: JsonObject, tmp_path: Path) -> None:
    """What is scored is the average; the checkpoint at three quarters of the training is in the last part of it."""
    muon = {"muon": {"lr": 0.01, "warmup": f"{32 * EVERY} samples", "decay": "cosine"}}
    config = config_of(method, weight_average=average, optimizer=muon, model={"mlp": {"hidden": [16, 16]}})
    assert config.optimizer.options.decay_over == 32 * STEPS
    train(config, tmp_path / "attempt-1")
    resume(config, tmp_path)
    assert_alike(tmp_path)
    for rank in range(NUM_RANKS):
        whole, again = (events(tmp_path, attempt, rank, "eval") for attempt in (1, 2))
        assert [one["beside"] for one in whole] == [one["beside"] for one in again]
        assert {one["weights"] for one in whole} == {config.weight_average.options.counts}
        assert whole[0]["mean"] == whole[0]["beside"] and whole[-1]["mean"] != whole[-1]["beside"]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cell = tmp_path_factory.mktemp("ring")
    config = config_of("ring")
    train(config, cell / "attempt-1")
    resume(config, cell)
    return cell


def test_the_clock_goes_on_and_what_was_lost_does_not_count(ring: Path) -> None:
    for rank in range(NUM_RANKS):
        recorded = every_event(ring, 2, rank)
        (position,) = (number for number, event in enumerate(recorded) if event["event"] == "resume")
        origin, before, after = recorded[position], recorded[:position], recorded[position + 1 :]
        assert (origin["attempt"], origin["step"]) == (1, CHECKPOINT)
        assert before == every_event(ring, 1, rank)[:position]
        assert before[-1]["event"] == "eval" and before[-1]["clock_s"] == origin["clock_s"]
        again = [event for event in after if event["event"] == "step"]
        assert len(again) == STEPS - CHECKPOINT
        for step, following in pairwise(again):  # the clock runs from the moment of the resume on, and not before
            mono_s = origin["mono_s"] + step["clock_s"] - origin["clock_s"]
            assert step["mono_s"] <= mono_s <= following["mono_s"]
        end, steps = recorded[-1], [event for event in recorded if event["event"] == "step"]
        evaluation = next(event for event in after if event["event"] == "eval")
        assert end["clock_s"] >= evaluation["clock_s"] >= again[-1]["clock_s"]
        spent_s = sum(e["duration_s"] for e in recorded if e["event"] == "eval")
        assert end["evaluation_s"] == pytest.approx(spent_s)
        off_s = sum(abs(step["duration_s"] - sum(step["ledger"].values())) for step in steps)
        assert end["ledger_error"] == pytest.approx(off_s / sum(step["duration_s"] for step in steps), abs=1e-5)


def test_steps_after_a_checkpoint_are_asked_for_what_they_would_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drawn for a step depends on its number, which goes on; so it is padded alike."""
    asked: list[tuple[int, float]] = []
    begin_step = Pacer.begin_step

    def noted(self: Pacer, number: int, clock_s: float) -> None:
        begin_step(self, number, clock_s)
        if self.step_time_s is not None:  # nothing is asked of steps that warm up
            asked.append((number, self.step_time_s))

    config = config_of("ring", compute={"step_time": {"mean": "20 ms", "spread": "60 %"}})
    train(config, tmp_path / "attempt-1")
    monkeypatch.setattr(Pacer, "begin_step", noted)
    resume(config, tmp_path)
    assert_alike(tmp_path)
    numbers = [step["step"] for step in events(tmp_path, 2, 0, "step")[CHECKPOINT:]]
    drawn = SteadyStepTime(0.02, 0.6).drawn_s
    expected = [(number, drawn(config.seed, rank, number)) for number in numbers for rank in range(NUM_RANKS)]
    assert sorted(asked) == sorted(expected)


def test_a_newer_checkpoint_replaces_the_one_that_training_went_on_from(tmp_path: Path) -> None:
    config = config_of("ring", limit={"samples": 32 * (STEPS + 10)})
    train(config_of("ring"), tmp_path / "attempt-1")
    resume(config, tmp_path)
    left = [path.relative_to(tmp_path) for path in tmp_path.glob("*/*checkpoint*")]
    assert left == [Path("attempt-2") / f"checkpoint-{CHECKPOINT + EVERY}"]


def test_checkpoints_change_nothing(tmp_path: Path) -> None:
    """One run takes two, one takes none."""
    config = config_of("random-k")
    for attempt, interval_s in ((1, 0.0), (2, 600.0)):
        train(config, tmp_path / f"attempt-{attempt}", interval_s=interval_s)
    assert len(list(tmp_path.glob("*/checkpoint-*"))) == 1
    assert_alike(tmp_path)


def test_a_curve_of_the_test_split_changes_nothing_else_and_resumes(tmp_path: Path) -> None:
    """It is looked at at every evaluation, from the first one on; the replica and all else are to the bit the same."""
    whole, always = tmp_path / "whole", tmp_path / "always"
    config = config_of("ring", evaluate={"every": f"{32 * EVERY} samples", "test": "always"})
    for cell, asked in ((whole, config_of("ring")), (always, config)):
        cell.mkdir()
        train(asked, cell / "attempt-1")
    resume(config, always)
    assert_alike(always)
    for rank in range(NUM_RANKS):
        once, often = (events(cell, 1, rank, "eval") for cell in (whole, always))
        assert [(e["step"], e["split"]) for e in once][-1] == (STEPS, "test")
        for split in ("validation", "test"):
            assert [e["step"] for e in often if e["split"] == split] == [0, EVERY, CHECKPOINT, STEPS]
        assert [(e["step"], e["mean"]) for e in once if e["split"] == "validation"] == [
            (e["step"], e["mean"]) for e in often if e["split"] == "validation"
        ]
        (end,), (end_of_often,) = (events(cell, 1, rank, "end") for cell in (whole, always))
        assert end["replica_sha256"] == end_of_often["replica_sha256"] and once[-1]["mean"] == often[-1]["mean"]


def test_the_test_split_is_looked_at_around_an_arrival_and_at_the_end(tmp_path: Path) -> None:
    every = {"every": "32 samples"}
    train(config_of("ring", evaluate=every, target={"accuracy": 0.4}, stop="limit"), tmp_path / "attempt-1")
    found = events(tmp_path, 1, 0, "eval")
    first = next(e["step"] for e in found if e["split"] == "validation" and e["mean"]["accuracy"] >= 0.4)
    tested = [e["step"] for e in found if e["split"] == "test"]
    assert {first - 1, first} <= set(tested) and 0 not in tested and tested[-1] == STEPS


def test_or_at_the_end_alone(tmp_path: Path) -> None:
    evaluate = {"every": "32 samples", "test": "end"}
    train(config_of("ring", evaluate=evaluate, target={"accuracy": 0.4}, stop="limit"), tmp_path / "attempt-1")
    assert [e["step"] for e in events(tmp_path, 1, 0, "eval") if e["split"] == "test"] == [STEPS]


def test_what_a_checkpoint_holds_is_read_without_running_code(ring: Path) -> None:
    (folder,) = (ring / "attempt-1").glob("checkpoint-*")
    state = torch.load(folder / "rank1.pt", weights_only=True)
    assert state["method"]["rank"] == 1
    assert state["method"]["method"]["algorithm"]["name"] == "every-step"
    facts = json.loads((folder / "rank1.json").read_text())
    assert (facts["step"], facts["samples"], facts["world_size"]) == (CHECKPOINT, 32 * CHECKPOINT, NUM_RANKS)


def test_async_goes_on_too_though_not_with_the_same_bits(tmp_path: Path) -> None:
    config = config_of("async")
    train(config, tmp_path / "attempt-1")
    resume(config, tmp_path)
    for rank in range(NUM_RANKS):
        (end,) = events(tmp_path, 2, rank, "end")
        assert (end["status"], end["step"]) == ("done", STEPS)
