"""The picture of where nodes are worth it: crossovers as they were measured, over the closed form that is of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from matplotlib.lines import Line2D

from bwbench.methods.roles import METHOD
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.marks import draw_mark, label_log_axis
from bwbench.results.figures.style import COLUMN_IN, FAINT, TEXT_PT, arm_style, look
from paper.program.claim import Claim, Value

STEM = "crossings"
_BODY_IN = 2.5
_MARKERS = "^voXDpsP*"  # no two methods have one in common
_SPAN = (0.8, 60.0)  # S/(B·T)


class Crossing(NamedTuple):
    """A closed form with its value, and the crossover that it is of."""

    claim: Claim
    form: Value
    measured: Value


def draw_crossings(folder: Path, crossings: Sequence[Crossing], names: Sequence[str]) -> str:
    """Draws those of which both values are known; returns the stem of the picture's files below ``folder``.

    Args:
        names: what the legend calls the arm of each.
    """
    known = [
        (name, one.claim.arm, (form, measured), (one.measured.low, one.measured.high))
        for one, name in zip(crossings, names, strict=True)
        if (form := one.form.value) and (measured := one.measured.value)
    ]
    arms = {name: arm.partition("(")[0] for name, arm, *_ in known}
    styles = {
        name: replace(arm_style(arm, METHOD), marker=marker)
        for marker, (name, arm) in zip(cycle(_MARKERS), arms.items(), strict=False)
    }
    legend = [Line2D([], [], color=style.color, marker=style.marker, linestyle="None", markersize=4.5,
                     markerfacecolor="white", label=name)
              for name, style in styles.items()]  # fmt: skip
    with look():
        title, setting = "Where nodes and one node are equally fast", "S/(B·T): as measured, against the closed form"
        figure, axes = framed_axes(COLUMN_IN, _BODY_IN, title, setting, (), legend)
        axes.plot(_SPAN, _SPAN, color=FAINT, linewidth=0.8, zorder=1)
        for name, _, at, ends in known:
            draw_mark(axes, at, ends, styles[name], size=5.0, hollow=True)
            if ends[1] is None and ends[0] is not None:  # no end above is known
                color = styles[name].color
                axes.plot([at[0], at[0]], [ends[0], at[1]], color=color, linewidth=1.0, zorder=2)
                axes.annotate("", (at[0], 1.8 * at[1]), at, arrowprops={"arrowstyle": "->", "color": color})
        for axis, set_scale, set_limits in (
            (axes.xaxis, axes.set_xscale, axes.set_xlim), (axes.yaxis, axes.set_yscale, axes.set_ylim)
        ):  # fmt: skip
            set_scale("log")
            set_limits(*_SPAN)
            label_log_axis(axis, *_SPAN, _BODY_IN)
        axes.set_xlabel("closed form, (N·q - 1) / b", fontsize=TEXT_PT)
        axes.set_ylabel("measured", fontsize=TEXT_PT)
        folder.mkdir(parents=True, exist_ok=True)
        about = {"Title": title}
        figure.savefig(folder / f"{STEM}.png", dpi=200, metadata={**about, "Software": None})
        figure.savefig(folder / f"{STEM}.pdf", metadata={**about, "CreationDate": None})
    return STEM
