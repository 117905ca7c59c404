"""The one look of all figures: sizes, fonts, and a colour, marker and line that an arm keeps everywhere.

Colours are Okabe and Ito's and Tol's, which colour-blind readers can tell apart; in grey, marker and line style do it.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import matplotlib

from bwbench.methods.roles import HEADROOM, REFERENCE

COLUMN_IN = 3.4  # one column of a two-column paper
PAGE_IN = 7.0  # both columns
WIDTHS_IN = {"column": COLUMN_IN, "page": PAGE_IN}

TITLE_PT = 9.0
TEXT_PT = 7.5
SMALL_PT = 6.5
NOTE_PT = 6.0

INK = "#222222"
FAINT = "#666666"
GRID = "#e3e3e3"

_SOLID: Any = "-"
_DASHED: Any = (0, (5, 1.5))
_DOTTED: Any = (0, (1.2, 1.2))
_DASH_DOT: Any = (0, (5, 1.5, 1.2, 1.5))
_LONG: Any = (0, (9, 2))


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn. ``line`` is a matplotlib line style."""

    color: str
    marker: str
    line: Any


_ROLES = {REFERENCE: ArmStyle("#000000", "s", _SOLID), HEADROOM: ArmStyle("#8c8c8c", "o", _DASHED)}
_REFERENCES = {"muloco-1": ArmStyle("#cc6677", "s", _DOTTED)}  # beside the usual one
# No two have both outline and dashes in common, in which circle, hexagon and octagon are one outline at this size.
_ARMS = {
    "ddp": ArmStyle("#0072b2", "o", _SOLID),
    "ring": ArmStyle("#d55e00", "^", _LONG),
    "ring-unpaced": ArmStyle("#a04000", "s", _DOTTED),
    "ring-fp16": ArmStyle("#e69f00", "v", _DASHED),
    "threshold": ArmStyle("#009e73", "D", _DASH_DOT),
    "parameter-server": ArmStyle("#cc79a7", "P", _DOTTED),
    "ring-bf16": ArmStyle("#b8860b", "8", _LONG),
    "bytegrad": ArmStyle("#56b4e9", "X", _SOLID),
    "qadam": ArmStyle("#332288", "*", _DASHED),
    "decentralized": ArmStyle("#882255", "h", _DOTTED),
    "low-precision-decentralized": ArmStyle("#aa4499", "H", _DASH_DOT),
    "async": ArmStyle("#999933", "p", _DOTTED),
    "local-sgd": ArmStyle("#44aa99", ">", _SOLID),
    "diloco": ArmStyle("#117733", "d", _LONG),
    "muloco": ArmStyle("#cc6677", "D", _DASHED),
    "top-k": ArmStyle("#6b4c2a", "<", _DASH_DOT),
    "powersgd": ArmStyle("#ee3377", "p", _LONG),
    "demo": ArmStyle("#6f4fa8", "*", _SOLID),
}
_LEARNING = ("optimizer=", "weight_average=")  # options that are no method's
_OTHER_COLORS = ("#56b4e9", "#882255", "#999933", "#332288", "#44aa99", "#6b4c2a", "#aa4499", "#117733")
_OTHER_MARKERS = ("X", "d", ">", "*", "<", "p", "h", "8", "H")  # those that look round come last
_OTHER_LINES = (_SOLID, _DASHED, _DASH_DOT, _LONG)

# Parts of a step, from the node's own work to the network. Neighbours differ in lightness.
PART_COLORS = {
    "compute_s": "#4a5a70",
    "pad_s": "#a9bad1",
    "codec_s": "#f0e442",
    "peers_s": "#56b4e9",
    "link_s": "#d55e00",
    "exposed_s": "#b08fc7",
    "optimizer_s": "#007a5a",
    "other_s": "#d6d6d6",
}


_BESIDE: ContextVar[Mapping[str, ArmStyle] | None] = ContextVar("_BESIDE", default=None)  # arms that are drawn together


def arm_style(arm: str, role: str) -> ArmStyle:
    """How ``arm`` is drawn, alike in every figure of every experiment. Names not listed get a style by checksum.

    An optimizer or an average of the weights makes no other colour: what all arms of one study have is no part of their
    names, and the same method would change its look from one study to the next.

    References and headrooms are drawn by their role, whatever their name; those of which there are several, because
    they come with several optimizers, by their name. Inside ``told_apart`` an arm whose colour and marker another one
    beside it has gets others.
    """
    return (_BESIDE.get() or {}).get(arm) or _own_style(arm, role)


@contextmanager
def told_apart(roles: Mapping[str, str]) -> Iterator[None]:
    """No two of these arms, of these roles, have both colour and marker in common meanwhile."""
    token = _BESIDE.set(_styles_of(roles))
    try:
        yield
    finally:
        _BESIDE.reset(token)


def _styles_of(roles: Mapping[str, str]) -> dict[str, ArmStyle]:
    """Arms that are listed, or drawn by their role, keep their look; of others the first by name, and whoever comes
    later takes the next marker, else the next colour as well."""
    kept = [arm for arm, role in roles.items() if _drawn_by_role(arm, role) or arm in _ARMS]
    styles = {arm: _own_style(arm, roles[arm]) for arm in kept}
    taken = {(style.color, style.marker) for style in styles.values()}
    for arm in sorted(roles.keys() - set(kept)):
        own = _own_style(arm, roles[arm])
        ways = itertools.product(_from(_OTHER_COLORS, own.color), _from(_OTHER_MARKERS, own.marker))
        color, marker = next((way for way in ways if way not in taken), (own.color, own.marker))
        styles[arm] = replace(own, color=color, marker=marker)
        taken.add((color, marker))
    return styles


def _from(values: tuple[str, ...], first: str) -> tuple[str, ...]:
    """All of them, beginning with ``first``, which need not be among them."""
    if first not in values:
        return (first, *values)
    start = values.index(first)
    return values[start:] + values[:start]


def _drawn_by_role(arm: str, role: str) -> bool:
    return role in _ROLES and "(" not in arm


def _own_style(arm: str, role: str) -> ArmStyle:
    if _drawn_by_role(arm, role):
        return _REFERENCES.get(arm, _ROLES[role])
    name, _, options = arm.removesuffix(")").partition("(")
    method = ",".join(option for option in options.split(",") if not option.startswith(_LEARNING))
    arm = f"{name}({method})" if method else name
    if arm in _ARMS:
        return _ARMS[arm]
    number = zlib.crc32(arm.encode())
    color = _OTHER_COLORS[number % len(_OTHER_COLORS)]
    marker = _OTHER_MARKERS[number // 8 % len(_OTHER_MARKERS)]
    return ArmStyle(color, marker, _OTHER_LINES[number // 128 % len(_OTHER_LINES)])


@contextmanager
def look() -> Iterator[None]:
    """matplotlib's settings for the time of drawing and saving; what the caller has set is back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in _SETTINGS.items():
            matplotlib.rcParams[name] = value  # type: ignore[index]  # newer stubs list every name as a literal
        yield


_SETTINGS: dict[str, object] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
    "text.parse_math": False,  # a dollar sign in a name is one
    "font.size": TEXT_PT,
    "axes.titlesize": TEXT_PT,
    "axes.labelsize": TEXT_PT,
    "xtick.labelsize": TEXT_PT,
    "ytick.labelsize": TEXT_PT,
    "legend.fontsize": TEXT_PT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: text stays text, and journals accept it
    "ps.fonttype": 42,
    "savefig.dpi": 200,
    "figure.dpi": 200,
}
