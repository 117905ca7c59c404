"""The table of ``link verify``: what was set at both ends of a pair stands beside what was asked of it."""

from __future__ import annotations

from dataclasses import replace

from bwbench.network.namespaces.applied import AlikeNodes, AppliedLink, AppliedNode
from rich.console import Console

from bwbench.cli.link.measure import measured_table
from bwbench.network.probe.measurement import LinkMeasurement, PairMeasurement

PAIR = PairMeasurement(0, 1, 10e6, 9.72e6, 9.6e6, 0.01, 0.0103, 0.01, 0.012, 1000, 1000)
USUAL = AppliedNode(10e6, 20e6, 0.005, 0.0, 0.01, 64000, 64000, None)
APPLIED = AppliedLink("relay", USUAL)


def rows(applied: AppliedLink, alone: tuple[float, float] | None = None) -> list[list[str]]:
    table = measured_table(applied, LinkMeasurement("relay", (PAIR,), "ok", (), 0.05, alone))
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in capture.get().splitlines()[1:]]


def test_a_pair_of_equal_nodes() -> None:
    assert rows(APPLIED) == [
        ["0 > 1", "UDP goodput", "9.72 Mbit/s", "10 Mbit/s of frames", "9.6 Mbit/s", "-1.23%"],
        ["0 > 1", "round trip", "10.00 ms", "2 x 5 ms", "10.30 ms", "+0.30 ms"],
        ["0 > 1", "loss", "1.00%", "1.00%", "1.20%", "+0.20%"],
    ]


def test_each_end_has_its_own() -> None:
    nodes = {0: replace(USUAL, latency_s=0.015), 1: replace(USUAL, down_bps=2e6, loss=0.0)}
    applied = [row[3] for row in rows(replace(APPLIED, differing=nodes))]
    assert applied == ["2 Mbit/s of frames", "2 x 10 ms", "0.50%"]


def test_different_qdiscs_have_no_such_figure() -> None:
    qdiscs = (AlikeNodes((0,), {}), AlikeNodes((1,), {"up": None}))
    assert [row[3] for row in rows(replace(APPLIED, qdiscs=qdiscs))] == ["-", "-", "-"]


def test_nothing_was_set() -> None:
    assert [row[3] for row in rows(AppliedLink("unshaped"))] == ["-", "-", "-"]


def test_a_shared_air_is_shown_alone_too() -> None:
    first = rows(replace(APPLIED, medium="shared"), alone=(30e6, 29e6))[0]
    assert first == ["0 > 1 alone", "UDP goodput", "30 Mbit/s", "10 Mbit/s PHY", "29 Mbit/s", "-3.33%"]
