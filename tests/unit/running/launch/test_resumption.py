"""What an attempt that goes on from a checkpoint tells its network, and hands on to the next checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.plan.cell import Cell
from bwbench.network.namespaces.backend import PairCounter, WireCounters
from bwbench.records.checkpoint import Checkpoint, complete, find_checkpoint, unfinished, write_rank
from bwbench.records.schema import Carried, CheckpointPlace, Environment, Resumed
from bwbench.running.launch import local as module
from bwbench.running.launch.attempt import Resumption
from bwbench.running.launch.local import LocalLauncher

NUM_RANKS = 2
LINK = {"bandwidth": "10 Mbit/s", "outages": [{"at": "60 s", "duration": "5 s"}]}
CARRIED = {
    "played_s": 57.5,
    "wall_s": 70.0,
    "wire": {"bytes": 9, "ack_bytes": 1, "frames": 2, "ack_frames": 1, "drops": 0},
}


class Network:
    """A link that varies, which is never late."""

    nodes = ()

    def __init__(self) -> None:
        self.played_at_s: list[float] = []
        self.sent = 0

    def play(self, at_s: float) -> None:
        self.played_at_s.append(at_s)

    def health(self) -> dict[str, Any]:
        return {"alive": True}

    def counters(self) -> WireCounters:
        return WireCounters({(0, 1): PairCounter(frames=self.sent, bytes=1000 * self.sent)})


class Waiting:
    """A worker that computes nothing."""

    pid = 0

    def cpu_time_s(self) -> float:
        return 0.0


class Channels:
    """Keeps what each rank is answered."""

    def __init__(self) -> None:
        self.answers: dict[int, dict[str, Any]] = {}

    def answer(self, rank: int, content: dict[str, Any]) -> None:
        self.answers[rank] = content


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The launcher's clock; sleeping takes no time."""
    clock = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    return clock


def launcher_of(network: Any, tmp_path: Path, resumption: Resumption) -> LocalLauncher:
    raw = {"nodes": NUM_RANKS, "link": LINK, "model": "logistic", "limit": {"samples": 640}}
    config = resolve(raw, (), tmp_path).config
    assert config is not None
    cell = Cell("0123456789", "slug", "study", "ddp", 0, config)
    return LocalLauncher(network, cell, tmp_path / "cell.json", tmp_path, resumption)


def reach(launcher: LocalLauncher, phase: str) -> dict[int, dict[str, Any]]:
    channels: Any = Channels()
    for rank in range(NUM_RANKS):
        assert not channels.answers, "nobody is answered before all are there"
        launcher._reach(channels, rank, phase)
    return channels.answers


@pytest.mark.parametrize("carried", [None, CARRIED], ids=["from the begin", "from a checkpoint"])
def test_what_varies_goes_on_from_where_it_was_and_the_next_checkpoint_says_how_far_it_got(
    tmp_path: Path, now: list[float], carried: dict[str, Any] | None
) -> None:
    checkpoint = None
    if carried is not None:
        checkpoint = Checkpoint(
            tmp_path / "checkpoint-30", 1, 30, 960, 55.0, Carried.model_validate(carried), NUM_RANKS
        )
    before = carried or {"played_s": 0.0, "wall_s": 0.0, "wire": {"bytes": 0}}
    resumption = Resumption(checkpoint, began_mono_s=now[0])
    network = Network()
    launcher = launcher_of(network, tmp_path, resumption)
    now[0] += 4.0  # the start of the workers is part of the attempt, and not of the playing
    reach(launcher, "training")
    assert network.played_at_s == [before["played_s"]]
    for seconds in (30.0, 60.0):
        now[0] += 30.0
        network.sent += 5
        answers = reach(launcher, "checkpoint")
        assert answers[0] == answers[1]
        told = answers[0]["carried"]
        assert told["played_s"] == pytest.approx(before["played_s"] + seconds)
        assert told["wall_s"] == pytest.approx(before["wall_s"] + 4.0 + seconds)
        assert told["wire"]["bytes"] == before["wire"]["bytes"] + 1000 * network.sent
    assert network.played_at_s == [before["played_s"]], "a checkpoint interrupts nothing"


