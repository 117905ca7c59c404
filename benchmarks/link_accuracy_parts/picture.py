"""The picture of the rows: what was asked against what was measured, with the errors that are allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bwbench.figures.style import FAINT, GRID, INK, NOTE_PT, PAGE_IN, SMALL_PT, look
from link_accuracy_parts.rows import Row

HEIGHT_IN = 8.6
BAND = "#dddddd"
# Colours of Okabe and Ito; the markers tell them apart in grey.
STYLES = {
    "relay": {"color": "#0072b2", "marker": "o", "label": "relay"},
    "netem": {"color": "#d55e00", "marker": "s", "label": "netem", "markerfacecolor": "none"},
    "tbf": {"color": "#000000", "marker": "^", "label": "kernel tbf", "markerfacecolor": "none"},
}
SHOWN_TRACES = ("wifi_office", "Verizon")


def draw(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.pdf; returns their paths."""
    from matplotlib.figure import Figure

    known = [entry for entry in rows if "measured" in entry]
    paths = [stem.with_suffix(kind) for kind in (".png", ".pdf")]
    with look():
        figure = Figure(figsize=(PAGE_IN, HEIGHT_IN), layout="constrained")
        axes = figure.subplots(4, 2)
        panels: list[tuple[str, Callable[[Any, list[Row]], None], list[Row]]] = [
            ("TCP goodput against rate × 1448/1514", _goodput, _of(known, "goodput")),
            ("Round trip of an idle link beyond what is asked", _idle, _of(known, "delay", "idle")),
            ("Queueing delay, and deviation of the jitter", _dots, _queue_and_jitter(known)),
            ("Loss; bars are 99 % of what chance allows", _dots, _of(known, "loss")),
            ("Shared air and ring against the closed form", _dots, [*_of(known, "air"), *_of(known, "ring")]),
            ("Rings of sending nodes", _scale, _of(known, "scale")),
        ]
        panels += [("", _trace, [entry]) for entry in _shown_traces(known)]
        for ax, (title, panel, of_panel) in zip(axes.flat, panels, strict=False):
            ax.set_title(title, loc="left")
            if of_panel:
                panel(ax, of_panel)
            else:
                ax.set_axis_off()
                ax.text(0, 0.9, "not measured", color=FAINT, fontsize=SMALL_PT, transform=ax.transAxes)
        for ax in list(axes.flat)[len(panels) :]:
            ax.set_axis_off()
        for path in paths:
            figure.savefig(path, metadata={"Title": "Accuracy of emulated links"})
    return paths


def _of(rows: Sequence[Row], what: str, begin: str = "") -> list[Row]:
    return [entry for entry in rows if entry["what"] == what and entry["setting"].startswith(begin)]


def _queue_and_jitter(rows: Sequence[Row]) -> list[Row]:
    deviations = [entry for entry in _of(rows, "jitter") if entry["setting"].endswith("deviation")]
    return [*_of(rows, "delay", "queue"), *deviations]


def _shown_traces(rows: Sequence[Row]) -> list[Row]:
    totals = [entry for entry in _of(rows, "traces") if "asked_bps" in entry]
    return [next((e for e in reversed(totals) if name in e["setting"]), {}) for name in SHOWN_TRACES]


