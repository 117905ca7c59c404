"""compare and export on result folders."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import EXIT_USER_INPUT, ConfigError
from bwbench.cli.comparison_text import comparison_lines
from bwbench.cli.result_commands import TableFormat, TableRows, compare, export
from bwbench.records import iter_cells
from bwbench.results.analysis.comparison import compare_cells

SWEEP = Study(
    "sweep", arms=("ring", "threshold", "single", "no-communication"), repeats=3, bandwidths_mbps=(3.0, 10.0, 100.0),
    limit_s=60.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write_study(folder, SWEEP)
    return folder


def compared(
    folder: Path, capsys: pytest.CaptureFixture[str], baseline: str = "ring", by: str = "link.bandwidth"
) -> dict[str, list[dict[str, object]]]:
    capsys.readouterr()
    assert compare(folder, baseline, by, json=True) == 0
    found: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return found


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_rows_have_what_the_contract_says(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = compared(sweep, capsys)["rows"]
    assert len(rows) == 3 * 3  # bandwidths x arms but the baseline
    for row in rows:
        assert {"group", "algorithm", "baseline", "ratio", "ratio_low", "ratio_high", "n", "num_censored",
                "composed"} <= row.keys()  # fmt: skip
        assert row["baseline"] == "ring" and row["n"] == 3 and row["composed"] is False
    place = {(row["group"]["link.bandwidth"], row["algorithm"]): row for row in rows}  # type: ignore[index]
    row = place["10 Mbit/s", "threshold"]
    assert row["ratio_low"] < row["ratio"] < row["ratio_high"]  # type: ignore[operator]
    assert row["ratio"] == pytest.approx(row["baseline_time_s"] / row["time_s"])  # type: ignore[operator]


def test_every_link_has_its_answer_first(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(sweep, capsys)["answers"]
    rates = ("3 Mbit/s", "10 Mbit/s", "100 Mbit/s")
    assert [row["group"] for row in found] == [{"link.bandwidth": bps} for bps in rates]
    for row in found:
        assert str(row["text"]).startswith("Four nodes, ") and "n = 3]" in str(row["text"]) and row["n"] == 3


def test_swapped_baselines_give_inverse_ratios(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {(r["group"]["link.bandwidth"], r["algorithm"]): r for r in compared(sweep, capsys)["rows"]}  # type: ignore[index]
    other = {r["group"]["link.bandwidth"]: r for r in compared(sweep, capsys, "threshold")["rows"]  # type: ignore[index]
             if r["algorithm"] == "ring"}  # fmt: skip
    for bandwidth in ("10 Mbit/s", "100 Mbit/s"):
        there, back = one[bandwidth, "threshold"], other[bandwidth]
        assert there["ratio"] * back["ratio"] == pytest.approx(1.0)  # type: ignore[operator]
        assert there["ratio_low"] * back["ratio_high"] == pytest.approx(1.0)  # type: ignore[operator]


def test_crossovers_are_given_without_dimension_too(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["algorithm"]: row for row in compared(sweep, capsys, "single")["crossovers"]}
    row = rows["threshold"]
    assert row["kind"] == "one"
    (one,) = row["found"]  # type: ignore[misc]
    assert 3e6 < one["low_bps"] < one["bandwidth_bps"] < one["high_bps"] < 1e8
    expected = 8 * row["gradient_bytes"] / (one["bandwidth_bps"] * row["compute_s"])  # type: ignore[operator]
    assert one["s_over_bt"] == pytest.approx(expected, rel=1e-4)
    assert one["s_over_bt_low"] < one["s_over_bt"] < one["s_over_bt_high"]
    assert rows["no-communication"]["kind"] == "none"


def test_censored_sides_are_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path, Study(arms=("ring", "ddp", "single"), bandwidths_mbps=(1.0,), limit_s=10.0))
    rows = {row["algorithm"]: row for row in compared(tmp_path, capsys)["rows"]}
    single = rows["single"]
    assert (single["ratio"], single["ratio_high"], single["kind"], single["num_censored"]) == (None, None, "bound", 3)
    assert single["ratio_low"] > 1  # type: ignore[operator]
    assert (rows["ddp"]["ratio"], rows["ddp"]["ratio_low"], rows["ddp"]["num_censored"]) == (None, None, 6)
    compare(tmp_path, "ring")
    text = capsys.readouterr().out
    assert "> " in text and "3 of 6" in text


def test_every_ratio_is_taken_apart(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in compared(sweep, capsys)["rows"] if row["kind"] == "geometric mean"]
    assert rows
    for row in rows:
        step, samples, ratio = (row[name] for name in ("step_ratio", "samples_ratio", "ratio"))
        assert step * samples == pytest.approx(ratio)  # type: ignore[operator]
        for name in ("ratio", "step_ratio", "samples_ratio"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]  # type: ignore[operator]
        assert row["ratio_together_low"] <= row["ratio_low"]  # type: ignore[operator]
        assert row["dominant"] in ("seeds", "timing runs", "grid")


def test_kin_are_paired_and_others_are_not(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["algorithm"]: row["paired"] for row in compared(sweep, capsys)["rows"]}
    assert rows["threshold"] is False


def test_the_best_set_is_told(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = compared(sweep, capsys)
    for row in document["best"]:
        assert row["members"][0] == row["first"] and set(row["behind"]).isdisjoint(row["members"])  # type: ignore[index,call-overload]
        assert "no-communication" not in {*row["members"], *row["behind"]}  # type: ignore[misc]
    compare(sweep, "single")
    assert "May be the fastest" in capsys.readouterr().out


def compose(folder: Path, interval_s: list[float] | None = None, **more: object) -> None:
    """As if the cell had been put together."""
    sources = {"timing": "a", "convergence": "b", "interval_s": interval_s}
    content = {"id": folder.name.rpartition("-")[2], **sources, **more}
    (folder / "composed.json").write_text(json.dumps(content))
    rewrite(folder / "status.json", composed=sources)


def test_composed_values_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_study(tmp_path, Study(arms=("ring", "threshold", "single"), limit_s=60.0))
    compare(tmp_path, "ring")
    assert "†" not in capsys.readouterr().out
    for folder in folders:
        if "threshold" in folder.name:
            compose(folder, interval_s=[2.9, 3.1])
    rows = {row["algorithm"]: row["composed"] for row in compared(tmp_path, capsys)["rows"]}
    assert rows == {"threshold": True, "single": False}
    compare(tmp_path, "ring")
    said = capsys.readouterr()
    answer, _, table = said.out.partition("\n\n")
    assert answer.startswith("In short, study, four nodes, cnn on digits:\n  10 Mbit/s: use ")
    assert "[composed, " in answer
    lines = table.partition("\n\n")[0].splitlines()
    marked = {line.split()[2]: "†" in line for line in lines if line.startswith("10 Mbit/s")}
    assert marked == {"threshold": True, "single": False} and "note: † Composed of" in said.err


def test_only_cells_alike_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for nodes in (2, 4):
        for latency in ("1 ms", "9 ms"):
            write_study(tmp_path, Study(arms=("ring", "threshold", "single"), nodes=nodes, latency=latency))
    rows = compared(tmp_path, capsys, by="nodes")["rows"]
    assert len(rows) == 8 and all(row["n"] == 3 for row in rows)
    groups = [row["group"] for row in rows]
    assert all(list(group) == ["nodes", "link.bandwidth", "link.latency"] for group in groups)  # type: ignore[call-overload]
    assert {(group["nodes"], group["link.latency"]) for group in groups} == {  # type: ignore[index]
        (nodes, latency) for nodes in (2, 4) for latency in ("1 ms", "9 ms")
    }


def test_any_key_may_stand_first(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = compared(sweep, capsys, by="compression")["rows"]
    assert {row["group"]["compression"] for row in rows} == {"threshold", "none"}  # type: ignore[index]


def test_no_arm_of_the_pareto_set_is_beaten(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in compared(sweep, capsys)["pareto"] if row["group"] == {"link.bandwidth": "100 Mbit/s"}]
    assert len(rows) == 4
    for row in rows:
        beaten = any(
            (other["time_s"] < row["time_s"] and other["metric_value"] >= row["metric_value"])  # type: ignore[operator]
            or (other["time_s"] <= row["time_s"] and other["metric_value"] > row["metric_value"])  # type: ignore[operator]
            for other in rows
        )
        assert row["optimal"] is not beaten


def test_names_that_are_not_there_are_answered_with_those_that_are(sweep: Path, tmp_path: Path) -> None:
    for baseline, by, words in (
        ("rnig", "link.bandwidth", "--baseline: no arm 'rnig'.*Did you mean 'ring'.*single, threshold"),
        ("ring", "link.bandwith", "--by: no key 'link.bandwith'.*Did you mean 'link.bandwidth'"),
    ):
        with pytest.raises(ConfigError, match=words) as raised:
            compare(sweep, baseline, by)
        assert raised.value.exit_code == EXIT_USER_INPUT
    (folder,) = write_study(tmp_path / "a", Study(arms=("ring",), repeats=1, limit_s=1.0, target=None))
    rewrite(folder / "status.json", training_clock_s=None, steps_clock_s=None)
    with pytest.raises(ConfigError, match="target"):
        compare(tmp_path / "a", "ring")
    write_study(tmp_path / "b", Study(arms=("ring",), repeats=1, statuses={("ring", 0): ("missing", "")}))
    with pytest.raises(ConfigError, match="none of 1 cells is done"):
        compare(tmp_path / "b", "ring")


def test_without_a_target_samples_a_second_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms, rates = ("ring", "ring-fp16", "single"), (1.0, 10.0)
    write_study(tmp_path, Study(arms=arms, repeats=3, bandwidths_mbps=rates, limit_s=1.0, target=None))
    found = compared(tmp_path, capsys, "single")
    assert not found["rows"] and len(found["rates"]) == len(arms) * len(rates)
    place = {(row["group"]["link.bandwidth"], row["algorithm"]): row for row in found["rates"]}  # type: ignore[index]
    ring, alone = place["10 Mbit/s", "ring"], place["10 Mbit/s", "single"]
    assert (ring["nodes"], alone["nodes"], alone["rate_ratio"]) == (4, 1, None)
    assert ring["samples_per_s"] == pytest.approx(4 * 32 / ring["step_s"])  # type: ignore[operator]
    assert ring["rate_ratio"] == pytest.approx(ring["samples_per_s"] / alone["samples_per_s"])  # type: ignore[operator]
    assert ring["rate_ratio_low"] < ring["rate_ratio"] < ring["rate_ratio_high"]  # type: ignore[operator]
    assert place["1 Mbit/s", "ring"]["rate_ratio"] < ring["rate_ratio"]  # type: ignore[operator]
    compare(tmp_path, "single")
    title, head, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("Samples a second, and how many times those of single") and "step" in head
    assert len(lines) == len(found["rates"])
    export(tmp_path, TableFormat.csv, tmp_path / "ratios.csv", TableRows.ratios, baseline="single")
    assert list(pd.read_csv(tmp_path / "ratios.csv")["rate_ratio"].dropna()) == pytest.approx(
        [row["rate_ratio"] for row in found["rates"] if row["rate_ratio"] is not None]
    )


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_study(tmp_path, Study(
        arms=("ring", "single"), repeats=2, bandwidths_mbps=(10.0, 30.0), statuses={("single", 1): ("failed", "x")},
    ))  # fmt: skip
    (folders[0] / "cell.json").write_text("{")
    compare(tmp_path, "ring")
    said = capsys.readouterr().err
    assert "not readable as JSON" in said and "1 failed (single #1)" in said


def test_a_baseline_that_is_not_done_somewhere_leaves_rows_without_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in write_study(tmp_path, Study(arms=("ring", "threshold"), repeats=2, bandwidths_mbps=(10.0, 30.0))):
        if "ring-cnn-10mbps" in folder.name:
            (folder / "status.json").unlink()
    found = compared(tmp_path, capsys)
    assert [(row["ratio"] is None, row["n"]) for row in found["rows"]] == [(True, 0), (False, 2)]
    assert any("no ring that is done at 10 Mbit/s" in str(note) for note in found["notes"])


def test_exports_agree_whatever_the_format(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for to in (TableFormat.csv, TableFormat.json, TableFormat.parquet):
        assert export(sweep, to, tmp_path / f"cells.{to.value}") == 0
    rows = json.loads((tmp_path / "cells.json").read_text())["rows"]
    table = pd.read_parquet(tmp_path / "cells.parquet")
    lines = list(csv.DictReader((tmp_path / "cells.csv").read_text().splitlines()))
    assert len(rows) == len(table) == len(lines) == 3 * 3 * 3 + 3
    assert list(table.columns) == list(lines[0]) == list(rows[0])
    for row, line, (_, entry) in zip(rows, lines, table.iterrows(), strict=True):
        assert row["id"] == line["id"] == entry["id"]
        assert row["final_metric"] == pytest.approx(float(line["final_metric"])) == pytest.approx(entry["final_metric"])
    columns = {"config.link.bandwidth", "config.model.name", "link_achieved_goodput_bps", "link_asked_rtt_s", "host",
               "commit", "composed", "time_to_target_s", "torch", "status"}  # fmt: skip
    assert columns <= set(rows[0])
    assert not list(tmp_path.glob(".*"))
    capsys.readouterr()
    export(sweep, TableFormat.csv)
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == len(rows)


def test_evaluations_and_steps(sweep: Path, tmp_path: Path) -> None:
    cells = len(list((sweep / "sweep").iterdir()))
    for what in (TableRows.evaluations, TableRows.steps):
        export(sweep, TableFormat.parquet, tmp_path / "rows.parquet", what)
        table = pd.read_parquet(tmp_path / "rows.parquet")
        assert table["id"].nunique() == cells and table["clock_s"].notna().all()
    assert {"compute_s", "exposed_s", "rank"} <= set(table.columns)


def test_of_composed_cells_curves_are_exported_and_no_steps(tmp_path: Path) -> None:
    """A failed attempt of before the cell was composed is none of its curve."""
    folders = write_study(tmp_path, Study(arms=("ring", "single"), repeats=1))
    curve = [{"step": 20, "samples": 2560, "clock_s": 7.5, "accuracy": 0.96, "target_met": True}]
    compose(folders[0], curve=curve)
    export(tmp_path, TableFormat.json, tmp_path / "rows.json", TableRows.evaluations)
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["arm"], row["clock_s"]) for row in rows if row["composed"]] == [("ring", 7.5)]
    assert {row["arm"] for row in rows if not row["composed"]} == {"single"}
    export(tmp_path, TableFormat.json, tmp_path / "rows.json", TableRows.steps)
    assert {row["arm"] for row in json.loads((tmp_path / "rows.json").read_text())["rows"]} == {"single"}


def test_a_crossover_of_composed_cells_has_a_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = ("threshold", "ring")
    for folder in write_study(tmp_path, Study(arms=arms, bandwidths_mbps=(3.0, 100.0), gradient_bytes=80_000)):
        compose(folder, gradient_bytes=80_000)
    (row,) = compared(tmp_path, capsys)["crossovers"]
    assert row["gradient_bytes"] == 80_000 and row["composed"] and row["compute_s"]


def test_unlike_values_of_one_option_make_one_column(tmp_path: Path) -> None:
    for number, value in enumerate((3, "auto", True)):
        write_study(tmp_path / "r", Study(f"s{number}", arms=("ring",), repeats=1, limit_s=1.0, extra={"knob": value}))
    export(tmp_path / "r", TableFormat.parquet, tmp_path / "x.parquet")
    assert list(pd.read_parquet(tmp_path / "x.parquet")["config.knob"]) == ["3", "auto", "True"]


def test_nowhere_to_write_is_said(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        export(sweep, TableFormat.csv, tmp_path)


def test_ratios_are_exported_as_compare_has_them(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = compared(sweep, capsys, "single")["rows"]
    assert export(sweep, TableFormat.json, what=TableRows.ratios, baseline="single") == 0
    table = json.loads(capsys.readouterr().out)["rows"]
    assert [row["ratio"] for row in table] == [row["ratio"] for row in rows]
    assert table[0]["group.link.bandwidth"] == rows[0]["group"]["link.bandwidth"]  # type: ignore[index]
    assert {"step_ratio", "step_ratio_low", "samples_ratio_high", "dominant"} <= set(table[0])
    with pytest.raises(ConfigError, match="--baseline"):
        export(sweep, TableFormat.json, what=TableRows.ratios)


@pytest.fixture
def with_test_curves(tmp_path: Path) -> Path:
    """Two arms to their limit of time; the test split is looked at at every evaluation, two points below."""
    study = Study(arms=("ring", "threshold"), target=0.999, limit_s=6.0, extra={"stop": "limit"})
    for folder in write_study(tmp_path / "r", study):
        for file in folder.glob("attempt-1/rank*.jsonl"):
            lines = []
            for line in file.read_text().splitlines():
                event = json.loads(line)
                if event.get("split") != "test":
                    lines.append(line)
                if event.get("split") == "validation":
                    mean = {"accuracy": event["mean"]["accuracy"] - 0.02}
                    lines.append(json.dumps({**event, "split": "test", "mean": mean, "local": mean}))
            file.write_text("\n".join(lines) + "\n")
    return tmp_path / "r"


def test_both_splits_at_equal_samples_and_time(with_test_curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    footing = compared(with_test_curves, capsys)["footing"]
    assert [row["algorithm"] for row in footing] == ["ring", "threshold"]
    for row in footing:
        for place in ("at_samples", "at_time"):
            validation, test = row[place], row[f"test_{place}"]
            assert test["value"] == pytest.approx(validation["value"] - 0.02), place  # type: ignore[index]
            assert test["n"] == 3 and test["low"] < test["value"] < test["high"]  # type: ignore[index]
    assert compare(with_test_curves, "ring", "link.bandwidth") == 0
    text = capsys.readouterr().out.partition("How good at equal samples")[2]
    assert text.count(" validation ") == text.count(" test ") == 2 and "was not looked at" not in text


def test_where_the_test_split_was_not_looked_at_it_says_how_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(tmp_path, Study(arms=("ring", "threshold"), target=0.999, limit_s=6.0, extra={"stop": "limit"}))
    assert [row["test_at_time"] for row in compared(tmp_path, capsys)["footing"]] == [None, None]
    assert compare(tmp_path, "ring", "link.bandwidth") == 0
    assert "'evaluate: {test: always}'" in capsys.readouterr().out


def test_evaluations_of_both_splits_are_a_row(with_test_curves: Path, tmp_path: Path) -> None:
    export(with_test_curves, TableFormat.csv, tmp_path / "rows.csv", TableRows.evaluations)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    between = [row for row in rows if row["step"] == rows[1]["step"]]
    assert between and all(
        float(row["accuracy"]) - float(row["test_accuracy"]) == pytest.approx(0.02) for row in between
    )


@pytest.mark.parametrize("arms", [("ring", "threshold", "single")])
def test_of_virtual_nodes_samples_are_compared_and_no_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arms: tuple[str, ...]
) -> None:
    write_study(tmp_path, Study(arms=arms, limit_s=60.0, environment={"virtual": True}))
    document = compared(tmp_path, capsys)
    assert not document["rows"] and not document["best"] and not document["crossovers"] and not document["pareto"]
    rows = {str(row["algorithm"]): row for row in document["samples"]}
    assert set(rows) == {"threshold", "single"}
    for row in rows.values():
        assert row["samples_ratio"] == pytest.approx(row["baseline_samples"] / row["samples"])  # type: ignore[operator]
        assert row["samples_ratio_low"] <= row["samples_ratio"] <= row["samples_ratio_high"]  # type: ignore[operator]
    compare(tmp_path, "ring")
    text = capsys.readouterr()
    assert "by samples alone: times as few as ring" in text.out and "time" not in text.out.replace("times as few", "")
    assert "Virtual nodes in 9 of 9 cells" in text.err and "First crossing" not in text.err


def test_virtual_nodes_beside_others_stand_in_no_ratio_of_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = write_study(tmp_path, Study(arms=("ring", "threshold", "single"), limit_s=60.0))
    for folder in folders:
        if "threshold" in folder.name:
            rewrite(folder / "attempt-1" / "environment.json", virtual=True)
    document = compared(tmp_path, capsys)
    assert {row["algorithm"] for row in document["rows"]} == {"single"}
    assert {row["algorithm"] for row in document["samples"]} == {"threshold", "single"}
    assert {row["algorithm"] for row in document["pareto"]} == {"ring", "single"}


def test_at_equal_samples_virtual_nodes_are_told_without_time(
    with_test_curves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in with_test_curves.glob("*/*/attempt-1/environment.json"):
        rewrite(file, virtual=True)
    for row in compared(with_test_curves, capsys)["footing"]:
        assert row["clock_s"] is None and row["at_time"] is None and row["test_at_time"] is None
        assert row["at_samples"] and row["at_end"] and row["test_at_samples"]
    compare(with_test_curves, "ring")
    heading = capsys.readouterr().out.partition("How good at equal samples")[2].splitlines()
    assert heading[0].startswith(" and at the end") and "time" not in heading[1]


def test_one_repeat_says_nothing_about_chance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path, Study(arms=("ring", "threshold", "single"), repeats=1, limit_s=60.0))
    compare(tmp_path, "ring")
    text = capsys.readouterr()
    assert "note: n = 1: one repeat says nothing about chance" in text.err
    assert "how many times as long others take (one repeat says nothing about chance)" in text.out
    assert "told apart" not in text.out and "May be the fastest" not in text.out
    write_study(tmp_path / "more", Study(arms=("ring", "threshold", "ddp"), limit_s=60.0))
    write_study(tmp_path / "more", Study(arms=("parameter-server",), repeats=1, limit_s=60.0))
    compare(tmp_path / "more", "ring")
    text = capsys.readouterr()
    assert "May be the fastest" in text.out and "not tested: one repeat says nothing about chance" in text.out


def test_arms_are_asked_for_by_label_too_and_unlike_ones_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = write_study(tmp_path, Study(arms=("ring", "mine"), limit_s=60.0))
    for folder in folders:
        if folder.name.startswith("mine-"):
            rewrite(folder / "cell.json", arm="ring-mine")
    document = compared(tmp_path, capsys, "mine")
    assert document["labels"] == {"ring": "ring", "ring-mine": "mine"}
    assert {row["baseline"] for row in document["rows"]} == {"ring-mine"}
    compare(tmp_path, "mine")
    assert "Times as fast as mine" in capsys.readouterr().out
    write_study(tmp_path, Study(arms=("threshold",), limit_s=60.0))
    compare(tmp_path, "ring")
    assert "note: Arms differ in more than one thing: codec and collective (" in capsys.readouterr().err


def test_on_a_narrow_terminal_conditions_are_headings_and_lists_go_on(sweep: Path) -> None:
    comparison = compare_cells(iter_cells(sweep), "ring")
    flat = list(comparison_lines(comparison))
    assert any(line.startswith("10 Mbit/s       single  ") for line in flat)
    narrow = list(comparison_lines(comparison, 76))
    tables = [line for line in narrow if line.startswith("  ")]
    assert tables and max(map(len, narrow)) <= 100 and "link.bandwidth 10 Mbit/s" in narrow
    assert any(line.startswith("(no room for widest by") for line in narrow)
    for name in ("threshold", "single", "no-communication"):
        assert any(line.startswith(f"  {name} ") for line in narrow)