def test_a_disk_that_takes_minutes_for_a_checkpoint_is_no_stall(
    tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launcher_of(Network(), tmp_path, Resumption(began_mono_s=now[0]))
    launcher._processes = [Waiting() for _ in range(NUM_RANKS)]
    monkeypatch.setattr(module, "unanswered", lambda pid: [])
    monkeypatch.setattr(module, "is_stopped", lambda pid: False)

    def said_within(seconds: int) -> str | None:
        launcher._stalls.forget(now[0])
        for _ in range(seconds):
            now[0] += 1.0
            if reason := launcher._look(now[0]):
                return reason
        return None

    for phase in ("ready", "training"):
        reach(launcher, phase)
    assert "computed or sent anything" in str(said_within(60))
    reach(launcher, "checkpoint")
    assert said_within(200) is None
    reach(launcher, "going on")
    assert "computed or sent anything" in str(said_within(60))


def checkpoint_of(attempt: Path, step: int, environment: dict[str, Any]) -> None:
    attempt.mkdir()
    (attempt / "environment.json").write_text(json.dumps(environment))
    events = attempt / "rank0.jsonl"
    events.write_text("{}\n")
    place = CheckpointPlace(step=step, samples=32 * step, clock_s=1.5, world_size=1, carried=Carried())
    write_rank(unfinished(attempt, step), 0, memoryview(b"state"), place, events)
    complete(unfinished(attempt, step), step)


def test_a_checkpoint_that_is_not_used_is_said_and_recorded(tmp_path: Path) -> None:
    nothing = Resumption(*find_checkpoint(tmp_path, 1, Environment.model_validate({})))
    assert nothing.words is None and nothing.resumed_from is None and nothing.refused is None
    checkpoint_of(tmp_path / "attempt-1", 30, {"packages": {"torch": "1.0"}})
    used = Resumption(*find_checkpoint(tmp_path, 1, Environment.model_validate({"packages": {"torch": "1.0"}})))
    assert used.words == "going on from step 30 of attempt 1"
    assert used.resumed_from == Resumed(attempt=1, step=30, clock_s=1.5)
    refused = Resumption(*find_checkpoint(tmp_path, 1, Environment.model_validate({"packages": {"torch": "2.0"}})))
    assert refused.words is not None and refused.words.startswith("beginning at step 0: checkpoint-30 of attempt-1")
    assert refused.resumed_from is None and "torch 1.0" in str(refused.refused)
    assert refused.environment == {"BWBENCH_CHECKPOINT_DIR": ""} and refused.carried.played_s == 0.0


@pytest.mark.parametrize(
    ("status", "resumed", "newer", "kept"),
    [
        ("interrupted", True, False, True),
        ("timeout", True, False, True),
        ("failed", False, True, True),
        ("failed", True, True, True),
        ("failed", True, False, False),
        ("done", True, True, False),
        ("diverged", False, True, False),
        ("invalid", False, True, False),
    ],
)
def test_checkpoints_stay_where_somebody_may_go_on_from_them(
    tmp_path: Path, status: str, resumed: bool, newer: bool, kept: bool
) -> None:
    """One from which training has failed before it got to the next one is not tried twice."""
    if resumed:
        checkpoint_of(tmp_path / "attempt-1", 30, {})
    resumption = Resumption(*find_checkpoint(tmp_path, 1, Environment.model_validate({})))
    if newer:
        checkpoint_of(tmp_path / "attempt-2", 60, {})
    resumption.tidy(tmp_path / "attempt-2", status)
    assert bool(list(tmp_path.glob("*/checkpoint-*"))) is kept
