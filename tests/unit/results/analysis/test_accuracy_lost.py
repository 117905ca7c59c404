"""Differences to fp32 at equal samples, paired by seed; codecs named shortly; residuals told apart."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from fixtures_matrices import write_matrix

from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures.precision import Precision, losses, short_name


def results_of(folder: Path, *overrides: str) -> Results:
    write_matrix(folder, "precision", ["repeats=3", *overrides])
    (group,) = regrouped(load_results(folder), Precision.compares)
    return group


def table_of(folder: Path) -> pd.DataFrame:
    return losses(results_of(folder), "accuracy").set_index("arm")


def test_the_reference_loses_nothing_and_the_others_by_seed(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    table = losses(results, "accuracy").set_index("arm")
    assert list(table[table["is_reference"]].index) == ["ring"] and table.loc["ring", "lost"] == 0
    finals = results.cells.pivot(index="seed", columns="arm", values="final_metric").astype(float)
    for arm, row in table.iterrows():
        assert row["lost"] == pytest.approx((finals[arm] - finals["ring"]).mean())
        assert row["low"] <= row["lost"] <= row["high"] and row["num"] == 3


def test_arms_that_differ_in_the_residual_alone_are_a_pair(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    pairs = table[table.groupby("pair")["codec"].transform("size") > 1]
    assert sorted(pairs["codec"]) == ["int4", "int4", "top-k 1 %", "top-k 1 %"]
    for _, pair in pairs.groupby("pair"):
        assert sorted(pair["residual"]) == [False, True]
        kept = pair[pair["residual"] == True].iloc[0]  # noqa: E712 (of three values)
        assert kept["lost"] > pair["lost"].min()


def test_runs_that_ended_at_their_target_are_not_compared(tmp_path: Path) -> None:
    assert "stop: limit" in str(Precision().applies(results_of(tmp_path, "stop=target")))


def test_without_fp32_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    results = results_of(tmp_path, "compression=[fp16, int4]")
    assert losses(results, "accuracy").empty
    assert "fp32" in str(Precision().applies(results))


def test_short_names() -> None:
    assert short_name([{"name": "none"}]) == "fp32"
    assert (
        short_name([{"name": "top-k", "ratio": 0.01, "error_feedback": True}, {"name": "int8"}]) == "top-k 1 % + int8"
    )
