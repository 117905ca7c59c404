"""The table of ``link verify``: what was set at both ends of a pair stands beside what was asked of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console

from bwbench.cli.link.measure import measured_table
from bwbench.network.probe.verification import LinkMeasurement, PairMeasurement
from bwbench.records.schema import Applied

PAIR = PairMeasurement(0, 1, 10e6, 9.72e6, 9.6e6, 0.01, 0.0103, 0.01, 0.012, 1000, 1000)
APPLIED: dict[str, Any] = {"up_bps": 10e6, "down_bps": 20e6, "latency_s": 0.005, "loss": 0.01}


def rows(
    applied: dict[str, Any], alone: tuple[float, float] | None = None, pair: PairMeasurement = PAIR
) -> list[list[str]]:
    table = measured_table(Applied.model_validate(applied), LinkMeasurement("relay", (pair,), "ok", (), 0.05, alone))
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in capture.get().splitlines()[1:]]


def test_a_pair_of_equal_nodes() -> None:
    assert rows(APPLIED) == [
        ["0 > 1", "UDP goodput", "9.72 Mbit/s", "10 Mbit/s of frames", "9.6 Mbit/s", "-1.23%"],
        ["0 > 1", "round trip", "10.00 ms", "2 x 5 ms", "10.30 ms", "+0.30 ms"],
        ["0 > 1", "loss", "1.00%", "1.00%", "1.20%", "+0.20% (0.58% to 2.46%)"],
    ]


def test_each_end_has_its_own() -> None:
    nodes = {"0": {"latency_s": 0.015}, "1": {"down_bps": 2e6, "loss": 0.0}}
    applied = [row[3] for row in rows({**APPLIED, "nodes": nodes})]
    assert applied == ["2 Mbit/s of frames", "2 x 10 ms", "0.50%"]


def test_different_qdiscs_have_no_such_figure() -> None:
    assert [row[3] for row in rows({**APPLIED, "shapes": [{"nodes": [0]}, {"nodes": [1]}]})] == ["-", "-", "-"]


def test_nothing_was_set() -> None:
    assert [row[3] for row in rows({"bridge": "br0"})] == ["-", "-", "-"]


def test_a_shared_air_is_shown_alone_too() -> None:
    first = rows({**APPLIED, "medium": "shared"}, alone=(30e6, 29e6))[0]
    assert first == ["0 > 1 alone", "UDP goodput", "30 Mbit/s", "10 Mbit/s PHY", "29 Mbit/s", "-3.33%"]


def test_a_jitter_that_was_asked_has_a_row_and_says_how_sure_it_is() -> None:
    pair = replace(PAIR, asked_jitter_s=3e-3, achieved_jitter_s=2.9e-3, jitter_values=120.0)
    row = ["0 > 1", "jitter", "3.00 ms", "3.00 ms", "2.90 ms", "-0.10 ms (known to 17%)"]
    assert rows({**APPLIED, "jitter_s": 3e-3}, pair=pair)[-1] == row


def test_between_sites_the_narrowest_line_and_the_whole_way() -> None:
    sites = [{"name": "a", "nodes": [0], "up_bps": 4e6, "down_bps": 8e6}, {"name": "b", "nodes": [1], "up_bps": None}]
    paths = [{"src": "a", "dst": "b", "latency_s": 0.02}, {"src": "b", "dst": "a", "latency_s": 0.04}]
    applied = [row[3] for row in rows({**APPLIED, "sites": sites, "paths": paths})]
    assert applied == ["4 Mbit/s of frames", "2 x 35 ms", "1.00%"]
