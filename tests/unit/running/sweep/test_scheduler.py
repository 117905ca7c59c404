"""Many machines at once, with a fake executor: what runs where, what is lost and runs again, when there is no hope."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bwbench.base.errors import UnfitMachineError
from bwbench.experiment.plan.assess import PlannedCell, assess
from bwbench.records import read_json, write_json_atomic, write_record
from bwbench.records.lock import claimed
from bwbench.records.schema import Evaluation, Event, Status
from bwbench.running.cluster.remote_machine import Work
from bwbench.running.executor import Finished, Lost, Machine, Report, TakenElsewhere, Unfit
from bwbench.running.run_cell import CellObserver
from bwbench.running.sweep.account import Account, Notifier, Tally
from bwbench.running.sweep.scheduler import MOST_LOSSES, Scheduler, pack
from tests.unit.running.cells import planned_cells

EVALUATION = Evaluation(split="test", step=0, samples=0, clock_s=0.0, mean={})


@dataclass
class Watcher:
    """Keeps what it is told."""

    told: list[tuple[str, str]] = field(default_factory=list)

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        self.told.append(("started", f"{number}/{total}"))

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        self.told.append((status.status, str(status.reason)))

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        self.told.append(("elsewhere", item.cell.slug))

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        self.told.append(("skipped", why))

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        self.told.append(("waiting", str(len(items))))

    def note(self, text: str) -> None:
        self.told.append(("note", text))

    def cell_phase(self, cell: Any, phase: str) -> None:
        self.told.append(("phase", phase))

    def cell_event(self, cell: Any, rank: int, event: Event) -> None:
        self.told.append(("event", event.event))


class FakeExecutor:
    """Machines whose cells end after a few looks; ``fate`` says otherwise for some."""

    def __init__(self, *machines: Machine, fate: Any = lambda item, machine: "done", seed: int = 0) -> None:
        self.all = list(machines)
        self.is_asking = False
        self.cells_per_machine = 1
        self.fate, self.random = fate, random.Random(seed)
        self.keys = itertools.count()
        self.at_work: dict[int, tuple[Machine, PlannedCell, CellObserver]] = {}
        self.most: Counter[str] = Counter()
        self.worked_on: list[tuple[str, str]] = []

    def machines(self) -> list[Machine]:
        return list(self.all)

    def takes(self, item: PlannedCell, running: Sequence[PlannedCell]) -> bool:
        return True

    def start(self, machine: Machine, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> int:
        key = next(self.keys)
        self.at_work[key] = machine, item, observer
        self.worked_on.append((machine.node, item.cell.id))
        busy = Counter(machine.host for machine, *_ in self.at_work.values())
        self.most |= busy
        return key

    def reports(self, limit_s: float) -> list[Report]:
        if not self.at_work:
            return []
        key = self.random.choice(list(self.at_work))
        machine, item, observer = self.at_work.pop(key)
        fate = self.fate(item, machine)
        if fate == "gone":
            self.all.remove(machine)
            return [Report(key, Lost("its machine is gone"))]
        if fate in ("unfit", "taken"):
            return [Report(key, TakenElsewhere() if fate == "taken" else Unfit("no namespaces"))]
        observer.cell_phase(item.cell, "training")
        observer.cell_event(item.cell, 0, EVALUATION)
        return [Report(key, Lost("killed") if fate == "lost" else run(item, machine, fate))]


def run(item: PlannedCell, machine: Machine, status: str) -> Finished:
    """What ``carry_out`` does there, without training."""
    work = Work.of(item, machine, 60.0, alone=True)
    folder, bundle = Path(work.folder), None
    attempt = folder / f"attempt-{work.number}"
    about = {"id": item.cell.id, "slug": item.cell.slug, "attempt": work.number}
    content = Status.model_validate({**about, "status": status, "reason": "samples"})
    if work.shared:
        attempt.mkdir(parents=True)
        write_record(folder / "status.json", content)
    else:
        elsewhere = folder.parent.parent.parent / f"elsewhere-{item.cell.id}" / attempt.name
        elsewhere.mkdir(parents=True)
        (elsewhere / "rank0.jsonl").write_text("{}\n")
        bundle = pack(elsewhere)
    return Finished(content, bundle)


def machine(name: str, host: str = "", **fields: Any) -> Machine:
    return replace(Machine(name, host or name, name, 2.0, shared=True), **fields)


def sweep(executor: FakeExecutor, planned: Sequence[PlannedCell], per_machine: int = 1) -> tuple[Tally, Watcher]:
    watcher = Watcher()
    account = Account(planned, watcher, Notifier(None, print))
    executor.cells_per_machine = per_machine
    Scheduler(executor, account, {}, no_machine_limit_s=0.2).work_through(planned)
    return account.tally, watcher


@pytest.fixture
def planned(tmp_path: Path) -> list[PlannedCell]:
    return planned_cells(tmp_path / "results", 12)


@pytest.mark.parametrize("per_machine", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_every_cell_runs_once_and_no_machine_has_too_many(
    planned: list[PlannedCell], per_machine: int, seed: int
) -> None:
    executor = FakeExecutor(machine("a"), machine("b"), machine("b2", host="b"), seed=seed)
    tally, watcher = sweep(executor, planned, per_machine)
    assert tally.now == {"done": 12} and tally.all_done
    assert sorted(cell for _, cell in executor.worked_on) == sorted(item.cell.id for item in planned)
    assert dict(executor.most) == {"a": per_machine, "b": per_machine}
    assert ("event", "eval") in watcher.told and ("phase", "training, on a") in watcher.told


def test_runs_of_one_kind_that_were_asked_for_count_as_cells_do(planned: list[PlannedCell]) -> None:
    parts = [replace(item, part="timing") for item in planned]
    bad = parts[3].cell.id
    executor = FakeExecutor(machine("a"), fate=lambda item, machine: "failed" if item.cell.id == bad else "done")
    tally, _ = sweep(executor, parts)
    assert tally.now == {"done": 11, "failed": 1} and not tally.all_done


def test_a_machine_that_dies_loses_no_cell(planned: list[PlannedCell]) -> None:
    executor = FakeExecutor(machine("a"), machine("b"))
    executor.fate = lambda item, machine: "gone" if machine.node == "b" and len(executor.worked_on) > 5 else "done"
    tally, watcher = sweep(executor, planned)
    assert tally.now == {"done": 12} and len(executor.worked_on) == 13
    assert sum("was lost on b (its machine is gone)" in text for _, text in watcher.told) == 1


def test_a_cell_that_is_always_lost_stops_in_the_end(planned: list[PlannedCell]) -> None:
    bad = planned[3].cell.id
    executor = FakeExecutor(machine("a"), fate=lambda item, machine: "lost" if item.cell.id == bad else "done")
    tally, _ = sweep(executor, planned)
    assert tally.now == {"done": 11, "interrupted": 1} and not tally.all_done
    assert [cell for _, cell in executor.worked_on].count(bad) == MOST_LOSSES


def test_an_unfit_machine_is_left_out_and_its_cell_runs_elsewhere(planned: list[PlannedCell]) -> None:
    executor = FakeExecutor(machine("a"), machine("b"), fate=lambda item, m: "unfit" if m.node == "b" else "done")
    tally, watcher = sweep(executor, planned)
    assert tally.now == {"done": 12}
    assert [node for node, _ in executor.worked_on].count("b") == 1
    assert ("note", "b is left out: no namespaces") in watcher.told


@pytest.mark.parametrize(
    "machines, fate, said",
    [
        ([], "done", "none has been there for"),
        ([machine("a", problem="has bwbench 0.0.1")], "done", "a: has bwbench 0.0.1"),
        ([machine("a")], "unfit", "a: no namespaces"),
        ([machine("a")], "gone", "none has been there for"),
    ],
)
def test_without_a_usable_machine_it_ends_and_says_why(
    planned: list[PlannedCell], machines: list[Machine], fate: str, said: str
) -> None:
    with pytest.raises(UnfitMachineError, match=said):
        sweep(FakeExecutor(*machines, fate=lambda item, machine: fate), planned)


def test_records_come_back_from_machines_that_do_not_see_the_folder(planned: list[PlannedCell]) -> None:
    (planned[0].folder / "attempt-1").mkdir(parents=True)  # of an interrupted run
    sweep(FakeExecutor(machine("a", shared=False)), planned)
    for item in planned:
        last = "attempt-2" if item is planned[0] else "attempt-1"
        assert (item.folder / last / "rank0.jsonl").is_file()
        assert read_json(item.folder / "status.json")["status"] == "done"
        assert not (item.folder / ".claim").exists()
    again = assess([item.cell for item in planned], planned[0].folder.parent.parent)
    assert not any(item.runs for item in again)


def test_composed_cells_need_a_machine_that_sees_the_folder(planned: list[PlannedCell]) -> None:
    composed = [replace(item, way="composed") for item in planned]
    executor = FakeExecutor(machine("far", shared=False), machine("near"))
    sweep(executor, composed)
    assert {node for node, _ in executor.worked_on} == {"near"}
    fresh = planned_cells(planned[0].folder.parent.parent.parent / "other", 1)
    with pytest.raises(UnfitMachineError, match="far does not see"):
        sweep(FakeExecutor(machine("far", shared=False)), [replace(item, way="composed") for item in fresh])


def test_cells_that_fit_no_free_machine_let_others_pass(planned: list[PlannedCell]) -> None:
    mixed = [replace(item, way="composed") if number < 4 else item for number, item in enumerate(planned)]
    executor = FakeExecutor(machine("far", shared=False))
    with pytest.raises(UnfitMachineError, match="far does not see"):
        sweep(executor, mixed)
    assert {cell for _, cell in executor.worked_on} == {item.cell.id for item in mixed[4:]}, "what can be done is done"


def test_a_full_disk_is_said_before_a_machine_gets_anything(
    planned: list[PlannedCell], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def full(folder: Path) -> Iterator[None]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        yield

    monkeypatch.setattr("bwbench.running.sweep.scheduler.claimed", full)
    with pytest.raises(UnfitMachineError, match="No space left"):
        sweep(FakeExecutor(machine("far", shared=False)), planned)


def test_cells_of_other_processes_come_last(planned: list[PlannedCell]) -> None:
    executor = FakeExecutor(machine("a"))
    with claimed(planned[0].folder) as _:
        held = claimed(planned[5].folder)
        held.__enter__()

        def fate(item: PlannedCell, machine: Machine) -> str:
            if len(executor.worked_on) == 10:
                held.__exit__(None, None, None)
                write_json_atomic(planned[0].folder / "status.json", {"status": "done", "attempt": 1})
            return "done"

        executor.fate = fate
        tally, watcher = sweep(executor, planned[1:])
    assert tally.now == {"done": 11}
    assert executor.worked_on[-1][1] == planned[5].cell.id


def test_what_is_settled_needs_no_machine(planned: list[PlannedCell]) -> None:
    for item in planned:
        item.folder.mkdir(parents=True)
        content = {"id": item.cell.id, "slug": item.cell.slug, "status": "done", "attempt": 1}
        write_json_atomic(item.folder / "status.json", content)
    tally, _ = sweep(FakeExecutor(), planned)
    assert tally.earlier == {"done": 12}
