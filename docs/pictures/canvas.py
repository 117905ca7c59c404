"""What every picture of a rule is drawn on: an SVG of 640 x 260, large words, few of them, one look.

It is written here and not by matplotlib, so that the files are the same byte for byte on every machine and with every
version, stay at a few kB, and can be compared line by line. Letters are 17 units high: on a phone, 360 wide, still 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

from bwbench.methods.roles import METHOD
from bwbench.results.figures.style import FAINT, GRID, INK, PART_COLORS, arm_style

BLUE = arm_style("ddp", METHOD).color  # what a rule says
RED = arm_style("ring", METHOD).color  # what would be wrong
GREEN = arm_style("threshold", METHOD).color
GREY = PART_COLORS["pad_s"]
PALE = "#cfe3f1"  # blue, as an area behind lines
PALE_RED = "#fbe6d9"
WHITE = "#ffffff"

WIDTH, HEIGHT = 640, 260
LABEL, TICK = 17, 15  # height of letters
MOST_LABELS = 5  # words beside those at the ticks of an axis: a picture says one thing
FONTS = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"  # the widest first: places are made for it

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Scale:
    """From values to places: ``low`` lies at ``begin``, ``high`` at ``end``; straight, or over the logarithm."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where ``value`` lies."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        share = ((math.log(value) if self.log else value) - low) / (high - low)
        return self.begin + share * (self.end - self.begin)


class Canvas:
    """A picture in the making; ``svg`` is what it has become.

    Colours are hexadecimal, places are in units of the picture: 640 from left to right, ``height`` downwards.
    """

    def __init__(self, height: int = HEIGHT) -> None:
        self.height = height
        self.num_labels = 0
        self._parts: list[str] = []

    def line(self, points: Iterable[Point], color: str = INK, width: float = 2, *, dashed: bool = False) -> None:
        """Straight from point to point."""
        dash = ' stroke-dasharray="7 5"' if dashed else ""
        self._parts.append(
            f'<polyline points="{_points(points)}" fill="none" stroke="{color}" stroke-width="{_px(width)}"{dash}/>'
        )

    def area(self, points: Iterable[Point], color: str) -> None:
        """What the points go round, filled."""
        self._parts.append(f'<polygon points="{_points(points)}" fill="{color}"/>')

    def box(self, left: float, top: float, width: float, height: float, color: str, edge: str = "none") -> None:
        """A filled rectangle."""
        place = f'x="{_px(left)}" y="{_px(top)}" width="{_px(width)}" height="{_px(height)}"'
        self._parts.append(f'<rect {place} fill="{color}" stroke="{edge}"/>')

    def dot(self, x: float, y: float, color: str = INK, radius: float = 5.5, *, hollow: bool = False) -> None:
        """A point, or a ring."""
        fill, edge = ("#ffffff", color) if hollow else (color, "#ffffff")
        place = f'cx="{_px(x)}" cy="{_px(y)}" r="{_px(radius)}"'
        self._parts.append(f'<circle {place} fill="{fill}" stroke="{edge}" stroke-width="{2 if hollow else 1}"/>')

    def cross(self, x: float, y: float, color: str = RED, size: float = 6) -> None:
        """What does not count."""
        for sign in (-1, 1):
            self.line([(x - size, y - sign * size), (x + size, y + sign * size)], color, 3)

    def arrow(self, begin: Point, end: Point, color: str = INK, width: float = 2) -> None:
        """From ``begin`` to a head at ``end``."""
        angle = math.atan2(end[1] - begin[1], end[0] - begin[0])
        head = 5 + 2 * width
        sides = [
            (end[0] - head * math.cos(angle + turn), end[1] - head * math.sin(angle + turn)) for turn in (0.5, -0.5)
        ]
        self.line([begin, (end[0] - 0.8 * head * math.cos(angle), end[1] - 0.8 * head * math.sin(angle))], color, width)
        self.area([end, *sides], color)

    def interval(self, low: float, value: float, high: float, y: float, color: str, width: float = 4) -> None:
        """Lying: from ``low`` to ``high`` with a dot at ``value``."""
        self.line([(low, y), (high, y)], color, width)
        for end in (low, high):
            self.line([(end, y - 7), (end, y + 7)], color, 2)
        self.dot(value, y, color, 7)

    def label(
        self, x: float, y: float, words: str, color: str = INK, anchor: Anchor = "start", *, bold: bool = False
    ) -> None:
        """Words beside what they name, ``y`` at their foot; ``MOST_LABELS`` of them and no more."""
        self.num_labels += 1
        self._text(x, y, words, color, anchor, LABEL, bold=bold)

    def tick(self, x: float, y: float, words: str, anchor: Anchor = "middle") -> None:
        """A value or a name on an axis, smaller."""
        self._text(x, y, words, FAINT, anchor, TICK)

    def axis(self, scale: Scale, y: float, ticks: Sequence[tuple[float, str]]) -> None:
        """A lying axis with some values below it."""
        self.line([(scale.begin, y), (scale.end, y)], FAINT, 1.5)
        for value, words in ticks:
            self.line([(scale(value), y), (scale(value), y + 5)], FAINT, 1.5)
            self.tick(scale(value), y + 20, words)

    def level(self, scale: Scale, value: float, left: float, right: float, words: str = "", color: str = GRID) -> None:
        """A line across at a value of a standing axis, with its value left of it."""
        self.line([(left, scale(value)), (right, scale(value))], color, 1.5)
        if words:
            self.tick(left - 7, scale(value) + 5, words, "end")

    def svg(self) -> str:
        """The file."""
        if self.num_labels > MOST_LABELS:
            raise ValueError(f"{self.num_labels} labels; a picture has at most {MOST_LABELS}")
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
        head += f'width="{WIDTH}" height="{self.height}" font-family="{FONTS}">'
        ground = f'<rect width="{WIDTH}" height="{self.height}" rx="6" fill="#ffffff"/>'  # on dark pages as well
        return "\n".join([head, ground, *self._parts, "</svg>", ""])

    def _text(
        self, x: float, y: float, words: str, color: str, anchor: Anchor, size: int, *, bold: bool = False
    ) -> None:
        weight = ' font-weight="bold"' if bold else ""
        halo = ' stroke="#ffffff" stroke-width="4" paint-order="stroke" stroke-linejoin="round"'  # over lines
        place = f'x="{_px(x)}" y="{_px(y)}" font-size="{size}" text-anchor="{anchor}"'
        self._parts.append(
            f'<text {place} fill="{color}"{weight}{"" if color == WHITE else halo}>{escape(words)}</text>'
        )


def _px(value: float) -> str:
    """With one digit: the same on every machine, whatever its last bits are."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{_px(x)},{_px(y)}" for x, y in points)
