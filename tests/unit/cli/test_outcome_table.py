"""The table at the end of a run: short with many cells, and honest about where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bwbench.cli import carry_out, outcome_table
from bwbench.cli.carry_out import print_outcome
from bwbench.cli.outcome_table import outcome_lines
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records import cell_at
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.account import Tally
from tests.unit.running.sweep.studies import write_study

TARGET = "target: {accuracy: 0.9}\n"


def study(folder: Path, arms: str = "ring, single") -> list[PlannedCell]:
    return planned(write_study(folder, arms=arms), folder)


def planned(file: Path, folder: Path) -> list[PlannedCell]:
    file.write_text(TARGET + file.read_text())
    return list(plan_sweep([file], folder / "results").selected)


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
    if composed := content.get("composed"):
        (item.folder / "composed.json").write_text(json.dumps({"id": item.cell.id, **composed}))


def printed(items: list[PlannedCell], capsys: pytest.CaptureFixture[str], **earlier: int) -> tuple[list[str], str]:
    """The rows of all links, and what is said on stderr."""
    print_outcome(items, Tally(earlier=earlier))
    said = capsys.readouterr()
    arms = {arm for item in items for arm in (item.cell.arm, item.cell.arm.partition("(")[0])}
    return [line for line in said.out.splitlines() if line.partition(" ")[0] in arms], said.err


def test_a_heading_a_link_and_below_it_the_fastest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = study(tmp_path, "ring, ddp, single")
    for item in items:
        slow = item.cell.config.link.shaped and item.cell.config.link.bottleneck_bps == 1e6
        record(item, time_to_target_s={"ring": 3.0, "ddp": 2.0, "single": 5.0}[item.cell.arm] * (3 if slow else 1))
    print_outcome(items, Tally())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "study: logistic on digits, 2 nodes, batch 32 a node, target accuracy 0.9"
    headings = [number for number, line in enumerate(lines) if line.endswith("RTT 5 ms, switched")]
    assert [lines[number].partition(",")[0] for number in headings] == ["1 Mbit/s", "10 Mbit/s"]
    assert [line.split()[0] for line in lines[headings[0] + 2 : headings[0] + 5]] == ["single", "ddp", "ring"]
    assert [line.split()[0] for line in lines[headings[1] + 2 : headings[1] + 5]] == ["ddp", "ring", "single"]
    header = lines[headings[0] + 1]
    assert header == lines[headings[1] + 1] and header.split()[-1] == "n"
    assert all(line.split()[-1] == "2" for line in lines[headings[0] + 2 : headings[0] + 5])


def test_more_rows_than_anybody_reads_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = study(tmp_path, "ring, ddp")
    for number, item in enumerate(items):
        record(item, time_to_target_s=10.0 - number, metric="accuracy")
    monkeypatch.setattr(outcome_table, "MAX_ROWS", 3)
    print_outcome(items, Tally())
    said = capsys.readouterr().out
    assert "and 1 more rows; `bwbench status`" in said and sum("‡" in line for line in said.splitlines()) == 3


def test_repeats_are_taken_together_and_one_says_nothing_about_chance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = study(tmp_path, "ring, ddp")
    for item in items:
        record(item, time_to_target_s=2.0 + item.cell.repeat)
    rows, said = printed(items, capsys)
    assert len(rows) == 4 and all("2.45 s (" in row and row.split()[-1] == "2" for row in rows)
    assert "one repeat says nothing about chance" not in said
    alone = [item for item in items if item.cell.repeat == 0 or item.cell.arm == "ring"]
    rows, said = printed(alone, capsys)
    assert "note: n = 1: one repeat says nothing about chance." in said
    assert {(row.split()[0], row.split()[-2], row.split()[-1]) for row in rows} == {
        ("ring", "2", "0-1"),
        ("ddp", "1", "0"),
    }


def test_the_goodput_of_a_link_is_that_of_one_flow_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = [item for item in study(tmp_path, "ring, ddp") if item.cell.repeat == 0]
    for number, item in enumerate(items):
        record(item)
        pair = {"asked_goodput_bps": 486_100.0, "achieved_goodput_bps": 486_000.0 + 100 * (number % 2)}
        measured = {"pairs": [{"src": 0, "dst": 1, **pair}, {"src": 1, "dst": 0, **pair}]}
        measured |= {"alone_asked_goodput_bps": 4.861e6, "alone_achieved_goodput_bps": 4.86e6}
        link = {"schema": 1, "requested": {}, "backend": "relay", "achieved_before": measured}
        (item.folder / "attempt-1" / "link.json").write_text(json.dumps(link))
    print_outcome(items, Tally())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("goodput")]
    assert set(lines) == {
        "goodput of one of 2 flows, all sending: 486.1 kbit/s expected, 486 to 486.1 kbit/s achieved; "
        "of one alone: 4.861 Mbit/s expected, 4.86 Mbit/s achieved"
    }


def test_flows_on_one_air_share_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_study(tmp_path, repeats=1, arms="ring")
    file.write_text(file.read_text().replace("latency: 2.5 ms", "latency: 2.5 ms, medium: shared"))
    for item in (items := planned(file, tmp_path)):
        record(item)
        pairs = [{"src": 0, "dst": 1, "asked_goodput_bps": 486_100.0, "achieved_goodput_bps": 486_000.0}]
        link = {"schema": 1, "requested": {}, "backend": "relay", "achieved_before": {"pairs": pairs}}
        (item.folder / "attempt-1" / "link.json").write_text(json.dumps(link))
    print_outcome(items, Tally())
    assert "goodput of one of 1 flows, all sending over the shared air: 486.1 kbit/s exp" in capsys.readouterr().out


def test_marks_say_how_a_time_was_come_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = study(tmp_path, "ring, ddp")
    for item in items:
        record(item, composed={"timing": "a", "convergence": "b"} if item.cell.arm == "ddp" else None)
    rows, said = printed(items, capsys)
    assert {row.split()[0]: "2 s" in row and row.split(") ")[-1].split()[0] for row in rows} == {
        "ring": "‡",
        "ddp": "‡†",
    }
    assert "‡ First crossing" in said and "† Composed of a run without the link" in said


def test_a_narrow_terminal_gets_fewer_columns_and_no_wrapped_name(tmp_path: Path) -> None:
    items = study(tmp_path, "low-precision-decentralized, ring")
    for item in items:
        record(item, samples_to_target=640, final_metric=0.9, payload_bytes=64_000, steps=5)
    folders = [cell_at(item.folder) for item in items]
    lines = list(outcome_lines(folders, {}, width=90))
    assert max(map(len, lines)) <= 90 and "(no room for wire/step" in lines[-1]
    assert any(line.startswith("low-precision-decentralized  ") for line in lines)
    wide = list(outcome_lines(folders, {}, width=200))
    assert "wire/step" in wide[3] and "no room" not in wide[-1]


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


def test_single_is_compared_with_and_a_target_met_at_once_has_no_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = study(tmp_path)
    for item in items:
        at_once = item.cell.config.link.shaped and item.cell.config.link.bottleneck_bps == 1e6 and item.cell.repeat == 0
        record(item, time_to_target_s=(0.0 if at_once else 4.0) if item.cell.arm == "ring" else 6.0)
    rows, _ = printed(items, capsys)
    assert sorted("1.50x" in row for row in rows if row.startswith("ring")) == [False, True]
    assert all("1.00x" in row for row in rows if row.startswith("single"))


def test_nodes_that_differ_and_slow_motion_are_said_and_compared_with_single(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, repeats=1, arms="ring, single")
    path.write_text(
        f"compute: {{step_time: 60 ms, overrides: {{1: {{step_time: 90 ms}}}}}}\ndilation: 4\n{path.read_text()}"
    )
    items = planned(path, tmp_path)
    for item in items:
        record(item, time_to_target_s=2.0 if item.cell.arm == "ring" else 3.0)
    print_outcome(items, Tally())
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.endswith("batch 32 a node, dilation 4, step 60 ms, node 1: 90 ms, target accuracy 0.9")
    rings = [row for row in rows if row.startswith("ring")]
    assert len(rings) == 2 and all("1.50x" in row for row in rings)


def test_times_of_virtual_nodes_are_not_shown_and_their_samples_order_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, repeats=1, arms="ring, ddp")
    items = planned(path, tmp_path)
    for item in items:
        is_ring = item.cell.arm == "ring"
        record(item, virtual=True, time_to_target_s=7.0 if is_ring else 9.0, samples_to_target=200 if is_ring else 100)
    print_outcome(items, Tally())
    out, said = capsys.readouterr()
    rows = [line for line in out.splitlines() if line.startswith(("ring", "ddp"))]
    assert [row.split()[:2] for row in rows] == [["ddp", "100"], ["ring", "200"]] * 2
    assert "time to target" not in out and "7 s" not in out and "9 s" not in out
    assert "their times say nothing" in said and "‡" not in said


def test_without_a_target_it_is_said_where_samples_a_second_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, arms, baseline in (("one", "ring, single", "single"), ("two", "threshold, ring", "ring")):
        file = write_study(tmp_path, name, repeats=1, arms=arms)
        items = list(plan_sweep([file], tmp_path / "results").selected)
        for item in items:
            steps = {"samples": 640, "steps": 10, "training_clock_s": 8.0 if item.cell.arm == baseline else 4.0}
            record(item, reason="samples", time_to_target_s=None, **steps)
        rows, said = printed(items, capsys)
        assert f"beside {baseline}: `bwbench compare {tmp_path}/results/{name} --baseline {baseline}`" in said
        assert [row.split()[0] == baseline for row in rows[:2]] == [False, True]
        assert rows[0].split()[1:4] == ["400", "ms", "160"] and rows[1].split()[1:4] == ["800", "ms", "80"]
    items = study(tmp_path)
    for item in items:
        record(item)
    assert "samples a second" not in printed(items, capsys)[1]


def test_rates_of_a_matrix_are_compared_each_with_its_like_and_tuned_ones_across(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, repeats=1, arms="ring, single")
    path.write_text(path.read_text() + "  optimizer.lr: [0.1, 0.2]\n")
    items = planned(path, tmp_path)

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
    items = planned(file, tmp_path)
    for item in items:
        record(item)
    print_outcome(items, Tally())
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("method"))
    assert header.split()[:3] == ["method", "nodes", "batch_size"]
    assert sorted({tuple(row.split()[1:3]) for row in lines if row.startswith("ring  ")}) == [
        ("2", "16"),
        ("2", "32"),
        ("4", "8"),
    ]


@pytest.mark.parametrize("axis, column", [("dilation: [1, 4]", "dilation"), ("accumulate: [1, 2]", "accumulate")])
def test_whatever_rows_of_one_name_differ_in_has_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], axis: str, column: str
) -> None:
    file = write_study(tmp_path, repeats=1, arms="ring")
    file.write_text(f"compute: {{step_time: 60 ms}}\n{file.read_text()}  {axis}\n")
    items = planned(file, tmp_path)
    for item in items:
        record(item)
    print_outcome(items, Tally())
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("method"))
    assert header.split()[1] == column
    assert sorted(row.split()[1] for row in lines if row.startswith("ring ")) == sorted(axis[-5:-1].split(", ") * 2)