def _by_backend(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {
        name: [e for e in rows if e["backend"] == name] for name in STYLES if any(e["backend"] == name for e in rows)
    }


def _goodput(ax: Any, rows: list[Row]) -> None:
    default = [entry for entry in rows if "queue" not in entry["setting"]]
    allowed = sorted((e["rate_bps"] / 1e6, 100 * e["tolerance"]) for e in default if e["backend"] == "relay")
    if allowed:
        rates, limits = zip(*allowed, strict=True)
        ax.fill_between(rates, [-limit for limit in limits], limits, step="mid", color=BAND, linewidth=0)
    for backend, of_backend in _by_backend(default).items():
        points = sorted((entry["rate_bps"] / 1e6, 100 * entry["error"]) for entry in of_backend)
        ax.plot(*zip(*points, strict=True), linewidth=0.8, **STYLES[backend])
    longer = [(e["rate_bps"] / 1e6, 100 * e["error"]) for e in rows if "queue" in e["setting"]]
    if longer:
        ax.plot(*zip(*longer, strict=True), "x", color=STYLES["relay"]["color"], label="relay, queue of 2 BDP")
    ax.axhline(0, color=FAINT, linewidth=0.6)
    ax.set_xscale("log")
    ax.set_xlabel("Rate (Mbit/s)")
    ax.set_ylabel("Error (%)")
    ax.legend(fontsize=SMALL_PT)


def _idle(ax: Any, rows: list[Row]) -> None:
    limit_ms = 1e3 * max(entry["tolerance"] for entry in rows)
    ax.axhspan(-limit_ms, limit_ms, color=BAND, linewidth=0)
    ax.axhline(0, color=FAINT, linewidth=0.6)
    for backend, of_backend in _by_backend(rows).items():
        points = sorted((1e3 * entry["latency_s"], 1e3 * entry["error"]) for entry in of_backend)
        ax.plot(*zip(*points, strict=True), linewidth=0.8, **STYLES[backend])
    ax.set_xscale("log")
    ax.set_xlabel("One-way latency (ms)")
    ax.set_ylabel("Error of the median (ms)")
    ax.legend(fontsize=SMALL_PT)


def _dots(ax: Any, rows: list[Row]) -> None:
    """A line for each setting: relative error, with what is allowed as a bar."""
    settings = list(dict.fromkeys(entry["setting"] for entry in rows))
    for backend, of_backend in _by_backend(rows).items():
        for entry in of_backend:
            place = settings.index(entry["setting"])
            low, high = -entry["tolerance"], entry["tolerance"]
            if "lowest" in entry:
                low, high = entry["lowest"] / entry["asked"] - 1, entry["highest"] / entry["asked"] - 1
            ax.barh(place, 100 * (high - low), left=100 * low, height=0.7, color=BAND)
            ax.plot(100 * entry["error"], place, linestyle="none", **STYLES[backend])
    ax.axvline(0, color=FAINT, linewidth=0.6)
    ax.set_yticks(range(len(settings)), settings, fontsize=NOTE_PT)
    ax.invert_yaxis()
    ax.set_xlabel("Error (%)")


def _scale(ax: Any, rows: list[Row]) -> None:
    names = [
        entry["setting"].partition(",")[0].replace("bit/s ", "bit/s\n")
        for entry in rows
        if "goodput" in entry["setting"]
    ]
    for offset, key, color, hatch, label in (
        (-0.19, "goodput", "#0072b2", "", "achieved / asked"),
        (0.19, "cores", "#f0e442", "///", "cores that the relay takes"),
    ):
        of_kind = [entry for entry in rows if key in entry["setting"]]
        values = [e["measured"] / e["asked"] if key == "goodput" else e["measured"] for e in of_kind]
        places = [place + offset for place in range(len(values))]
        bars = ax.bar(places, values, 0.36, color=color, hatch=hatch, edgecolor=INK, linewidth=0.5, label=label)
        ax.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=NOTE_PT, padding=1)
    ax.axhline(1, color=FAINT, linewidth=0.6)
    ax.set_xticks(range(len(names)), names, fontsize=NOTE_PT)
    ax.set_ylim(0, 1.45)
    ax.legend(fontsize=SMALL_PT, loc="upper left", ncols=2)


def _trace(ax: Any, rows: list[Row]) -> None:
    (entry,) = rows
    if not entry:
        ax.set_axis_off()
        return
    seconds = range(len(entry["asked_bps"]))
    ax.set_title(f"Trace {entry['setting'].partition(',')[0]}", loc="left")
    asked, measured = ([value / 1e6 for value in entry[key]] for key in ("asked_bps", "measured_bps"))
    ax.step(seconds, asked, where="mid", color="#aaaaaa", linewidth=2.6, label="asked")
    ax.step(seconds, measured, where="mid", color="#0072b2", linewidth=0.9, label="measured")
    ax.set_ylim(0)
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel("Second")
    ax.set_ylabel("UDP goodput (Mbit/s)")
    ax.legend(fontsize=SMALL_PT)
