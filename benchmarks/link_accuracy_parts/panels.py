"""The panels of the picture, each drawn into axes that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bwbench.results.figures.style import FAINT, GRID, INK, NOTE_PT, SMALL_PT
from link_accuracy_parts.rows import Row

BAND = "#dddddd"
BLUE, YELLOW = "#0072b2", "#f0e442"
# Colours of Okabe and Ito; the markers tell them apart in grey.
STYLES: dict[str, dict[str, Any]] = {
    "relay": {"color": BLUE, "marker": "o", "label": "relay"},
    "netem": {"color": "#d55e00", "marker": "s", "label": "netem", "markerfacecolor": "none"},
    "tbf": {"color": "#000000", "marker": "^", "label": "kernel tbf", "markerfacecolor": "none"},
}
LINEAR_PERCENT = 1.0  # larger errors are drawn on a logarithmic scale
TICKS_PERCENT = (-100, -10, -1, -0.5, 0, 0.5, 1, 10)


def goodput(ax: Any, rows: list[Row]) -> None:
    """Relative error over the rate, all back ends and the token bucket."""
    default = [entry for entry in rows if "queue" not in entry["setting"]]
    allowed = sorted((e["rate_bps"] / 1e6, 100 * e["tolerance"]) for e in default if e["backend"] == "relay")
    if allowed:
        rates, limits = zip(*allowed, strict=True)
        ax.fill_between(rates, [-limit for limit in limits], limits, step="mid", color=BAND, linewidth=0)
    for backend, of_backend in _by_backend(default).items():
        points = sorted((entry["rate_bps"] / 1e6, 100 * entry["error"]) for entry in of_backend)
        ax.plot(*zip(*points, strict=True), linewidth=0.8, **STYLES[backend])
    longer = sorted((e["rate_bps"] / 1e6, 100 * e["error"]) for e in rows if "queue" in e["setting"])
    if longer:
        ax.plot(*zip(*longer, strict=True), "D", color=BLUE, markerfacecolor="none", label="relay, queue of 2 BDP")
    ax.axhline(0, color=FAINT, linewidth=0.6)
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=LINEAR_PERCENT)
    lowest = min(-1.5, *(200 * entry["error"] for entry in rows))
    highest = max(1.5, *(200 * entry["error"] for entry in rows))
    ax.set_ylim(lowest, highest)
    shown = [tick for tick in TICKS_PERCENT if lowest < tick < highest]
    ax.set_yticks(shown, [f"{tick:g}" for tick in shown])
    ax.set_yticks([], minor=True)
    ax.set_xlabel("Rate (Mbit/s)")
    ax.set_ylabel("Error (%)")
    ax.legend(fontsize=SMALL_PT, loc="lower left")


def idle(ax: Any, rows: list[Row]) -> None:
    """Error of the median round trip over the latency."""
    limit_ms = 1e3 * max(entry["tolerance"] for entry in rows)
    ax.axhspan(-limit_ms, limit_ms, color=BAND, linewidth=0)
    ax.axhline(0, color=FAINT, linewidth=0.6)
    for backend, of_backend in _by_backend(rows).items():
        points = sorted((1e3 * entry["latency_s"], 1e3 * entry["error"]) for entry in of_backend)
        ax.plot(*zip(*points, strict=True), linewidth=0.8, **STYLES[backend])
    ax.set_xscale("log")
    ax.set_xlabel("One-way latency (ms)")
    ax.set_ylabel("Error of the median (ms)")
    ax.legend(fontsize=SMALL_PT, loc="lower left")


def dots(ax: Any, rows: list[Row]) -> None:
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


def air(ax: Any, rows: list[Row]) -> None:
    """A bar for each station, or for both together where only one sends; a line for what it should get."""
    groups: dict[str, list[Row]] = {}
    for entry in rows:
        groups.setdefault(entry["setting"].rpartition(", ")[0], []).append(entry)
    for place, of_group in enumerate(groups.values()):
        stations = of_group[1:] or of_group  # the first one is the sum
        width = 0.7 / len(stations)
        for number, entry in enumerate(stations):
            at = place + (number - (len(stations) - 1) / 2) * width
            color, hatch = ((BLUE, ""), (YELLOW, "///"))[number]
            ax.bar(at, entry["measured"] / 1e6, 0.9 * width, color=color, hatch=hatch, edgecolor=INK, linewidth=0.5)
            reach = 0.6 * width
            ax.plot([at - reach, at + reach], [entry["asked"] / 1e6] * 2, color="#000000", linewidth=1.4)
    labels = [name.replace(", ", ",\n").replace(" to ", " to\n") for name in groups]
    ax.set_xticks(range(len(groups)), labels, fontsize=NOTE_PT)
    ax.set_ylabel("UDP goodput (Mbit/s)")


def scale(ax: Any, rows: list[Row]) -> None:
    """How much of what is asked gets through, and what that costs."""
    of_kind = {kind: [e for e in rows if e["setting"].endswith(kind)] for kind in ("goodput", "cores")}
    rings = [entry["setting"].partition(",")[0] for entry in of_kind["goodput"]]
    shares = [entry["measured"] / entry["asked"] for entry in of_kind["goodput"]]
    cores = [entry["measured"] for entry in of_kind["cores"]]
    for offset, values, color, hatch, label in (
        (-0.21, shares, BLUE, "", "achieved / asked"),
        (0.21, cores, YELLOW, "///", "cores of the relay"),
    ):
        places = [place + offset for place in range(len(values))]
        bars = ax.bar(places, values, 0.38, color=color, hatch=hatch, edgecolor=INK, linewidth=0.5, label=label)
        ax.bar_label(bars, [f"{value:.2f}".lstrip("0") for value in values], fontsize=NOTE_PT - 0.5, padding=1)
    ax.axhline(1, color=FAINT, linewidth=0.6)
    labels = [
        ring.replace(" x ", " ×\n").replace(" Mbit/s ", "\nMbit/s\n").replace(" Gbit/s ", "\nGbit/s\n")
        for ring in rings
    ]
    ax.set_xticks(range(len(rings)), labels, fontsize=NOTE_PT - 0.5)
    ax.set_ylim(0, 1.45)
    ax.legend(fontsize=SMALL_PT, loc="upper left", ncols=2, columnspacing=1.0)


def trace(ax: Any, rows: list[Row]) -> None:
    """Rate of each second, asked and measured."""
    (entry,) = rows
    seconds = range(len(entry["asked_bps"]))
    asked, measured = ([value / 1e6 for value in entry[key]] for key in ("asked_bps", "measured_bps"))
    ax.step(seconds, asked, where="mid", color="#aaaaaa", linewidth=2.6, label="asked")
    ax.step(seconds, measured, where="mid", color=BLUE, linewidth=0.9, label="measured")
    ax.set_ylim(0, 1.25 * max(*asked, *measured))
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel("Second")
    ax.set_ylabel("UDP goodput (Mbit/s)")
    ax.legend(fontsize=SMALL_PT, ncols=2, loc="upper right")


def _by_backend(rows: Sequence[Row]) -> dict[str, list[Row]]:
    present = [name for name in STYLES if any(entry["backend"] == name for entry in rows)]
    return {name: [entry for entry in rows if entry["backend"] == name] for name in present}
