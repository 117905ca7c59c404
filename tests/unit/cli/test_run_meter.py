"""The live table of ``bwbench link run``."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bwbench.cli.link import run_meter
from bwbench.cli.link.run_meter import RunMeter
from bwbench.cli.link.run_verdict import NodeTraffic


def shown(monkeypatch: pytest.MonkeyPatch, rows: list[NodeTraffic]) -> str:
    written = io.StringIO()
    monkeypatch.setattr(run_meter, "stderr", lambda: Console(file=written, force_terminal=True, width=80))
    meter = RunMeter(is_shown=True)
    meter.draw(rows)
    meter.hide()
    return written.getvalue()


def test_more_may_be_lost_than_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds its sender's queue full is lost, and was never sent: no share of 110 %."""
    text = shown(monkeypatch, [NodeTraffic(1, 1_500_000, 0, 1000, 1100, 12e6, 0.0)])
    assert "12 Mbit/s" in text and "1100" in text and "%" not in text


def test_many_nodes_do_not_fill_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [NodeTraffic(node, 0, 0, 0, 0, 0.0, 0.0) for node in range(50)]
    assert "and 42 more nodes" in shown(monkeypatch, rows)
