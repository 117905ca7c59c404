"""Errors of links: one row a measurement, a timing run's link once, and sizes in three numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.results.analysis.caveats import Spread
from bwbench.results.analysis.results import load_results
from bwbench.results.figures.asked_and_achieved import errors_table


def test_every_pair_before_and_after(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "single"), repeats=2, limit_s=0.3))
    (group,) = load_results(tmp_path)
    errors = errors_table(group)
    assert len(errors) == 2 * 2 * 2  # repeats, before and after, pairs; one node alone has no link
    assert set(errors["when"]) == {"before", "after"}
    assert set(errors["goodput_error"].round(6)) == {round(0.953 / 0.956 - 1, 6)}
    assert errors["rtt_off_s"].iloc[0] == pytest.approx(0.0002)
    assert not errors["over_tcp"].any()


def test_what_ranks_on_hosts_found_by_tcp_is_told_apart(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, limit_s=0.3))
    (file,) = tmp_path.rglob("link.json")
    link = json.loads(file.read_text())
    link["achieved_after"]["method"] = "tcp, from process to process"
    file.write_text(json.dumps(link))
    (group,) = load_results(tmp_path)
    errors = errors_table(group)
    assert set(errors.loc[errors["over_tcp"], "when"]) == {"after"}


def test_sizes_of_errors() -> None:
    spread = Spread.of([-0.03, 0.01, 0.02, None])
    assert (spread.median, spread.p95, spread.worst, spread.num) == (0.02, 0.03, 0.03, 3)
    assert Spread.of([None]) == Spread(0, None, None, None)


def test_what_was_measured_in_slow_motion_is_told_in_the_time_that_was_asked(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, limit_s=0.3))
    (file,) = tmp_path.rglob("link.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "dilation": 8.0}))
    (group,) = load_results(tmp_path)
    errors = errors_table(group)
    assert errors["rtt_off_s"].iloc[0] == pytest.approx(0.0002 / 8)
    assert set(errors["goodput_error"].round(6)) == {round(0.953 / 0.956 - 1, 6)}
