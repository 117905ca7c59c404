"""The table at the end of a run: short with many cells, and honest about where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bwbench.cli import carry_out
from bwbench.cli.carry_out import print_outcome
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.account import Tally
from tests.unit.running.sweep.studies import write_study


def study(folder: Path, arms: str = "ring, single") -> list[PlannedCell]:
    return list(plan_sweep([write_study(folder, arms=arms)], folder / "results").selected)


def record(item: PlannedCell, host: str = "a", *, virtual: bool = False, **status: Any) -> None:
    attempt = item.folder / "attempt-1"
    attempt.mkdir(parents=True)
    (item.folder / "cell.json").write_text(json.dumps(item.cell.to_json()))
    (attempt / "environment.json").write_text(json.dumps({"host": host, "kernel": "6", "virtual": virtual}))
    content = {
        "id": item.cell.id,
        "slug": item.cell.slug,
        "status": "done",
        "reason": "target",
        "attempt": 1,
        "time_to_target_s": 2.0,
        **status,
    }
    (item.folder / "status.json").write_text(json.dumps(content))


def printed(items: list[PlannedCell], capsys: pytest.CaptureFixture[str], **earlier: int) -> tuple[list[str], str]:
    print_outcome(items, Tally(earlier=earlier))
    said = capsys.readouterr()
    return said.out.splitlines()[1:], said.err


def test_the_fastest_are_shown_and_the_others_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = study(tmp_path, "ring, ddp")
    for number, item in enumerate(items):
        record(item, time_to_target_s=10.0 - number)
    monkeypatch.setattr(carry_out, "MAX_ROWS", 3)
    rows, said = printed(items, capsys)
    assert len(rows) == 3 and "3 s" in rows[0] and "and 5 slower ones" in said


def test_of_many_that_are_not_done_some_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = study(tmp_path)
    for item in items:
        record(item, status="failed", reason="boom")
    monkeypatch.setattr(carry_out, "MOST_REASONS", 2)
    rows, said = printed(items, capsys, failed=3, invalid=1)
    assert not rows and said.count("boom") == 2 and f"{len(items) - 2} more" in said
    assert "4 cell(s)" in said and "--retry failed --retry invalid" in said


@pytest.mark.parametrize("hosts, mixed", [("aaaa", False), ("abab", True)])
def test_unlike_hosts_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: str, mixed: bool) -> None:
    items = study(tmp_path)
    for item, host in zip(items, hosts, strict=False):
        record(item, host)
    assert ("Mixed: 2 hosts (a, b)" in printed(items, capsys)[1]) == mixed


def test_single_is_compared_with_by_seed_and_a_target_met_at_once_has_no_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = study(tmp_path)
    for item in items:
        first = item.cell.repeat == 0
        record(item, time_to_target_s=(0.0 if first else 4.0) if item.cell.arm == "ring" else 6.0)
    rows, _ = printed(items, capsys)
    rings = {"seed 1" in row: row for row in rows if row.startswith("ring")}
    assert "1.50x" in rings[True] and "x " not in rings[False].replace("Mbit/s", "")


def test_nodes_that_differ_and_slow_motion_are_compared_with_single(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, repeats=1, arms="ring, single")
    path.write_text(
        f"compute: {{step_time: 60 ms, overrides: {{1: {{step_time: 90 ms}}}}}}\ndilation: 4\n{path.read_text()}"
    )
    items = list(plan_sweep([path], tmp_path / "results").selected)
    for item in items:
        record(item, time_to_target_s=2.0 if item.cell.arm == "ring" else 3.0)
    rows, _ = printed(items, capsys)
    assert len(rows) == 3 and all("1.50x" in row for row in rows if row.startswith("ring"))


def test_times_of_virtual_nodes_are_not_shown_and_their_samples_order_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, repeats=1, arms="ring, ddp")
    items = list(plan_sweep([path], tmp_path / "results").selected)
    for item in items:
        is_ring = item.cell.arm == "ring"
        record(item, virtual=True, time_to_target_s=7.0 if is_ring else 9.0, samples_to_target=200 if is_ring else 100)
    rows, said = printed(items, capsys)
    assert [row.split()[0] for row in rows] == ["ddp", "ddp", "ring", "ring"]
    assert all("virtual" in row and "7 s" not in row and "9 s" not in row for row in rows)
    assert "their times say nothing" in said and "‡" not in said


def test_rates_of_a_matrix_are_compared_each_with_its_like_and_tuned_ones_across(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, repeats=1, arms="ring, single")
    path.write_text(path.read_text() + "  optimizer.lr: [0.1, 0.2]\n")
    items = list(plan_sweep([path], tmp_path / "results").selected)

    def rate(item: PlannedCell) -> float:
        return float(item.cell.config.optimizer.to_json()["lr"])

    def ratios(kept: list[PlannedCell]) -> list[str]:
        rows, _ = printed(kept, capsys)
        return sorted(row.partition("x ")[0].split()[-1] for row in rows if row.startswith("ring"))

    for item in items:
        record(item, time_to_target_s=1.0 if item.cell.arm == "ring" else 100 * rate(item))
    assert ratios(items) == ["10.00", "10.00", "20.00", "20.00"]
    tuned = [item for item in items if rate(item) == (0.1 if item.cell.arm == "ring" else 0.2)]
    assert ratios(tuned) == ["20.00", "20.00"]


def test_what_tells_cells_of_one_method_on_one_link_apart_has_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_study(tmp_path, arms="ring, single")
    file.write_text(file.read_text().replace("nodes: 2\n", "") + "  nodes, batch_size: [[2, 16], [4, 8], [2, 32]]\n")
    items = list(plan_sweep([file], tmp_path / "results").selected)
    for item in items:
        record(item)
    print_outcome(items, Tally())
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["method", "nodes", "batch_size", "link"]
    assert sorted({tuple(row.split()[1:3]) for row in rows if row.startswith("ring  ")}) == [
        ("2", "16"),
        ("2", "32"),
        ("4", "8"),
    ]
