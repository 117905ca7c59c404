"""Tables and notes from result folders."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.records import iter_cells
from bwbench.records.schema import PARTS
from bwbench.results.analysis.results import Reader, arrivals_over_bandwidths, load_results, read_cells, regrouped


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_time_table_has_a_row_an_arm_and_bandwidth_with_paired_speedups(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "threshold", "single"), bandwidths_mbps=(3.0, 10.0)))
    (results,) = load_results(tmp_path)
    times = results.times.set_index(["arm", "bandwidth_bps"])
    assert len(times) == 5
    single = times.xs("single", level="arm").iloc[0]
    assert single["speedup"] == pytest.approx(1.0)
    for bandwidth in (3e6, 1e7):
        row = times.loc[("threshold", bandwidth)]
        assert row["num"] == 3 and row["low_s"] < row["time_s"] < row["high_s"]
        assert row["speedup"] == pytest.approx(single["time_s"] / row["time_s"])
        assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert times.loc[("ring", 3e6), "time_s"] > times.loc[("ring", 1e7), "time_s"]


def test_censored_repeats_count_as_infinite(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "single"), bandwidths_mbps=(1.0,), limit_s=10.0))
    (results,) = load_results(tmp_path)
    ring = results.times.set_index("arm").loc["ring"]
    assert math.isinf(ring["time_s"]) and ring["at_least_s"] >= 10.0
    assert math.isnan(ring["low_s"]) and ring["num_censored"] == 3
    assert ring["speedup_bound"] == "<"


def test_cells_that_are_not_done_are_left_out_and_named(tmp_path: Path) -> None:
    statuses = {("ring", 0): ("failed", "rank 1 died"), ("ring", 1): ("invalid", "link"), ("ddp", 2): ("missing", ""),
                ("ddp", 0): ("unfinished", "")}  # fmt: skip
    write_study(tmp_path, Study(arms=("ring", "ddp"), statuses=statuses, limit_s=2.0))
    (results,) = load_results(tmp_path)
    assert len(results.cells) == 2
    (note,) = results.notes
    for words in ("1 failed (ring #0)", "1 invalid (ring #1)", "1 not run yet (ddp #2)", "1 unfinished (ddp #0)"):
        assert words in note


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "other"}, "2 hosts (bench-1, other)"),
        ({"git": {"commit": "f" * 40, "dirty": True}}, "2 commits (0123456789, ffffffffff+)"),
        ({"kernel": "5.10"}, "2 kernels"),
    ],
)
def test_unlike_hosts_and_commits_are_said(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    first, *_ = write_study(tmp_path, Study(arms=("ring",), repeats=2, limit_s=1.0))
    rewrite(first / "attempt-1" / "environment.json", **changes)
    (results,) = load_results(tmp_path)
    assert any(words in note for note in results.notes)


@pytest.mark.parametrize(("arm", "is_said"), [("ring-fp16", True), ("ring", False)])
def test_codecs_that_ran_in_unlike_ways_are_said_where_there_are_any(tmp_path: Path, arm: str, is_said: bool) -> None:
    study = Study(arms=(arm,), repeats=3, limit_s=1.0, environment={"compiled_codecs": True})
    first, second, _ = write_study(tmp_path, study)
    rewrite(first / "attempt-1" / "environment.json", compiled_codecs=False)
    rewrite(second / "attempt-1" / "environment.json", compiled_codecs=None)  # of an older version, which did not say
    (results,) = load_results(tmp_path)
    assert any("2 ways of codecs (compiled, in Python)" in note for note in results.notes) is is_said


def test_like_hosts_need_no_note(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=2, limit_s=1.0))
    assert load_results(tmp_path)[0].notes == []


def test_curves_and_ledgers_have_a_row_an_evaluation_and_a_row_a_cell(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "single"), repeats=2, limit_s=3.0))
    (results,) = load_results(tmp_path)
    assert set(results.curves["arm"]) == {"ring", "single"} and (results.curves["clock_s"] >= 0).all()
    assert {"accuracy", "loss", "target_met"} <= set(results.curves.columns)
    ledger = results.ledger
    assert len(ledger) == 4
    assert ledger[list(PARTS)].sum(axis=1).to_numpy() == pytest.approx(ledger["step_s"].to_numpy(), rel=0.02)


def test_one_bandwidth_at_a_time(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "single"), repeats=1, bandwidths_mbps=(1.0, 10.0), limit_s=1.0))
    (results,) = load_results(tmp_path)
    parts = regrouped([results], frozenset())
    assert [part.label for part in parts] == ["1Mbps", "10Mbps"]
    assert all(sorted(part.cells["arm"]) == ["ring", "single"] for part in parts)


def test_experiments_are_not_mixed(tmp_path: Path) -> None:
    write_study(tmp_path, Study("first", arms=("ring",), repeats=1, limit_s=1.0))
    write_study(tmp_path, Study("second", arms=("ring",), repeats=1, limit_s=1.0))
    assert [results.experiment for results in load_results(tmp_path)] == ["first", "second"]
    assert [results.experiment for results in load_results(tmp_path / "second")] == ["second"]


def test_cells_of_components_that_are_not_installed_can_be_read(tmp_path: Path) -> None:
    study = Study(arms=("my-codec",), repeats=1, limit_s=1.0, extra={"model": {"name": "my-model", "depth": 3}})
    write_study(tmp_path, study)
    (results,) = load_results(tmp_path)
    assert results.cells.iloc[0]["model"] == "my-model"


@pytest.mark.parametrize("name", ["cell.json", "status.json", "attempt-1/link.json", "attempt-1/rank2.jsonl"])
def test_a_broken_cell_is_left_out_and_said(tmp_path: Path, name: str) -> None:
    first, *others = write_study(tmp_path, Study(arms=("ring",), repeats=3, limit_s=1.0))
    (first / name).write_text("{\n{}\n")
    cells, refused = read_cells(iter_cells(tmp_path), Reader())
    assert [cell.path for cell in cells] == sorted(others)
    assert len(refused) == 1 and name in str(refused[0])
    (results,) = load_results(tmp_path)
    assert len(results.cells) == 2


def test_without_target_there_are_no_times(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, limit_s=1.0, target=None))
    assert load_results(tmp_path)[0].times.empty


def test_an_arm_that_no_link_concerns_counts_each_seed_once(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "no-communication"), repeats=2, bandwidths_mbps=(1.0, 10.0), limit_s=2.0))
    (results,) = load_results(tmp_path)
    free = results.cells[results.cells["arm"] == "no-communication"]
    arrivals = arrivals_over_bandwidths(free)
    assert len(free) == 4 and sorted(arrivals) == [0, 1]
    times = free[free["seed"] == 0]["time_to_target_s"]
    assert times.min() <= arrivals[0].or_infinity <= times.max()


def test_times_have_a_row_for_each_latency_where_a_group_spans_them(tmp_path: Path) -> None:
    for latency in ("2.5 ms", "20 ms"):
        write_study(tmp_path, Study(arms=("ring", "single"), repeats=2, latency=latency, limit_s=2.0))
    results = load_results(tmp_path)
    assert len(results) == 2 and "rtt_s" not in results[0].times.columns
    (across,) = regrouped(results, frozenset({"link.bandwidth", "link.latency"}))
    ring = across.times[across.times["arm"] == "ring"]
    assert sorted(ring["rtt_s"]) == [0.005, 0.04] and (ring["num"] == 2).all()
    assert len(across.times[across.times["arm"] == "single"]) == 1


def test_one_node_alone_is_paired_with_its_own_batch(tmp_path: Path) -> None:
    for size in (8, 32):
        study = Study(arms=("ring", "single"), repeats=1, extra={"batch_size": size}, samples_scale=2000.0)
        write_study(tmp_path, study)
    (across,) = regrouped(load_results(tmp_path), frozenset({"batch_size"}))
    single = across.cells[across.cells["arm"] == "single"].set_index("batch_size")["time_to_target_s"]
    ring = across.times[across.times["arm"] == "ring"].set_index("batch_size")
    for size in (8, 32):
        assert ring.loc[size, "speedup"] == pytest.approx(single[size] / ring.loc[size, "time_s"])
