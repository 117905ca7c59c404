"""Numbers as people read them: as many digits as they deserve, and never rounded across the line they are judged by."""

from __future__ import annotations

import math

from bwbench.base.units import BANDWIDTH

_DIGITS = 3
_MINUS = "−"


def significant(value: float, digits: int = _DIGITS, apart_from: float | None = None) -> str:
    """``value`` in so many digits; in more, where it would otherwise read as ``apart_from``, which it is not.

    >>> significant(1.0004, apart_from=1.0)
    '1.0004'
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    for count in range(digits, 16):
        text = _plain(value, count)
        if apart_from is None or value == apart_from or float(text) != apart_from:
            break
    return text.replace("-", _MINUS)


def percent(share: float, digits: int = 2) -> str:
    """``0.0234`` as ``2.3 %``."""
    return f"{significant(100 * share, digits)} %"


def fixed(value: float, places: int, apart_from: float | None = None) -> str:
    """``value`` with so many places; with more, where it would otherwise read as ``apart_from``."""
    for count in range(places, 12):
        text = f"{value:.{count}f}"
        if apart_from is None or value == apart_from or float(text) != apart_from:
            break
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", _MINUS)


def bandwidth(bandwidth_bps: float, digits: int = 2) -> str:
    """A computed bandwidth: ``14 Mbit/s``."""
    return BANDWIDTH.show(bandwidth_bps, digits)


def span(low: str, high: str) -> str:
    """The ends of an interval; a unit that both have is said once: ``1.2 to 1.4 s``."""
    low_number, _, low_unit = low.partition(" ")
    _, _, high_unit = high.partition(" ")
    return f"{low_number if low_unit == high_unit else low} to {high}"


def _plain(value: float, digits: int) -> str:
    """No exponent, trailing zeros kept: 0.0120, 1.20, 1204."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    if places and abs(float(text)) >= 10 ** (math.floor(math.log10(abs(value))) + 1):  # 9.996 reads 10.0, not 10.00
        text = f"{value:.{places - 1}f}"
    return text
