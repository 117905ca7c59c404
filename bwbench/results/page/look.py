"""The palette of ``figures.style`` for a page: the same colour for an arm, lifted where it would drown in the dark."""

from __future__ import annotations

import colorsys
from typing import Any

from bwbench.results.figures.style import arm_style

DARK_BACKGROUND = "#161b22"  # --surface of page.css in the dark
CONTRAST = 4.5  # on it, at least: thin lines need as much as text

_SYMBOLS = {
    "s": "square", "o": "circle", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "P": "cross", "X": "x",
    "*": "star", "h": "hexagon", "H": "hexagon2", "p": "pentagon", "<": "triangle-left", ">": "triangle-right",
    "d": "diamond-tall", "8": "octagon",
}  # fmt: skip
_LINE_PX = 2.0


def arm_look(arm: str, role: str) -> dict[str, str]:
    """Colours, symbol and dashes of an arm, in plotly's words."""
    style = arm_style(arm, role)
    return {
        "light": style.color,
        "dark": on_dark(style.color),
        "symbol": _SYMBOLS.get(style.marker, "circle"),
        "dash": _dash(style.line),
    }


def on_dark(color: str) -> str:
    """``color``, or the nearest lighter one of its hue that can be told from the dark background."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*_channels(color))
    found = color
    while contrast(found, DARK_BACKGROUND) < CONTRAST and lightness < 1.0:
        lightness = min(1.0, lightness + 0.01)
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
        found = f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
    return "#e6edf3" if color == "#000000" else found  # black is the ink, and stays it


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG: 1 for equal ones, 21 for black and white."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _dash(line: Any) -> str:
    """A matplotlib line style, whose dashes count in widths of the line, as plotly's list of pixels."""
    if isinstance(line, str):
        return "solid"
    return ",".join(f"{_LINE_PX * length:g}px" for length in line[1])
