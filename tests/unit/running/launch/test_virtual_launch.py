"""What ends a process of virtual nodes that would never end by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.records.schema import Event
from bwbench.running.launch import virtual
from bwbench.running.launch.attempt import LaunchOutcome
from bwbench.running.launch.virtual import VirtualLauncher

ENDLESS = """
name: endless
nodes: 2
link: unshaped
compute: {virtual: true}
model: logistic
dataset: digits
batch_size: 32
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 640 samples}
limit: {samples: 100000000}
algorithm: ring
"""
ASLEEP = """
import threading
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression.codec import NoCompression


class Asleep(NoCompression):
    def encode(self, x):
        threading.Event().wait()


COMPRESSIONS.register("asleep", Asleep, "never comes back")
"""


def launched(folder: Path, text: str, wall_limit_s: float) -> tuple[LaunchOutcome, list[Event]]:
    """How it has ended, and what was told until then; nothing of it runs any more."""
    (folder / "endless.yaml").write_text(text)
    (cell,) = build_plan(load_experiment(folder / "endless.yaml")).cells
    cell_file, attempt, events = folder / "cell.json", folder / "attempt-1", list[Event]()
    cell_file.write_text(json.dumps(cell.to_json()))
    attempt.mkdir()
    launcher = VirtualLauncher(replace(cell), cell_file, attempt)
    looks = launcher.run(wall_limit_s, lambda rank, event: events.append(event))
    while True:
        try:
            next(looks)
        except StopIteration as end:
            outcome: LaunchOutcome = end.value
            break
    assert not any(str(cell_file) in one.cmdline() for one in psutil.Process().children(recursive=True))
    return outcome, events


def test_one_that_trains_for_too_long_is_ended_by_the_time_guard(tmp_path: Path) -> None:
    outcome, events = launched(tmp_path, ENDLESS, 8.0)
    assert outcome.status == "timeout" and "the time guard of 8 s" in str(outcome.reason)
    assert any(event.event == "eval" for event in events), "it has trained until then"


def test_one_that_computes_nothing_any_more_is_told_to_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "QUIET_LIMIT_S", 6.0)
    (tmp_path / "asleep.py").write_text(ASLEEP)
    text = ENDLESS + "compression: asleep\ncollective: all-gather\nplugins: [asleep.py]\n"
    outcome, _ = launched(tmp_path, text, 60.0)
    assert outcome.status == "failed" and "no rank has computed or sent anything" in str(outcome.reason)


def test_closing_it_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "endless.yaml").write_text(ENDLESS)
    (cell,) = build_plan(load_experiment(tmp_path / "endless.yaml")).cells
    (tmp_path / "cell.json").write_text(json.dumps(cell.to_json()))
    (tmp_path / "attempt-1").mkdir()
    looks = VirtualLauncher(cell, tmp_path / "cell.json", tmp_path / "attempt-1").run(60.0, lambda rank, event: None)
    next(looks)
    (process,) = (one for one in psutil.Process().children() if str(tmp_path / "cell.json") in one.cmdline())
    looks.close()
    assert not process.is_running()
