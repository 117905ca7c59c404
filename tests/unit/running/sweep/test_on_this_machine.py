"""Sweeps on this machine, with a runner that only writes status.json."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bwbench.base.errors import UnfitMachineError
from bwbench.experiment.plan import Cell, PlannedCell
from bwbench.records import write_record
from bwbench.records.lock import claimed
from bwbench.records.schema import Event, Status
from bwbench.running.machine_turn import TakeTurn
from bwbench.running.run_cell import CellObserver, CellRun, ended_since
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.account import Account, Notifier, Tally
from bwbench.running.sweep.scheduler import Scheduler
from bwbench.running.this_machine import ThisMachine
from tests.unit.running.sweep.studies import write_study

SILENT = Notifier(None, print)


class Watching:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def cell_phase(self, cell: Cell, phase: str) -> None: ...

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None: ...

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        self.seen.append(("started", item.cell.id))

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        self.seen.append(("finished", item.cell.id))

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        self.seen.append(("elsewhere", item.cell.id))

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        self.seen.append(("skipped", why))

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        self.seen.append(("waiting", str(len(items))))

    def of(self, what: str) -> list[str]:
        return [value for kind, value in self.seen if kind == what]


class Runs:
    """Ends cells as told, under their claim as the real one does, and counts."""

    def __init__(self, outcome: Callable[[PlannedCell], tuple[str, str]] = lambda item: ("done", "limit")) -> None:
        self.outcome, self.ran = outcome, list[str]()

    def __call__(self, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> Status:
        with claimed(item.folder):
            if (recorded := ended_since(item)) is not None:
                return recorded
            status, reason = self.outcome(item)
            self.ran.append(item.cell.id)
            about = {"id": item.cell.id, "slug": item.cell.slug, "attempt": item.attempt + 1}
            found = Status.model_validate({**about, "status": status, "reason": reason})
            write_record(item.folder / "status.json", found)
        return found


def planned(folder: Path, retry: Sequence[str] = ()) -> list[PlannedCell]:
    return list(plan_sweep([folder / "study.yaml"], folder / "results", retry=retry).selected)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path)
    return tmp_path


def sweep(folder: Path, run: Runs, retry: Sequence[str] = (), fail_fast: bool = False) -> tuple[Tally, Watching]:
    watching, items = Watching(), planned(folder, retry)
    return work_through(items, run, Account(items, watching, SILENT, fail_fast=fail_fast)), watching


def work_through(items: Sequence[PlannedCell], run: Runs, account: Account) -> Tally:
    Scheduler(ThisMachine(run), account, {}).work_through([item for item in items if item.runs])
    return account.tally


def test_every_cell_once_and_again_none(folder: Path) -> None:
    run = Runs()
    tally, watching = sweep(folder, run)
    assert tally.all_done and tally.now == {"done": 12} and len(set(run.ran)) == len(run.ran) == 12
    tally, _ = sweep(folder, run)
    assert tally.all_done and tally.earlier == {"done": 12} and len(run.ran) == 12


def test_a_failed_cell_stops_no_other_and_is_left_alone_until_retried(folder: Path) -> None:
    bad = planned(folder)[3].cell.id
    run = Runs(lambda item: ("failed", "boom") if item.cell.id == bad else ("done", ""))
    tally, _ = sweep(folder, run)
    assert tally.now == {"done": 11, "failed": 1} and not tally.all_done
    tally, _ = sweep(folder, run, retry=["timeout"])
    assert tally.now == {}
    run.outcome = lambda item: ("done", "")
    tally, _ = sweep(folder, run, retry=["failed"])
    assert tally.now == {"done": 1} and tally.all_done


def test_fail_fast_leaves_the_rest(folder: Path) -> None:
    run = Runs(lambda item: ("diverged", "nan"))
    tally, watching = sweep(folder, run, fail_fast=True)
    assert len(run.ran) == 1 and tally.skipped == 11 and "--fail-fast" in watching.of("skipped")[0]


def test_an_arm_that_fails_three_times_the_same_way_is_stopped_now_and_later(folder: Path) -> None:
    def outcome(item: PlannedCell) -> tuple[str, str]:
        if item.cell.arm != "ring":
            return "done", ""
        return "failed", f"rank {len(run.ran)} exited with status 1: RuntimeError at 0x{id(item):x}"

    run = Runs(outcome)
    tally, watching = sweep(folder, run)
    assert tally.now == {"done": 8, "failed": 3} and tally.skipped == 1 and not tally.all_done
    assert "3 cells failed the same way" in watching.of("skipped")[0]
    (left,) = [item for item in planned(folder) if item.status == "missing"]
    assert not left.runs and "skipped" in left.why and not (left.folder / "status.json").exists()
    tally, _ = sweep(folder, run)
    assert len(run.ran) == 11 and tally.skipped == 1
    run.outcome = lambda item: ("done", "")
    tally, _ = sweep(folder, run, retry=["failed"])
    assert tally.now == {"done": 4} and tally.all_done


def test_unlike_failures_stop_nothing_and_invalid_ones_only_their_link(folder: Path) -> None:
    reasons = iter(["encoder on fire", "link of node is dead", "out of memory", "killed"])
    run = Runs(lambda item: ("failed", next(reasons)) if item.cell.arm == "ring" else ("done", ""))
    assert sweep(folder, run)[0].skipped == 0
    other = folder / "other"
    other.mkdir()
    write_study(other, repeats=5, arms="ring")
    run = Runs(lambda item: ("invalid", "late") if "10 Mbit" in item.cell.config.link.describe() else ("done", ""))
    tally, _ = sweep(other, run)
    assert tally.now == {"done": 5, "invalid": 3} and tally.skipped == 2


def test_an_arm_that_diverges_at_one_rate_is_stopped_at_that_rate_on_all_links(folder: Path) -> None:
    path = write_study(folder, repeats=3, arms="ring")
    path.write_text(path.read_text() + "  optimizer.lr: [0.1, 1000]\n")

    def outcome(item: PlannedCell) -> tuple[str, str]:
        hot = item.cell.config.optimizer.to_json()["lr"] > 1
        return ("diverged", f"loss is nan after {len(run.ran)} steps") if hot else ("done", "")

    run = Runs(outcome)
    tally, _ = sweep(folder, run)
    assert tally.now == {"done": 6, "diverged": 3} and tally.skipped == 3


def test_two_at_once_share_the_work(folder: Path) -> None:
    def outcome(item: PlannedCell) -> tuple[str, str]:
        time.sleep(0.02)
        return "done", ""

    runs, tallies = [Runs(outcome), Runs(outcome)], list[Tally]()
    items = planned(folder)

    def work(run: Runs) -> None:
        tallies.append(work_through(items, run, Account(items, Watching(), SILENT)))

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ran = runs[0].ran + runs[1].ran
    assert sorted(ran) == sorted(item.cell.id for item in items), "every cell once"
    assert all(tally.all_done and sum(tally.counts.values()) == 12 for tally in tallies)


def test_a_cell_whose_process_dies_is_taken_over_at_the_end(folder: Path) -> None:
    run, items = Runs(), planned(folder)
    holding = claimed(items[0].folder)
    holding.__enter__()

    class Releasing(Watching):
        def waiting(self, items: Sequence[PlannedCell]) -> None:
            super().waiting(items)
            holding.__exit__(None, None, None)

    watching = Releasing()
    tally = work_through(items, run, Account(items, watching, SILENT))
    assert tally.all_done and run.ran[-1] == items[0].cell.id and watching.of("waiting") == ["1"]


def test_a_machine_that_is_unfit_ends_the_sweep_with_what_was_counted(folder: Path) -> None:
    run = Runs()

    def outcome(item: PlannedCell) -> tuple[str, str]:
        if len(run.ran) == 4:
            raise UnfitMachineError("cannot write: No space left on device")
        return "done", ""

    run.outcome, tally = outcome, Tally()
    items = planned(folder)
    with pytest.raises(UnfitMachineError):
        work_through(items, run, Account(items, Watching(), SILENT, tally))
    assert tally.now == {"done": 4}
    run.outcome = lambda item: ("done", "")
    assert sweep(folder, run)[0].all_done


class VirtualRuns:
    """Cells of virtual nodes that end after a few looks, and how many there were at once."""

    def __init__(self, looks: int = 3) -> None:
        self.looks, self.at_once, self.most, self.ended = looks, 0, 0, list[tuple[str, str]]()

    def __call__(
        self, item: PlannedCell, wall_limit_s: float, observer: CellObserver, turn: TakeTurn, look_s: float
    ) -> CellRun:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        ending = "interrupted"
        try:
            for _ in range(self.looks):
                observer.cell_phase(item.cell, "training")
                yield
            ending = "done"
        finally:
            self.at_once -= 1
            self.ended.append((item.cell.id, ending))
        return Status(id=item.cell.id, slug=item.cell.slug, status="done", attempt=1)


def with_virtual_nodes(item: PlannedCell, threads: int = 1) -> PlannedCell:
    compute = item.cell.config.compute.model_copy(update={"virtual": True, "threads": threads})
    return replace(item, cell=replace(item.cell, config=item.cell.config.model_copy(update={"compute": compute})))


def test_virtual_nodes_run_at_once_up_to_the_processors_and_never_beside_what_is_timed(folder: Path) -> None:
    virtual = VirtualRuns()

    def outcome(item: PlannedCell) -> tuple[str, str]:
        assert virtual.at_once == 0, "beside virtual nodes"
        return "done", ""

    timed = Runs(outcome)
    items = [item if number in (0, 5, 11) else with_virtual_nodes(item) for number, item in enumerate(planned(folder))]
    account = Account(items, Watching(), SILENT)
    Scheduler(ThisMachine(timed, virtual, num_processors=3), account, {}).work_through(items)
    assert account.tally.now == {"done": 12}
    assert virtual.most == 3 and len(timed.ran) == 3 and len(virtual.ended) == 9
    before_the_second = {item.cell.id for item in items[1:5]}
    assert {cell for cell, _ in virtual.ended[:4]} == before_the_second, "nothing overtakes what is timed"


def test_no_more_virtual_nodes_begin_while_another_process_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwbench.running.this_machine.turn_is_awaited", lambda: True)
    virtual, items = VirtualRuns(), [with_virtual_nodes(item) for item in planned(folder)]
    account = Account(items, Watching(), SILENT)
    Scheduler(ThisMachine(Runs(), virtual, num_processors=3), account, {}).work_through(items)
    assert account.tally.now == {"done": 12} and virtual.most == 1


def test_threads_count_as_processors(folder: Path) -> None:
    virtual, items = VirtualRuns(), [with_virtual_nodes(item, threads=2) for item in planned(folder)]
    account = Account(items, Watching(), SILENT)
    Scheduler(ThisMachine(Runs(), virtual, num_processors=5), account, {}).work_through(items)
    assert account.tally.now == {"done": 12} and virtual.most == 2


def test_one_at_a_time_trains_on_a_gpu_beside_others_on_processors(folder: Path) -> None:
    def on(device: str, item: PlannedCell) -> PlannedCell:
        compute = item.cell.config.compute.model_copy(update={"virtual": True, "device": device})
        return replace(item, cell=replace(item.cell, config=item.cell.config.model_copy(update={"compute": compute})))

    here, (one, other, *_) = ThisMachine(Runs(), VirtualRuns(), num_processors=3), planned(folder)
    assert here.takes(on("cuda", one), []) and here.takes(on("cuda", one), [on("cpu", other)])
    assert here.takes(on("cpu", one), [on("cuda", other)])
    assert not here.takes(on("cuda", one), [on("cuda", other)])
    items = [on("cuda", item) for item in planned(folder)]
    virtual, account = VirtualRuns(), Account(items, Watching(), SILENT)
    Scheduler(ThisMachine(Runs(), virtual, num_processors=3), account, {}).work_through(items)
    assert account.tally.now == {"done": 12} and virtual.most == 1


def test_what_interrupts_a_sweep_interrupts_all_that_run_at_once(folder: Path) -> None:
    class Interrupting(Watching):
        def cell_phase(self, cell: Cell, phase: str) -> None:
            self.seen.append(("phase", cell.id))
            if len(self.of("phase")) == 7:
                raise KeyboardInterrupt

    virtual, items = VirtualRuns(100), [with_virtual_nodes(item) for item in planned(folder)]
    account = Account(items, Interrupting(), SILENT)
    with pytest.raises(KeyboardInterrupt), contextlib.closing(ThisMachine(Runs(), virtual, num_processors=3)) as here:
        Scheduler(here, account, {}).work_through(items)
    assert virtual.at_once == 0 and [ending for _, ending in virtual.ended] == ["interrupted"] * 3


def test_what_happens_to_the_file_meanwhile_changes_nothing(folder: Path) -> None:
    def outcome(item: PlannedCell) -> tuple[str, str]:
        write_study(folder, arms="ddp")
        return "done", ""

    assert sweep(folder, Runs(outcome))[0].now == {"done": 12}
