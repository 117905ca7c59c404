"""Experiments to tune, and trials that were never trained."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from bwbench.experiment.config import Experiment, load_experiment
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records import EventWriter, write_json_atomic, write_record
from bwbench.records.schema import Evaluation, Status, finite
from bwbench.running.this_machine import ThisMachine

BASE = """\
name: study
nodes: 2
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: logistic
compute: {step_time: 10 ms}
target: {accuracy: 0.9}
limit: {samples: 4000, time: 5 min}
optimizer: {tuned: rates.yaml}
"""


def load(folder: Path, text: str = BASE, *overrides: str, tuning: bool = False) -> Experiment:
    path = folder / "study.yaml"
    path.write_text(text)
    return load_experiment(path, overrides, tuning=tuning)


class Trainer:
    """Stands in for ``run_cell``: a trial ends as ``outcome`` says of its learning rate, on a curve that arrives so."""

    def __init__(self, outcome: Callable[[float], dict[str, Any]]) -> None:
        self._outcome = outcome
        self.ran: list[tuple[str, float]] = []
        self.seeds: list[int] = []

    def __call__(self, item: PlannedCell, wall_limit_s: float, observer: object) -> Status:
        lr = item.cell.config.optimizer.options.lr
        self.ran.append((item.cell.arm, lr))
        self.seeds.append(item.cell.config.seed)
        told = {"status": "done", "samples": None, "loss": 1.0, **self._outcome(lr)}
        attempt = item.folder / f"attempt-{item.attempt + 1}"
        attempt.mkdir(parents=True)
        write_json_atomic(item.folder / "cell.json", item.cell.to_json())
        events = EventWriter(attempt / "rank0.jsonl")
        samples, loss = told["samples"], finite(told["loss"])
        curve = [(0, 0.1), (90, 0.5), (180, 0.5), (270, 0.5)]
        if samples is not None:
            curve = [(0, 0.1), (samples // 2, 0.5), *((samples + 100 * more, 0.9 + more / 100) for more in range(4))]
        for number, (seen, accuracy) in enumerate(curve):
            mean = {"accuracy": accuracy, "loss": loss if number else 9.0}
            events.write(Evaluation(split="validation", step=number, samples=seen, clock_s=float(number), mean=mean))
        events.write(Evaluation(split="test", step=9, samples=90, clock_s=9.0, mean={"loss": 0.0}))
        events.close()
        status = Status(
            id=item.cell.id,
            slug=item.cell.slug,
            status=told["status"],
            reason="x",
            attempt=item.attempt + 1,
            samples_to_target=told["samples"],
        )
        write_record(item.folder / "status.json", status)
        return status


def on(trainer: Trainer, num_processors: int = 1) -> ThisMachine:
    """This machine, with trials that end at their second look."""

    def begin(
        item: PlannedCell, wall_limit_s: float, observer: object, turn: object, look_s: float
    ) -> Generator[None, None, Status]:
        yield
        return trainer(item, wall_limit_s, observer)

    return ThisMachine(trainer, begin, num_processors)


class Quiet:
    """An observer that remembers how far it was told it is."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        self.told.append((number, total))

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        pass

    def cell_phase(self, cell: object, phase: str) -> None:
        pass

    def cell_event(self, cell: object, rank: int, event: dict[str, Any]) -> None:
        pass
