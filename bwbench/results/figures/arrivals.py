"""When do the repeats arrive, and how many do not: the share of each arm's repeats that has arrived, over time.

A mean over repeats that were given up at their limit is a fit, which supposes that logarithms of times are normal. This
picture supposes nothing: it is the estimate of Kaplan and Meier, in which a repeat counts for as long as it was
watched. It is a picture only; nothing that is printed elsewhere rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

from bwbench.results.analysis.cells import Row
from bwbench.results.analysis.censored import ArrivalStep, arrival_steps, half_arrived
from bwbench.results.analysis.results import Results, arrivals_by_seed, once
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.families import MOST_LINES
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.lines import LineEnd, name_ends
from bwbench.results.figures.marks import arm_handle, draw_mark, label_log_axis
from bwbench.results.figures.style import FAINT, PAGE_IN, TEXT_PT, ArmStyle, arm_style

_HALF: Any = {"color": FAINT, "linewidth": 0.8, "linestyle": (0, (3, 2)), "zorder": 1}
_BODY_IN = 2.6
_NAME_IN = 1.25 * TEXT_PT / 72  # a name at the end of its line
_ROOM = 1.12  # times: before the first arrival, and behind the last event
_DODGE = 0.012  # of all repeats, between neighbouring arms, so that level stretches do not hide each other
_DODGE_SHARE = 0.5  # of the smallest step, which all arms together stay within


class Arrivals(AbstractFigure):
    """A step function an arm. Ticks are repeats that were given up; marks stand where half have arrived."""

    name = "arrivals"
    in_detail = True

    def applies(self, results: Results) -> str | None:
        """Needs an arm of which some repeats arrived and others did not.

        Where all of them arrived, time-to-accuracy has each as a dot, and their mean is no fit. Where none did, all
        that is known is the limit, which is its bound there. Only in between something is to be seen here that no other
        figure has: what the fitted mean of such an arm rests on.
        """
        if why_not := captions.without_times_to_target(results):
            return why_not
        num = results.times[["num", "num_censored"]]
        mixed = (num["num_censored"] > 0) & (num["num_censored"] < num["num"])
        return None if mixed.any() else "no arm has repeats that reached the target beside some that did not"

    def table(self, results: Results) -> pd.DataFrame:
        """One row an arm and time at which repeats arrived or were given up."""
        rows: list[Row] = []
        for curve in curves_of(results):
            for step in curve.steps:
                row: Row = {"arm": curve.arm, "time_s": step.time_s, "num_at_risk": step.num_at_risk}
                row |= {"num_arrived": step.num_arrived, "num_censored": step.num_censored}
                rows.append(row | {"share_arrived": float(step.share), "half": step.time_s == curve.half_s})
        return pd.DataFrame(rows)

    def _draw(self, results: Results, width_in: float) -> Figure:
        curves, named = _drawn(everyone := curves_of(results)), width_in >= PAGE_IN
        setting = captions.setting_line(results, num_runs=[curve.num for curve in curves])
        title = f"Repeats that have reached {captions.timed_target(results)}{captions.common_marks(results).text}"
        left_out = [curve for curve in everyone if curve not in curves]
        notes = [_how_to_read(curves, named=named), *_not_drawn(left_out), *results.notes]
        times = [step.time_s for curve in curves for step in curve.steps]
        unit = captions.time_unit(math.sqrt(min(times) * max(times)))
        left, right = min(times) / unit.seconds / _ROOM, max(times) / unit.seconds * _ROOM
        entries = [] if named else [arm_handle(curve.style, curve.label) for curve in curves]
        body_in = max(_BODY_IN, _NAME_IN * len(curves) + 0.5) if named else _BODY_IN
        figure, axes = framed_axes(width_in, body_in, title, setting, notes, entries)
        axes.set_xscale("log")
        axes.set_xlim(left, right)
        axes.axhline(0.5, **_HALF)
        for curve, up in zip(curves, dodges := _dodges(curves), strict=True):
            _draw_curve(axes, curve, up, unit.seconds, dotted=named)
        axes.grid(True)
        axes.set_ylim(-0.08, 1.08)
        axes.yaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_ylabel("share of the repeats")
        axes.set_xlabel(f"training time ({unit.symbol}, evaluation excluded)")
        label_log_axis(axes.xaxis, left, right, length_in=2.5)
        if named:
            levels = [float(curve.steps[-1].share) + up for curve, up in zip(curves, dodges, strict=True)]
            named_ends = zip(levels, curves, strict=True)
            name_ends(figure, axes, [LineEnd(None, y, of.label, of.style.color) for y, of in named_ends], [])
        return figure


def _how_to_read(curves: Sequence[ArrivalCurve], *, named: bool) -> str:
    words = [
        "Steps: by Kaplan and Meier, of each arm; after the names: how many repeats arrived.",
        "Ticks: repeats that were given up there, at their limit, and count until then.",
        "Full marks: where half have arrived.",
    ]
    if any(curve.half_s is None for curve in curves):
        words.append("Hollow marks, at the end: of arms of which fewer did.")
    if named:
        words.append("Dotted: from there on no repeat was watched.")
    return " ".join([*words, "Lines are moved a little up or down, so that none hides another."])


@dataclass(frozen=True)
class ArrivalCurve:
    """What is drawn of one arm.

    Attributes:
        half_s: when half of its repeats have arrived; None where fewer do.
        num: repeats, of which ``num_arrived`` have arrived.
    """

    arm: str
    label: str
    style: ArmStyle
    steps: tuple[ArrivalStep, ...]
    half_s: float | None
    num: int

    @property
    def num_arrived(self) -> int:
        """How many of its repeats reached the target."""
        return sum(step.num_arrived for step in self.steps)


@once
def curves_of(results: Results) -> list[ArrivalCurve]:
    """The arms with a time or a limit, first those of which half arrive earliest, then those that most arrive of."""
    curves, marks = [], captions.common_marks(results)
    for arm, part in results.cells.groupby("arm", sort=True):
        arrivals = list(arrivals_by_seed(part).values())
        if not arrivals:
            continue
        reached = [arrival.or_infinity for arrival in arrivals if arrival.time_s is not None]
        steps = arrival_steps(reached, [arrival.at_least for arrival in arrivals if arrival.time_s is None])
        label = f"{marks.label(results, str(arm))}: {len(reached)} of {len(arrivals)}"
        style = arm_style(str(arm), results.roles[str(arm)])
        curves.append(ArrivalCurve(str(arm), label, style, tuple(steps), half_arrived(steps), len(arrivals)))

    def order(curve: ArrivalCurve) -> tuple[float, float, float, str]:
        last = curve.steps[-1]
        return math.inf if curve.half_s is None else curve.half_s, -float(last.share), last.time_s, curve.arm

    return sorted(curves, key=order)


def _drawn(curves: Sequence[ArrivalCurve]) -> list[ArrivalCurve]:
    """As many as an eye can follow: those of which some arrived and some did not, then those of which all did."""

    def standing(curve: ArrivalCurve) -> int:
        return 2 if not curve.num_arrived else int(curve.num_arrived == curve.num)

    kept = sorted(curves, key=standing)[:MOST_LINES]  # of equal ones in their order
    return [curve for curve in curves if curve in kept]


def _not_drawn(curves: Sequence[ArrivalCurve]) -> list[str]:
    return [f"Not drawn, in the table beside: {'; '.join(curve.label for curve in curves)}."] if curves else []


def _dodges(curves: Sequence[ArrivalCurve]) -> list[float]:
    """For each curve the share by which it is moved up, the earliest arm highest."""
    pitch = min(_DODGE, _DODGE_SHARE / max(curve.num for curve in curves) / len(curves))
    return [pitch * ((len(curves) - 1) / 2 - number) for number in range(len(curves))]


def _draw_curve(axes: Axes, curve: ArrivalCurve, up: float, unit_s: float, *, dotted: bool) -> None:
    """From the first event to the last one; to the right edge where all have arrived and stay so.

    ``dotted``: also on to the right edge where they have not, which leads to the name there.
    """
    style, last, right = curve.style, curve.steps[-1], axes.get_xlim()[1]
    x = [step.time_s / unit_s for step in curve.steps]
    y = [float(step.share) + up for step in curve.steps]
    end = (x[-1], y[-1])
    if last.share == 1:
        x, y = [*x, right], [*y, y[-1]]
    elif dotted:
        axes.plot([x[-1], right], [y[-1]] * 2, color=style.color, linewidth=0.6, linestyle=(0, (1, 2.5)), zorder=2)
    axes.plot([x[0], *x], [up, *y], color=style.color, linestyle=style.line, linewidth=1.2, drawstyle="steps-post",
              zorder=3)  # fmt: skip
    given_up = [(step.time_s / unit_s, float(step.share) + up) for step in curve.steps if step.num_censored]
    if given_up:
        axes.plot(*zip(*given_up, strict=True), "|", color=style.color, markersize=7, markeredgewidth=1.2, zorder=4)
    if curve.half_s is None:
        draw_mark(axes, end, (None, None), style, size=4.5, hollow=True)
    else:
        draw_mark(axes, (curve.half_s / unit_s, 0.5), (None, None), style, size=6.0)
