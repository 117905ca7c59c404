"""One node alone is compared at its own batch and step; bounds stay bounds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fixtures_matrices import write_matrix
from fixtures_records import Study, write_study

from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures.over_one_node import SpeedUpByNodes, families, speedup_table


def results_of(folder: Path, *overrides: str) -> Results:
    write_matrix(folder, "viable", ["algorithm=[single, ddp]", "link.bandwidth=[20 Mbit/s]", "repeats=3", *overrides])
    (group,) = regrouped(load_results(folder), SpeedUpByNodes.compares)
    return group


def test_the_reference_has_the_batch_and_the_step_of_each_node(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    table = speedup_table(results)
    cells = results.cells
    for row in table.to_dict("records"):
        alike = cells[(cells["batch_size"] == row["batch_size"]) & (cells["step_time_s"] == row["step_time_s"])]
        single = alike[alike["arm"] == "single"].set_index("seed")["time_to_target_s"]
        several = alike[(alike["arm"] == "ddp") & (alike["nodes"] == row["nodes"])].set_index("seed")[
            "time_to_target_s"
        ]
        product = (single / several).prod()
        assert row["speedup"] == pytest.approx(product ** (1 / 3))
        assert row["low"] < row["speedup"] < row["high"] and row["num"] == 3


def test_the_load_is_the_gradient_on_the_link_over_computing(tmp_path: Path) -> None:
    table = speedup_table(results_of(tmp_path))
    four = table[(table["nodes"] == 4) & (table["batch_size"] == 32)].iloc[0]
    assert four["load"] == pytest.approx(8 * 828_072 / (20e6 * 0.08))


def test_a_batch_is_held_equal_a_node_or_in_all(tmp_path: Path) -> None:
    found = {family.label: sorted(family.rows["nodes"]) for family in families(speedup_table(results_of(tmp_path)))}
    assert found == {"32 a node": [2, 4, 8], "128 in all": [2, 4, 8]}


def test_what_did_not_arrive_is_a_bound(tmp_path: Path) -> None:
    table = speedup_table(results_of(tmp_path, "limit={samples: 200000, time: 200 s}"))
    assert set(table["bound"]) & {"<", ">"}


def test_without_one_node_alone_there_is_nothing_to_say(tmp_path: Path) -> None:
    write_matrix(tmp_path, "viable", ["algorithm=[ddp]", "repeats=1"])
    (group,) = regrouped(load_results(tmp_path), SpeedUpByNodes.compares)
    assert speedup_table(group).empty
    assert "single" in str(SpeedUpByNodes().applies(group))


def test_without_a_target_it_is_that_in_samples_a_second_and_the_load_that_of_the_whole_model(tmp_path: Path) -> None:
    for nodes in (2, 4):
        shrunk = {"shrink": 4.0}
        study = Study(
            arms=("ring", "single"), nodes=nodes, repeats=2, target=None, limit_s=1.0, step_time_s=0.03, extra=shrunk
        )
        write_study(tmp_path, study)
    (group,) = regrouped(load_results(tmp_path), SpeedUpByNodes.compares)
    assert SpeedUpByNodes().applies(group) is None
    rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
    for cell in group.cells.to_dict("records"):
        rates[int(cell["nodes"])].append(float(cell["samples"]) / float(cell["training_clock_s"]))
    table = speedup_table(group)
    assert list(table["nodes"]) == [2, 4]
    for row in table.to_dict("records"):
        several, alone = (math.prod(rates[number]) for number in (int(row["nodes"]), 1))
        assert row["speedup"] == pytest.approx((several / alone) ** (1 / 2))
        assert row["load"] == pytest.approx(8 * 4 * 80_000 / (10e6 * 0.03))
    figure = SpeedUpByNodes().draw(group)
    assert "in samples a second" in figure.texts[0].get_text()
