"""Checkpoints are taken by all ranks or by none, now and then, and training never ends for their sake."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bwbench.records import EventWriter
from bwbench.records.schema import CheckpointPlace
from bwbench.training.loop import checkpoints as module
from bwbench.training.loop.checkpoints import Checkpoints, Progress
from bwbench.training.loop.recorder import Channel, Recorder


class Control:
    """The control path of ranks in threads."""

    def __init__(self, rank: int, flags: list[bool], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(flags)
        self._flags, self._barrier = flags, barrier

    def any(self, flag: bool) -> bool:
        self._flags[self.rank] = flag
        self._barrier.wait(10)
        found = any(self._flags)
        self._barrier.wait(10)
        return found


class Parent(Channel):
    """Answers at once."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(None)
        self.answer = answer
        self.phases: list[str] = []

    def phase(self, name: str) -> dict[str, Any]:
        self.phases.append(name)
        return self.answer

    @property
    def asked(self) -> int:
        assert self.phases == ["checkpoint", "going on"] * (len(self.phases) // 2)
        return self.phases.count("checkpoint")


def take(attempt: Path, steps: list[int], answer: dict[str, Any] | None = None, interval_s: float = 0.0) -> list[int]:
    """Two ranks come to an evaluation after each of these steps; returns how often each has asked the parent."""
    flags, barrier = [False, False], threading.Barrier(2)
    parents = [Parent(answer or {}) for _ in flags]

    def rank_of(rank: int) -> None:
        with closing(EventWriter(attempt / f"rank{rank}.jsonl")) as writer:
            control: Any = Control(rank, flags, barrier)
            checkpoints = Checkpoints(attempt, interval_s, control, Recorder(writer, parents[rank]), parents[rank])
            for step in steps:
                checkpoints.take_if_due(Progress(32, step), 0.1 * step, lambda: {"of": rank})

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [parent.asked for parent in parents]


def names(attempt: Path) -> list[str]:
    return sorted(path.name for path in attempt.glob("*check*")) + [path.name for path in attempt.glob(".check*")]


def test_the_last_one_stays(tmp_path: Path) -> None:
    assert take(tmp_path, [10, 20, 30]) == [3, 3]
    assert names(tmp_path) == ["checkpoint-30"]
    assert {path.name for path in tmp_path.glob("checkpoint-30/*")} == {
        f"rank{rank}.{ending}" for rank in (0, 1) for ending in ("pt", "json")
    }


def test_none_before_it_is_time(tmp_path: Path) -> None:
    assert take(tmp_path, [10, 20], interval_s=600.0) == [0, 0]
    assert names(tmp_path) == []


def test_none_while_the_emulator_is_unfit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take(tmp_path, [10], {"unfit": "the emulator was late"})
    assert names(tmp_path) == []
    assert "no checkpoint after step 10: the emulator was late" in capsys.readouterr().err


@pytest.mark.parametrize("full_on", [0, 1])
def test_a_full_disk_on_one_rank_costs_the_new_one_alone(
    tmp_path: Path, full_on: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = module.write_rank

    def full(folder: Path, rank: int, state: memoryview, place: CheckpointPlace, events: Path) -> None:
        if rank == full_on and place.step == 20:
            folder.mkdir(exist_ok=True)
            (folder / f"rank{rank}.pt").write_bytes(b"a par")
            raise OSError(28, "No space left on device")
        write(folder, rank, state, place, events)

    monkeypatch.setattr(module, "write_rank", full)
    take(tmp_path, [10, 20])
    assert names(tmp_path) == ["checkpoint-10"]
    assert "no checkpoint after step 20: [Errno 28] No space left on device" in capsys.readouterr().err
    take(tmp_path, [30])
    assert names(tmp_path) == ["checkpoint-30"]
