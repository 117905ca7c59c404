"""The picture of the rows: what was asked against what was measured, with the errors that are allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bwbench.results.figures.style import FAINT, PAGE_IN, SMALL_PT, look
from link_accuracy_parts import panels
from link_accuracy_parts.rows import Row

HEIGHTS_IN = (2.0, 1.8, 1.9, 1.9, 1.7)
SHOWN_TRACES = ("wifi_office", "Verizon")

Panel = tuple[str, Callable[[Any, list[Row]], None], list[Row]]


def draw(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.pdf; returns their paths."""
    from matplotlib.figure import Figure

    paths = [stem.with_suffix(kind) for kind in (".png", ".pdf")]
    with look():
        figure = Figure(figsize=(PAGE_IN, sum(HEIGHTS_IN)), layout="constrained")
        lines = figure.subfigures(len(HEIGHTS_IN), 1, height_ratios=HEIGHTS_IN)
        for part, of_line in zip(lines, _lines([entry for entry in rows if "measured" in entry]), strict=True):
            for ax, (title, panel, of_panel) in zip(
                part.subplots(1, len(of_line), squeeze=False)[0], of_line, strict=True
            ):
                ax.set_title(title, loc="left")
                if of_panel:
                    panel(ax, of_panel)
                else:
                    ax.set_axis_off()
                    ax.text(0, 0.85, "not measured", color=FAINT, fontsize=SMALL_PT, transform=ax.transAxes)
        for path in paths:
            figure.savefig(path, metadata={"Title": "Accuracy of emulated links"})
    return paths


def _lines(rows: Sequence[Row]) -> list[list[Panel]]:
    """What stands beside each other, from the top."""
    deviations = [entry for entry in _of(rows, "jitter") if entry["setting"].endswith("deviation")]
    traces = [entry for entry in _of(rows, "traces") if "asked_bps" in entry]
    shown = [[entry for entry in traces if name in entry["setting"]][-1:] for name in SHOWN_TRACES]
    return [
        [
            ("TCP goodput against rate × 1448/1514", panels.goodput, _of(rows, "goodput")),
            ("Round trip of an idle link: error", panels.idle, _of(rows, "delay", "idle")),
        ],
        [
            ("Full queue, deviation of jitter: error", panels.dots, [*_of(rows, "delay", "queue"), *deviations]),
            ("Loss, in bursts also their length: error", panels.dots, _of(rows, "loss")),
        ],
        [("Shared air: UDP goodput of each station; lines are the closed form", panels.air, _of(rows, "air"))],
        [
            ("All-reduce of four stations: error of the time", panels.dots, _of(rows, "ring")),
            ("Rings of nodes that all send", panels.scale, _of(rows, "scale")),
        ],
        [(_title(of_trace), panels.trace, of_trace) for of_trace in shown],
    ]


def _of(rows: Sequence[Row], what: str, begin: str = "") -> list[Row]:
    return [entry for entry in rows if entry["what"] == what and entry["setting"].startswith(begin)]


def _title(of_trace: list[Row]) -> str:
    return f"Trace {of_trace[0]['setting'].partition(',')[0]}" if of_trace else "Trace"
