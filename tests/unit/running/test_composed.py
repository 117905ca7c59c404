import json
import math
import shutil
import statistics

import pytest
from simulated_runs import Machine, train

import bwbench.running.composed as composed_run
from bwbench.base.errors import CellTakenError, UnfitMachineError
from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan import assess, build_plan
from bwbench.experiment.plan.composing import ways
from bwbench.experiment.plan.described_models import Description
from bwbench.methods.phases import Phase, timing_steps
from bwbench.records import CellFolder, iter_cells, write_json_atomic, write_record
from bwbench.records.lock import claimed
from bwbench.records.schema import End, Evaluation, Status, Step, Wire
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.compose import compose
from bwbench.results.analysis.trial import summarise
from bwbench.results.publish import publish
from bwbench.running.composed import run_item, weighted_ledger
from bwbench.running.run_cell import WALL_LIMIT_FACTOR, WALL_LIMIT_S

EXPERIMENT = """
name: study
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 1 ms}
model: logistic
dataset: digits
batch_size: 32
evaluate: {every: 2048 samples}
target: {accuracy: 0.9}
limit: {samples: 50000}
mode: composed
whole: {at_least: 0, share: 0}
timing: {runs: 1}
matrix:
  link.bandwidth: [10 Mbit/s, 50 Mbit/s]
  algorithm: [ring, local-sgd]
repeats: 2
"""
STEP_S = {10e6: 0.4, 50e6: 0.1}


class Quiet:
    def __init__(self):
        self.phases: list[tuple[str, str]] = []

    def cell_phase(self, cell, phase):
        self.phases.append((cell.slug, phase))

    def cell_event(self, cell, rank, event): ...


