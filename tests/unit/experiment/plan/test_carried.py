"""What a machine carries, against what published cells took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import assess, build_plan, estimate_cells
from bwbench.experiment.plan.carried import TOLERANCE, HostLoad, not_carried
from bwbench.experiment.plan.described_models import Description
from bwbench.records import iter_cells
from bwbench.results.analysis.cells import setting_of
from bwbench.results.analysis.host_bound import TOLERANCE as OF_RECORDS

EXPERIMENT = """
name: study
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 1 ms}
model: logistic
dataset: digits
compute: {step_time: 40 ms}
target: {accuracy: 0.9}
algorithm: ring
"""
RESULTS = Path(__file__).parents[4] / "results" / "published"


def test_one_tolerance_for_plans_and_records() -> None:
    assert TOLERANCE == OF_RECORDS


def test_nodes_with_processors_of_their_own_are_carried_and_more_are_not() -> None:
    load = HostLoad(compute_s=0.012, step_s=0.04, threads=1, cores=2)
    assert load.is_carried(2) and not load.is_carried(4) and load.most_nodes == 2
    assert load.own_step_s(4) == pytest.approx(0.048, rel=0.01)
    assert HostLoad(0.012, 0.04, 1, 16).most_nodes == 16
    assert HostLoad(0.012, 0.04, 4, 16).most_nodes == 4
    assert HostLoad(0.05, 0.04, 1, 2).most_nodes == 0


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_the_least_step_time_is_just_carried(nodes: int) -> None:
    load = HostLoad(0.012, 0.04, 1, 2)
    least_s = load.least_step_s(nodes)
    assert HostLoad(0.012, 1.001 * least_s, 1, 2).is_carried(nodes)
    assert not HostLoad(0.012, 0.999 * least_s, 1, 2).is_carried(nodes)


def test_published_cells_in_which_nobody_communicates_took_about_as_long() -> None:
    """Within 3 %: 20 loads, of 2, 4 and 8 nodes, with steps of 40 to 250 ms."""
    alone: dict[str, float] = {}
    measured: dict[tuple[str, int, float, float], list[float]] = defaultdict(list)
    for folder in iter_cells(RESULTS):
        status, setting = folder.status, setting_of(folder.cell.config)
        if status is None or status.step_median_s is None or setting.step_time_s is None:
            continue
        optimizer, dilation = folder.cell.config["optimizer"]["name"], folder.cell.config.get("dilation", 1.0)
        about = f"{folder.cell.experiment} {setting.model} {setting.batch_size} {setting.accumulate} {optimizer}"
        if setting.algorithm == "single":
            alone[about] = status.compute_median_s or 0.0
        elif setting.algorithm == "no-communication":
            measured[about, setting.nodes, setting.step_time_s, dilation].append(status.step_median_s)
    checked = 0
    for (about, nodes, step_s, dilation), steps_s in measured.items():
        if about in alone:
            predicted_s = HostLoad(alone[about], step_s, 1, 2, dilation).own_step_s(nodes)
            assert predicted_s == pytest.approx(statistics.median(steps_s), rel=0.03), (about, nodes, step_s)
            checked += 1
    assert checked > 8


@pytest.mark.parametrize(
    ("nodes", "step_time", "cores", "warned"),
    [(4, "40 ms", 2, True), (2, "40 ms", 2, False), (4, "1 s", 2, False), (4, "40 ms", 8, False)],
)
def test_a_plan_warns_of_what_the_machine_does_not_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, step_time: str, cores: int, warned: bool
) -> None:
    known = Description(650, ((10, 64), (10,)), 0.012)
    monkeypatch.setattr("bwbench.experiment.plan.estimate.describe", lambda configs: [known] * len(configs))
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    file = tmp_path / "study.yaml"
    file.write_text(EXPERIMENT)
    cells = build_plan(load_experiment(file, (f"nodes={nodes}", f"compute.step_time={step_time}"))).cells
    found = not_carried(assess(cells, tmp_path / "results"), estimate_cells(cells))
    assert len(found) == warned
    if warned:
        assert "4 nodes on 2 processors" in found[0] and "takes about 47.9 ms" in found[0]
        assert "carries 2 nodes of 40 ms, or 4 nodes of 270 ms" in found[0]


def test_slow_motion_is_advised_where_gradients_take_longer_to_write_than_a_step_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then it is carried; so is what is divided by two."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("bwbench.experiment.config.real_size.machine_bytes", lambda: 24e9)
    learns = "model: logistic\ndataset: digits\ncompute: {step_time: 40 ms}\ntarget: {accuracy: 0.9}\n"
    shapes = "model: {shapes: vgg16}\ncompute: {step_time: 120 ms}\nlimit: {steps: 4}\n"
    file = tmp_path / "study.yaml"
    file.write_text(EXPERIMENT.replace(learns, shapes))

    def noted(*changes: str) -> list[str]:
        cells = build_plan(load_experiment(file, changes)).cells
        return not_carried(assess(cells, tmp_path / "results"), estimate_cells(cells))

    (found,) = noted("dilation=2")
    assert "(compute.step_time); or a dilation above 2. All of it" in found
    assert noted("dilation=4") == noted("dilation=2", "shrink=2") == []


def test_the_short_experiment_of_real_sizes_is_carried_by_two_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("bwbench.experiment.config.real_size.machine_bytes", lambda: 8e9)
    plan = build_plan(load_experiment(Path(__file__).parents[4] / "experiments" / "real-size.yaml"))
    assert not_carried(assess(plan.cells, tmp_path / "results"), estimate_cells(plan.cells)) == []
    assert all(note.startswith("dilation: auto is ") for note in plan.notes) and len(plan.notes) <= 3


def test_nothing_is_declared_so_nothing_is_exceeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Description(650, ((10, 64), (10,)), 0.012)
    monkeypatch.setattr("bwbench.experiment.plan.estimate.describe", lambda configs: [known] * len(configs))
    file = tmp_path / "study.yaml"
    file.write_text(EXPERIMENT.replace("compute: {step_time: 40 ms}\n", ""))
    cells = build_plan(load_experiment(file, ())).cells
    assert not_carried(assess(cells, tmp_path / "results"), estimate_cells(cells)) == []


@pytest.mark.parametrize(
    ("change", "step_time", "helps"), [("", "40 ms", True), ("link=unshaped", "40 ms", False), ("", "10 ms", False)]
)
def test_slow_motion_is_advised_where_it_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, step_time: str, helps: bool
) -> None:
    known = Description(650, ((10, 64), (10,)), 0.012)
    monkeypatch.setattr("bwbench.experiment.plan.estimate.describe", lambda configs: [known] * len(configs))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    file = tmp_path / "study.yaml"
    file.write_text(EXPERIMENT)
    changes = (f"compute.step_time={step_time}", *([change] if change else []))
    cells = build_plan(load_experiment(file, changes)).cells
    (found,) = not_carried(assess(cells, tmp_path / "results"), estimate_cells(cells))
    assert ("dilation: auto" in found) == helps
