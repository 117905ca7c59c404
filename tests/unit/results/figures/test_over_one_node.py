"""Speed-up by nodes: panels that fit into a column, lines that have two ends, and a name for each of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from fixtures_matrices import write_matrix

from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures.families import MOST_LINES
from bwbench.results.figures.figure_contract import text_problems
from bwbench.results.figures.over_one_node import (
    Family,
    SpeedUpByNodes,
    _by_nodes,
    _is_nowhere_named,
    _lines,
    _panels,
    families,
)
from bwbench.results.figures.style import WIDTHS_IN


@pytest.fixture(scope="module")
def viable(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three arms on up to eight nodes, at three bandwidths."""
    root: Path = tmp_path_factory.mktemp("viable")
    write_matrix(root, "viable", ("repeats=2",))
    (results,) = regrouped(load_results(root), SpeedUpByNodes.compares)
    return results


@pytest.mark.parametrize("width", WIDTHS_IN)
def test_a_panel_a_bandwidth_in_one_row_a_batch_and_names_at_the_ends(viable: Results, width: str) -> None:
    figure = SpeedUpByNodes().draw(viable, WIDTHS_IN[width])
    found = families(SpeedUpByNodes().table(viable))
    assert len(figure.axes) == len(found) * len(viable.bandwidths) and not figure.legends
    assert not text_problems(figure)
    last = [axes for axes in figure.axes if axes.get_subplotspec().is_last_col()]
    for axes, family in zip(last, found, strict=True):
        names = {text.get_text().replace("\n", "").rstrip("†⊙") for text in axes.texts}
        assert names == {"ideal", *family.rows["arm"]} and len(names) <= MOST_LINES
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert len(titles) == len(viable.bandwidths)  # said above the first row alone
    below = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    assert below == ["nodes"]


def test_an_arm_of_one_number_of_nodes_has_no_line_and_is_not_drawn(viable: Results) -> None:
    for family in families(SpeedUpByNodes().table(viable)):
        assert (family.rows.groupby("line")["nodes"].nunique() > 1).all()


def _of(*arms: tuple[str, int]) -> pd.DataFrame:
    rows = pd.DataFrame(arms, columns=["arm", "nodes"])
    return rows.assign(bandwidth_bps=1e7, batch_size=32, accumulate=1, step_time_s=0.1)


def test_options_that_were_chosen_for_each_number_of_nodes_make_one_line() -> None:
    rows = _of(("diloco(outer_lr=0.5)", 2), ("diloco", 4), ("diloco(outer_lr=0.5)", 8), ("ddp", 2), ("ddp", 4))
    lines = _lines(rows)
    assert lines == {"diloco(outer_lr=0.5)": "diloco", "diloco": "diloco", "ddp": "ddp"}
    assert _by_nodes(rows.assign(line=rows["arm"].map(lines)), {"diloco": "diloco"}) == [
        "diloco: the usual with 4; outer_lr=0.5 with 2, 8 nodes."
    ]  # fmt: skip


def test_options_that_two_arms_have_at_one_number_of_nodes_tell_lines_apart() -> None:
    often, seldom = "diloco(outer_lr=0.5,period=16)", "diloco(outer_lr=1.0,period=64)"
    lines = _lines(_of((often, 2), ("diloco(period=16)", 4), (seldom, 2), (seldom, 4)))
    assert lines == {often: "diloco(period=16)", "diloco(period=16)": "diloco(period=16)", seldom: seldom}


def test_of_many_bandwidths_four_have_a_panel_the_slowest_and_the_fastest_among_them(viable: Results) -> None:
    rows = SpeedUpByNodes().table(viable)
    many = rows.iloc[[0] * 7].assign(bandwidth_bps=[1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8])
    shown, left_out = _panels(many)
    assert len(shown) == 4 and shown[0] == 1e6 and shown[-1] == 1e8
    assert sorted([*shown, *left_out]) == sorted(many["bandwidth_bps"])
    assert _panels(many.assign(bandwidth_bps=float("nan"))) == ([None], [])


def test_an_arm_that_is_not_in_the_last_panel_is_named_elsewhere(viable: Results) -> None:
    rows = families(SpeedUpByNodes().table(viable))[0].rows
    last = rows["bandwidth_bps"].max()
    shown = [Family("", rows[(rows["line"] != "ddp") | (rows["bandwidth_bps"] < last)])]
    assert _is_nowhere_named("ddp", shown, last) and not _is_nowhere_named("diloco", shown, last)