class Machines:
    """In place of ``run_cell``: simulated trainings, and a list of what was run."""

    def __init__(self):
        self.ran: list[str] = []
        self.statuses: dict[str, str] = {}
        self.limits_s: dict[str, float] = {}
        self.slower: dict[str, float] = {}

    def __call__(self, item, wall_limit_s, observer):
        self.limits_s[item.cell.slug] = wall_limit_s
        observer.cell_phase(item.cell, "training")
        config = item.cell.config
        self.ran.append(item.cell.slug)
        rate = config.link.bandwidth_bps if config.link.shaped else None
        slower = next((factor for name, factor in self.slower.items() if name in item.cell.slug), 1.0)
        machine = Machine(0.05 * slower, STEP_S[rate] * slower if rate else 0.0, waited_s=0.0)
        phases = config.algorithm.build(ALGORITHMS).phases(((64, 10), (10,)))
        steps = config.limit.samples // config.global_batch
        events = train(phases, machine, steps, 16, target_step=100 + config.seed if config.target else None)
        attempt = CellFolder(item.folder).new_attempt() if item.folder.exists() else item.folder / "attempt-1"
        attempt.mkdir(parents=True, exist_ok=True)
        for rank, rank_events in events.items():
            sent = sum(event.payload_bytes or 0 for event in rank_events if isinstance(event, Step))
            last = next(event for event in reversed(rank_events) if isinstance(event, Evaluation))
            rank_events.append(last.model_copy(update={"split": "test", "mean": {"accuracy": 0.85}}))
            end = End(status="done", clock_s=rank_events[-1].clock_s, payload_bytes=sent)
            lines = [json.dumps(event.to_json()) for event in (*rank_events, end)]
            (attempt / f"rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
        write_json_atomic(item.folder / "cell.json", item.cell.to_json())
        found = summarise(events, item.cell.to_json()["config"], Wire(bytes=round(1.1 * 4 * sent), ack_bytes=0))
        kind = next((name for name in self.statuses if name in item.cell.slug), "")
        about = {"id": item.cell.id, "slug": item.cell.slug, "status": self.statuses.get(kind, "done")}
        status = Status.model_validate({**about, "reason": "target", "attempt": 1, **found.to_json()})
        write_record(item.folder / "status.json", status)
        return status


@pytest.fixture
def machines(monkeypatch):
    known = Description(650, ((10, 64), (10,)), 0.001)
    for module in ("composing", "estimate"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [known] * len(configs))
    found = Machines()
    monkeypatch.setattr(composed_run, "run_cell", found)
    return found


@pytest.fixture
def planned(tmp_path):
    def planned(*overrides: str, name: str = "study"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(EXPERIMENT.replace("name: study", f"name: {name}"))
        experiment = load_experiment(file, overrides)
        cells = build_plan(experiment).cells
        return assess(cells, tmp_path / "results", (), ways(experiment, cells), experiment.timing.runs)

    return planned


def run_all(items):
    return [run_item(item, 60.0, Quiet()) for item in items if item.runs]


def test_parts_are_run_once_and_shared(machines, planned, tmp_path) -> None:
    statuses = run_all(planned())
    assert [status.status for status in statuses] == ["done"] * 8
    assert sum("timing" in slug for slug in machines.ran) == 2 * 2
    assert len(machines.ran) == 2 * 2 + 2 * 2
    assert [item.runs for item in planned()] == [False] * 8
    machines.ran.clear()
    run_all(planned(name="another"))
    assert all("timing" in slug for slug in machines.ran)


def test_several_timing_runs_are_made_for_a_cell_and_their_variance_is_recorded(machines, planned, tmp_path) -> None:
    first = run_all(planned()[:1])[0]
    assert "between_share" not in first.to_json()["composed"] and first.composed.num_timing_runs == 1
    item = planned("timing.runs=3")[0]
    assert item.runs and item.why.startswith("timed 1 times so far, 3 times are asked")
    machines.ran.clear()
    machines.slower = {"timing-2": 1.1, "timing-3": 0.95}
    status = run_item(item, 60.0, Quiet())
    assert [slug[-8:] for slug in machines.ran] == ["timing-2", "timing-3"]
    assert status.composed.timing == first.composed.timing == status.composed.timings[0]
    assert len(set(status.composed.timings)) == status.composed.num_timing_runs == 3
    logs = [math.log(factor) for factor in (1.0, 1.1, 0.95)]
    assert status.composed.between_share == pytest.approx(statistics.variance(logs))
    mean = math.exp(statistics.fmean(logs))
    assert status.time_to_target_s == pytest.approx(mean * first.time_to_target_s)
    assert status.step_median_s == pytest.approx(mean * first.step_median_s)
    assert status.wire_bytes == pytest.approx(1.1 * status.payload_bytes)
    record = CellFolder(item.folder).composed
    assert record.between_share == status.composed.between_share
    assert record.ledger.step_mean_s == pytest.approx(statistics.fmean((1.0, 1.1, 0.95)) * 0.45, rel=1e-3)
    assert not planned("timing.runs=3")[0].runs and not planned("timing.runs=2")[0].runs
    row = cell_row(CellFolder(item.folder))
    assert (row["timing_runs"], row["between_share"]) == (3, status.composed.between_share)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_further_seed_of_a_published_study_needs_no_link(machines, planned, tmp_path, runs) -> None:
    """What comes of it is what its own timing runs would have given, which are the same for all seeds."""
    machines.slower = {"timing-2": 1.02, "timing-3": 1.01}
    asked = ("stop=limit", f"timing.runs={runs}")
    with_timing = {status.id: status for status in run_all(planned(*asked, "repeats=3"))}
    curves = {cell.cell.id: cell.composed for cell in iter_cells(tmp_path / "results" / "study")}
    for folder in (".convergence", "study"):
        shutil.move(tmp_path / "results" / folder, tmp_path / folder)
    for cell in iter_cells(tmp_path / "study"):
        if cell.cell.repeat == 2:
            shutil.rmtree(cell.path)
    list(publish(tmp_path / "study", tmp_path / "results" / "published"))
    machines.ran.clear()
    further = run_all(planned(*asked, "repeats=3"))
    assert len(further) == 4 and not any("timing" in slug for slug in machines.ran)
    first = {item.cell.id for item in planned(*asked) if item.cell.repeat == 0}
    for status in further:
        there = with_timing[status.id]
        here = CellFolder(tmp_path / "results" / "study" / f"{status.slug}-{status.id}").composed
        assert [point.clock_s for point in here.curve] == [point.clock_s for point in curves[status.id].curve]
        assert status.composed.timed_with in first
        assert status.composed.timings == there.composed.timings
        assert status.composed.between_share == pytest.approx(there.composed.between_share)
        assert status.composed.interval_s == pytest.approx(there.composed.interval_s)
        assert status.wire_bytes == pytest.approx(there.wire_bytes)
        assert sum(kind.total_s for kind in here.kinds) == pytest.approx(status.time_to_target_s)
        of_all, of_further = (
            {key: value for key, value in one.to_json().items() if key not in ("composed", "files_sha256", "wall_s")}
            for one in (there, status)
        )
        assert of_further == of_all


def test_a_published_seed_that_ended_at_its_target_says_nothing_of_the_steps_behind_it(machines, planned, tmp_path):
    run_all(planned())
    shutil.move(tmp_path / "results" / "study", tmp_path / "study")
    list(publish(tmp_path / "study", tmp_path / "results" / "published"))
    machines.ran.clear()
    run_all(planned("repeats=3"))
    assert sum("timing" in slug for slug in machines.ran) == 4


def test_a_composed_status_says_what_a_whole_run_would_have_said(machines, planned) -> None:
    item = next(item for item in planned() if item.cell.arm == "ring")
    status = run_item(item, 60.0, Quiet())
    step_s = 0.05 + STEP_S[item.cell.config.link.bandwidth_bps]
    assert status.time_to_target_s == pytest.approx(112 * step_s)
    assert status.reason == "target"
    assert status.samples_to_target == 112 * 128
    assert (status.final_metric, status.test_metric) == (0.9, 0.85)
    assert status.payload_bytes == 112 * 4 * 1000
    assert status.wire_bytes == pytest.approx(1.1 * status.payload_bytes)
    assert {"convergence", "timing", "interval_s"} <= status.to_json()["composed"].keys()
    assert json.loads((item.folder / "status.json").read_text()) == json.loads(json.dumps(status.to_json()))
    composed = json.loads((item.folder / "composed.json").read_text())
    assert composed["curve"][-1]["clock_s"] == status.time_to_target_s
    assert composed["curve"][-1]["test_accuracy"] == status.arrivals[0].test_metric == 0.85
    assert composed["ledger"]["num_steps"] > 20


def test_a_convergence_run_has_a_wall_limit_of_its_own(machines, planned) -> None:
    """``limit.time`` ends the cell that needs it, and not the run: 390 steps of 4 ms at the least."""
    item = planned("limit.time=100 ms")[0]
    run_item(item, 1.0, Quiet())
    slug = next(slug for slug in machines.limits_s if "timing" not in slug)
    assert machines.limits_s[slug] > WALL_LIMIT_S + WALL_LIMIT_FACTOR * 0.3


def test_parts_are_no_cells_of_the_results(machines, planned, tmp_path) -> None:
    items = planned()
    run_all(items)
    assert {folder.cell.id for folder in iter_cells(tmp_path / "results")} == {item.cell.id for item in items}


def test_a_composed_cell_counts_as_missing_in_full_mode(machines, planned) -> None:
    run_all(planned())
    full = planned("mode=full")
    assert all(item.runs and "composed so far" in item.why for item in full)
    statuses = run_all(full)
    assert not any(status.composed for status in statuses)
    assert not any(item.runs for item in planned("mode=full"))
    assert not any(item.runs for item in planned())


def test_a_checked_cell_is_composed_and_run_whole(machines, planned) -> None:
    items = planned("whole.share=1")
    statuses = run_all(items)
    for item, status in zip(items, statuses, strict=True):
        assert not status.composed
        composed = json.loads((item.folder / "composed.json").read_text())
        assert composed["time_to_target_s"] == pytest.approx(status.time_to_target_s)


def test_what_becomes_of_a_cell_whose_part_fails(machines, planned) -> None:
    machines.statuses = {"timing": "invalid"}
    items = [item for item in planned() if item.cell.repeat == 0]
    statuses = run_all(items)
    assert {status.status for status in statuses} == {"invalid"}
    assert "timing run" in statuses[0].reason
    assert len({status.undone_part for status in statuses}) == len(items)
    assert not any(item.runs for item in planned() if item.cell.repeat == 0)
    ran = len(machines.ran)
    run_all(
        [item for item in planned() if item.cell.repeat == 1]
    )  # needs the same timing runs: they are not tried again
    assert len(machines.ran) == ran + 2


def test_parts_that_failed_in_an_earlier_run_are_tried_again(machines, planned, monkeypatch) -> None:
    machines.statuses = {"timing": "failed"}
    item = planned()[0]
    assert run_item(item, 60.0, Quiet()).status == "failed"
    machines.statuses = {}
    monkeypatch.setattr(composed_run, "_STARTED_UNIX_S", composed_run._STARTED_UNIX_S + 1e6)
    assert run_item(item, 60.0, Quiet()).status == "done"


def test_a_part_that_another_process_runs_is_waited_for(machines, planned, monkeypatch) -> None:
    item = planned()[0]
    taken = iter([True, False])

    def run_cell(part, wall_limit_s, observer):
        if next(taken, False):
            raise CellTakenError("another")
        return machines(part, wall_limit_s, observer)

    monkeypatch.setattr(composed_run, "run_cell", run_cell)
    observer = Quiet()
    assert run_item(item, 60.0, observer).status == "done"
    assert any("waiting" in phase for _, phase in observer.phases)
    assert {slug for slug, _ in observer.phases} == {item.cell.slug}


def test_the_wait_for_another_process_has_a_limit(machines, planned, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(composed_run, "LOOK_AT_CLAIMS_S", 0.001)
    with claimed(tmp_path / "part"), pytest.raises(UnfitMachineError, match="has been running part"):
        composed_run._wait_for(tmp_path / "part", limit_s=0.01)


def test_a_composed_cell_that_lost_its_files_is_made_from_the_same_parts(machines, planned) -> None:
    item = planned()[0]
    first = run_item(item, 60.0, Quiet())
    shutil.rmtree(item.folder)
    ran = len(machines.ran)
    second = run_item(item, 60.0, Quiet())
    assert len(machines.ran) == ran
    assert second.time_to_target_s == first.time_to_target_s
    assert second.composed == first.composed


RARE, OFTEN = (Phase("rounds", None, 50),), (Phase("rounds", None, 8),)


def test_rounds_weigh_as_much_as_in_the_whole_run() -> None:
    machine = Machine(0.05, 1.0, waited_s=0.0)
    timing = train(OFTEN, machine, timing_steps(OFTEN))
    found = compose(train(RARE, Machine(), 500), [timing], RARE, OFTEN, has_target=False)
    ledger = weighted_ledger(timing, OFTEN, found.kinds)
    assert ledger.step_mean_s == pytest.approx(0.05 + 1.0 / 50)
    assert ledger.step_median_s == pytest.approx(0.05)
    assert sum(ledger.mean_s.values()) == pytest.approx(ledger.step_mean_s)


def test_without_steps_there_is_no_ledger() -> None:
    assert weighted_ledger({0: []}, OFTEN, []) is None
