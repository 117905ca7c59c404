"""Errors of links: one a pair of nodes and measurement, a timing run's link once, and sizes in three numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.results.analysis.caveats import Spread, link_errors
from bwbench.results.analysis.results import load_results
from bwbench.results.section.threats import link_table
from bwbench.results.section.write import markdown_table


def test_every_pair_before_and_after(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "single"), repeats=2, limit_s=0.3))
    (group,) = load_results(tmp_path)
    errors = link_errors(group.done)
    assert len(errors) == 2 * 2 * 2  # repeats, before and after, pairs; one node alone has no link
    assert {round(error.goodput or 0.0, 6) for error in errors} == {round(0.953 / 0.956 - 1, 6)}
    assert errors[0].rtt_off_s == pytest.approx(0.0002)


def test_sizes_of_errors() -> None:
    spread = Spread.of([-0.03, 0.01, 0.02, None])
    assert (spread.median, spread.p95, spread.worst, spread.num) == (0.02, 0.03, 0.03, 3)
    assert Spread.of([None]) == Spread(0, None, None, None)


def test_what_was_measured_in_slow_motion_is_told_in_the_time_that_was_asked(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, limit_s=0.3))
    (file,) = tmp_path.rglob("link.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "dilation": 8.0}))
    (group,) = load_results(tmp_path)
    errors = link_errors(group.done)
    assert errors[0].rtt_off_s == pytest.approx(0.0002 / 8)
    assert {round(error.goodput or 0.0, 6) for error in errors} == {round(0.953 / 0.956 - 1, 6)}


def test_one_table_has_a_row_for_each_experiment_that_was_measured(tmp_path: Path) -> None:
    for name, arms in (("one", ("ring",)), ("two", ("ring", "ddp")), ("none", ("single",))):
        write_study(tmp_path, Study(name, arms=arms, repeats=1, limit_s=0.3))
    (table,) = link_table({group.experiment: group.done for group in load_results(tmp_path)})
    text = markdown_table(table)
    assert [row[0][0] for row in table.rows] == [("one",), ("two",)]
    assert "0.31 %" in text and "0.20 ms" in text and all(len(row) == len(table.header) for row in table.rows)
    assert list(link_table({"none": []})) == []
