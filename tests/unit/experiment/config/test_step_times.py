"""Step times of nodes that differ, as experiments name them: resolved, hashed, refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.step_time import SteadyStepTime, StepTimeTrace
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.step_trace import asked_of, longest_asked_s, read_step_trace
from bwbench.experiment.plan.cell import Cell, build_plan
from bwbench.records.cell_identity import identity, recorded_identity

EXPERIMENT = """\
name: uneven
nodes: 4
link: {bandwidth: 10 Mbit/s}
model: mlp
algorithm: ring
compute: COMPUTE
"""
TRACE = "# a laptop\ntime_s,step_time_ms\n10,30\n15,60\n40,45\n"


def write(folder: Path, compute: str, more: str = "", trace: str = TRACE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "laptop.csv").write_text(trace)
    path = folder / "exp.yaml"
    path.write_text(EXPERIMENT.replace("COMPUTE", compute) + more)
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    return [str(problem) for problem in caught.value.problems]


def test_nodes_that_differ(tmp_path: Path) -> None:
    own = "{2: {step_time: 120 ms}, 3: {step_time: {mean: 60 ms, spread: 50 %}}}"
    (point,) = load_experiment(write(tmp_path, f"{{step_time: 60 ms, overrides: {own}}}")).points
    config = point.config
    assert config.compute.step_times(4) == (
        SteadyStepTime(0.06),
        SteadyStepTime(0.06),
        SteadyStepTime(0.12),
        SteadyStepTime(0.06, 0.5),
    )
    asked = [asked_of(config, rank) for rank in range(4)]
    assert [each(7, 0.0) for each in asked if each] == [0.06, 0.06, 0.12, SteadyStepTime(0.06, 0.5).drawn_s(0, 3, 7)]
    cell = Cell(identity(config), "any", "any", "any", 0, config)
    assert Cell.from_json(cell.to_json(), []).config == config
    assert recorded_identity(cell.to_json()["config"]) == cell.id  # type: ignore[arg-type]


def test_no_cell_without_them_is_another_one(tmp_path: Path) -> None:
    plain, none, zero = (
        load_experiment(write(tmp_path, compute)).points[0].config
        for compute in (
            "{step_time: 60 ms}",
            "{step_time: 60 ms, overrides: {}}",
            "{step_time: {mean: 0.06 s, spread: 0}}",
        )
    )
    assert identity(plain) == identity(none) == identity(zero)
    assert plain.model_dump(mode="json", by_alias=True)["compute"] == {"threads": 1, "step_time": "60 ms"}


def test_each_of_them_is_another_cell(tmp_path: Path) -> None:
    computes = [
        "{step_time: 60 ms}",
        "{step_time: {mean: 60 ms, spread: 20 %}}",
        "{step_time: {mean: 60 ms, spread: 0.3}}",
        "{step_time: {trace: laptop.csv}}",
        "{step_time: 60 ms, overrides: {1: {step_time: 120 ms}}}",
        "{step_time: 60 ms, overrides: {2: {step_time: 120 ms}}}",
        "{step_time: 60 ms, overrides: {2: {step_time: {trace: laptop.csv}}}}",
    ]
    assert len({identity(load_experiment(write(tmp_path, text)).points[0].config) for text in computes}) == 7


@pytest.mark.parametrize(
    "compute",
    ["{step_time: {trace: laptop.csv}}", "{step_time: 60 ms, overrides: {1: {step_time: {trace: laptop.csv}}}}"],
)
def test_a_trace_lies_beside_the_file_and_counts_by_its_content(tmp_path: Path, compute: str) -> None:
    (here,) = load_experiment(write(tmp_path / "a", compute)).points
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (there,) = load_experiment(tmp_path / "b" / "exp.yaml").points
    assert here.config.compute != there.config.compute
    assert identity(here.config) == identity(there.config)
    (tmp_path / "b" / "laptop.csv").write_text(TRACE.replace("45", "46"))
    (changed,) = load_experiment(tmp_path / "b" / "exp.yaml").points
    assert identity(changed.config) != identity(here.config)
    with pytest.raises(ConfigError, match="has changed since it was planned"):
        asked_of(there.config, 1)


def test_a_trace_is_stepwise_begins_with_its_first_line_and_holds_its_last(tmp_path: Path) -> None:
    (point,) = load_experiment(write(tmp_path, "{step_time: {trace: laptop.csv}}")).points
    asked = asked_of(point.config, 3)
    assert asked is not None
    found = [asked(1, clock_s) for clock_s in (0.0, 4.999, 5.0, 29.9, 30.0, 1e6)]
    assert found == [0.03, 0.03, 0.06, 0.06, 0.045, 0.045]
    assert longest_asked_s(point.config.compute) == 0.06


def test_an_axis_has_readable_names(tmp_path: Path) -> None:
    values = "[60 ms, {mean: 60 ms, spread: 20 %}, {trace: laptop.csv}]"
    plan = build_plan(load_experiment(write(tmp_path, "{}", f"matrix:\n  compute.step_time: {values}\n")))
    assert [cell.slug for cell in plan.cells] == [
        "ring-step_time60ms-s0", "ring-step_timemean60ms-spread20-s0", "ring-step_timetracelaptop.csv-s0",
    ]  # fmt: skip


def test_one_node_alone_is_the_first(tmp_path: Path) -> None:
    more = "matrix:\n  algorithm: [ring, single]\n"
    own = "{0: {step_time: 90 ms}, 3: {step_time: 120 ms}}"
    ring, single = load_experiment(write(tmp_path, f"{{step_time: 60 ms, overrides: {own}}}", more)).points
    assert single.config.compute.step_times(1) == ring.config.compute.step_times(4)[:1] == (SteadyStepTime(0.09),)
    assert set(single.config.compute.overrides) == {0}


@pytest.mark.parametrize(
    ("compute", "more", "said"),
    [
        ("{step_time: 60 ms, overrides: {4: {step_time: 1 s}}}", "", "overrides: there is no node 4; nodes are"),
        ("{step_time: 60 ms, overrides: {-1: {step_time: 1 s}}}", "", "compute.overrides"),
        ("{step_time: 60 ms, overrides: {2: {}}}", "", "'step_time' is missing"),
        ("{step_time: 60 ms, overrides: {2: 120 ms}}", "", "'120 ms' is not a mapping"),
        ("{step_time: 60 ms, overrides: {2: {threads: 2}}}", "", "unknown key 'threads'"),
        ("{overrides: {2: {step_time: 1 s}}}", "", "nodes 0, 1, 3 have no step time"),
        ("{step_time: {spread: 20 %}}", "", "'mean' is missing"),
        ("{step_time: {mean: 60 ms, spread: -1 %}}", "", "compute.step_time.spread: '-1 %' is out of range"),
        ("{overrides: {0: {step_time: 1 s}}}", "", "nodes 1 to 3 have no step time"),
        ("{step_time: {trace: lapto.csv}}", "", "compute.step_time: trace "),
        ("{step_time: {trace: lapto.csv}}", "", "no such file. Did you mean"),
        ("{step_time: 1 s, overrides: {2: {step_time: {trace: lapto.csv}}}}", "", "overrides.2.step_time: trace "),
        ("{step_time: {trace: laptop.csv}}", "launcher: external\n", "launcher 'external' trains on others"),
        ("{step_time: {mean: 60 ms, spread: 1 %}, virtual: true}", "", "no step_time can be kept"),
        ("{step_time: {trace: laptop.csv}}", "mode: composed\n", "compute.step_time changes over time (trace)"),
    ],
)  # fmt: skip
def test_mistakes_have_a_line(tmp_path: Path, compute: str, more: str, said: str) -> None:
    found = problems_of(write(tmp_path, compute, more))
    assert any(said in text for text in found), found
    assert all("exp.yaml:" in text for text in found)


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "holds comments only"),
        ("time_s,step_time_ms\n", "no values"),
        ("0,60\n1,70\n", "laptop.csv:1: no column is a time"),
        ("time_s\n0\n", "does not name two columns"),
        ("time,step_time_ms\n0,60\n", "'time' does not say its unit"),
        ("time_s,step_time\n0,60\n", "'step_time' does not say its unit"),
        ("time_s,step_time_ms\n0,60\n5,70\n5,80\n", "laptop.csv:4: time_s 5 does not rise"),
        ("time_s,step_time_ms\n0,60\n5\n", "laptop.csv:3: 1 column(s)"),
        ("time_s,step_time_ms\n0,fast\n", "laptop.csv:2: step_time_ms 'fast' is not a number"),
        ("time_s,step_time_ms\n0,0\n", "laptop.csv:2: step_time_ms 0 is out of range"),
        ("time_s,step_time_ms\n0,-3\n", "laptop.csv:2: step_time_ms -3 is out of range"),
    ],
)
def test_a_trace_that_holds_something_else(tmp_path: Path, trace: str, said: str) -> None:
    (found,) = problems_of(write(tmp_path, "{step_time: {trace: laptop.csv}}", trace=trace))
    assert said in found and "exp.yaml:6: compute.step_time: " in found


def test_columns_stand_in_any_order_and_in_any_unit(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("step_s;minutes\n0.03;0\n0.06;2\n")
    curve = read_step_trace(StepTimeTrace(str(tmp_path / "t.csv")))
    assert (curve.stamps_s, curve.step_times_s) == ((0.0, 120.0), (0.03, 0.06))


@pytest.mark.parametrize(
    ("compute", "algorithm", "composed"),
    [
        ("{step_time: {mean: 60 ms, spread: 20 %}}", "ring", True),
        ("{step_time: 60 ms, overrides: {1: {step_time: 1 s}}}", "ring", True),
        ("{step_time: 60 ms}", "{local-sgd: {period: 64}}", True),
        ("{step_time: {mean: 60 ms, spread: 20 %}}", "{local-sgd: {period: 4}}", True),
        ("{step_time: {mean: 60 ms, spread: 20 %}}", "{local-sgd: {period: 64}}", False),
        ("{step_time: 60 ms, overrides: {1: {step_time: 1 s}}}", "{local-sgd: {period: 64}}", False),
    ],
)  # fmt: skip
def test_rounds_that_timing_runs_hurry_are_not_composed_where_nodes_drift_apart(
    tmp_path: Path, compute: str, algorithm: str, composed: bool
) -> None:
    path = write(tmp_path, compute, f"mode: composed\nmatrix: {{algorithm: [{algorithm}]}}\n")
    if composed:
        load_experiment(path)
    else:
        (found,) = problems_of(path)
        assert "steps between two rounds" in found
