"""Quantities with units: text to SI once at the edge, SI to text once at the edge.

Inside the program bandwidth is in bits per second, memory in bytes, time in seconds. A bare number where a unit is due
is refused, because 10 might be Mbit/s or MB/s and the two differ by a factor of eight.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, WrapValidator

from bwbench.base.explain import refused, show

_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*?)?\s*")


@dataclass(frozen=True)
class Dimension:
    """What a quantity measures: its units as factors to SI, those used for output, and an example for messages."""

    name: str
    factors: dict[str, float]
    output: tuple[str, ...]
    example: str

    def parse(self, text: object) -> float:
        """SI value of ``text`` such as ``10 Mbit/s``; raises ValueError that shows the right form."""
        match = _NUMBER_AND_UNIT.fullmatch(str(text)) if isinstance(text, (str, int, float)) else None
        if match is None or isinstance(text, bool):
            raise ValueError(f"{text!r} is not a {self.name}; write it like '{self.example}'")
        number, unit = match.groups()
        if unit is None:
            shown = " or ".join(f"'{reading}'" for reading in self._readings(number))
            raise ValueError(f"{text!r} has no unit; a {self.name} needs one: {shown}")
        if unit not in self.factors:
            by_lower = {known.lower(): known for known in self.factors}
            spelled = {
                "bps": "bit/s",
                "kbps": "kbit/s",
                "mbps": "Mbit/s",
                "gbps": "Gbit/s",
                "mbit": "Mbit/s",
                "sec": "s",
            }
            near = by_lower.get(unit.lower()) or spelled.get(unit.lower())
            hint = f" Did you mean {near!r}?" if near in self.factors else ""
            if self.factors.get("bit/s") and (of_bytes := re.fullmatch(r"([kKMG]?)(B/s|Bps)", unit)) is not None:
                bits = self._si(8 * float(number), f"{of_bytes[1].replace('K', 'k')}bit/s")
                hint = f" {number} {unit} of bytes are '{self.format(bits)}'."
            raise ValueError(f"{unit!r} is not a unit of {self.name}.{hint} Allowed: {', '.join(self.factors)}")
        return self._si(float(number), unit)

    def _readings(self, number: str) -> list[str]:
        """What a bare number may have meant, with its unit: that of the example, the SI unit, or either."""
        unit = self.example.split(" ", 1)[1]
        si, value = next(name for name, factor in self.factors.items() if factor == 1), float(number)
        usual = f"{number} {unit}"
        if unit == si:
            return [usual]
        if self.factors[unit] > 1:  # 10 is 10 Mbit/s, 10e6 as well
            return [usual] if value < 1000 else [self.format(value)]
        return [usual, f"{number} {si}" if value >= 1 or value <= 0 else self.format(value)]

    def format(self, value: float) -> str:
        """Shortest text that parses back to ``value``: 10000000.0 gives ``10 Mbit/s``."""
        if value == 0:
            return f"0 {self.output[0]}"
        unit = self._unit_of(value)
        number = self._in(value, unit)
        for digits in range(1, 18):
            text = f"{number:.{digits}g}"
            if self._si(float(text), unit) == value:
                break
        else:  # no decimal number of this unit is this float; in the SI unit there always is one
            text, unit = repr(value), next(name for name, factor in self.factors.items() if factor == 1)
        text = repr(int(float(text))) if float(text).is_integer() and abs(float(text)) < 1e15 else text
        return f"{text} {unit}"

    def show(self, value: float, digits: int) -> str:
        """For people, rounded to so many digits: 16.1 Mbit/s. It need not parse back to any float."""
        unit = self._unit_of(value)
        text = rounded(self._in(value, unit), digits)  # once, in the unit in which it is read: 65.55 s are 1.09 min
        shown = self._si(float(text), unit)
        carried = self._unit_of(shown)  # 999.7 ms are 1 s
        return f"{text if carried == unit else rounded(self._in(shown, carried), digits)} {carried}"

    def span(self, low: float, high: float, digits: int) -> str:
        """For people: ``508 to 790 Mbit/s``; one of both where they read the same."""
        first, last = self.show(low, digits), self.show(high, digits)
        number, _, unit = first.partition(" ")
        return last if first == last else f"{number if last.endswith(f' {unit}') else first} to {last}"

    def _unit_of(self, value: float) -> str:
        """The largest unit of which ``value`` is at least one."""
        unit = self.output[0]
        for candidate in self.output:
            if abs(value) >= self.factors[candidate] * (1 - 1e-12):
                unit = candidate
        return unit

    def _in(self, value: float, unit: str) -> float:
        factor = self.factors[unit]
        return value / factor if factor >= 1 else value * round(1 / factor)

    def _si(self, number: float, unit: str) -> float:
        """Rounded once: 0.1 ms is 1e-4 s, which 0.1 * 1e-3 is not."""
        factor = self.factors[unit]
        return number * factor if factor >= 1 else number / round(1 / factor)


def rounded(number: float, digits: int) -> str:
    """For people: so many digits, and never an exponent: 17710, where ``g`` makes 1.771e+04."""
    return format(Decimal(f"{number:.{digits}g}"), "f")


BANDWIDTH = Dimension(
    "bandwidth",
    {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9},
    ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"),
    "10 Mbit/s",
)
DURATION = Dimension(
    "duration", {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}, ("us", "ms", "s", "min", "h"), "2.5 ms"
)
MEMORY = Dimension(
    "size",
    {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3},
    ("B", "kB", "MB", "GB"),
    "64 kB",
)
SAMPLES = Dimension("number of samples", {"samples": 1.0}, ("samples",), "2000 samples")


def _quantity(dimension: Dimension, low: float = 0.0, *, exclusive: bool = False, high: float = math.inf) -> Any:
    def validate(value: Any) -> float:
        try:
            number = dimension.parse(value)
        except ValueError as error:
            raise refused(str(error)) from None
        if not math.isfinite(number):
            raise refused(f"{str(value)!r} is beyond all bounds")
        if number <= low if exclusive else number < low:
            bound = "more than 0" if exclusive else f"{dimension.format(low)} or more" if low else "0 or more"
            raise refused(f"{str(value)!r} is out of range: it must be {bound}")
        if number > high:
            raise refused(f"{str(value)!r} is out of range: at most {dimension.format(high)}")
        return number

    return Annotated[
        float,
        BeforeValidator(validate),
        PlainSerializer(dimension.format, return_type=str),
        WithJsonSchema({"type": "string", "examples": [dimension.example], "title": dimension.name}),
    ]


# Types for pydantic models: SI floats inside, text with a unit in YAML and JSON (both directions).
# mypy sees them as floats; pydantic sees the annotations.
Bandwidth = _quantity(BANDWIDTH, exclusive=True)
Duration = _quantity(DURATION)
PositiveDuration = _quantity(DURATION, exclusive=True)
Memory = _quantity(MEMORY, exclusive=True)
# Of a link: slower than a modem, faster than any port, or later than TCP waits is a slip of the unit.
LinkRate = _quantity(BANDWIDTH, low=1e3, high=1e12)
LinkDelay = _quantity(DURATION, high=60.0)
# What the relay does again and again: shorter ones, or smaller ones, would keep it busy for ever.
Period = _quantity(DURATION, low=1e-3)
Quantum = _quantity(MEMORY, low=64)
Samples = _quantity(SAMPLES, exclusive=True)


def percentage(text: str) -> float | None:
    """``5 %`` as 0.05, to the last bit; None for any other text."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] != "%":
        return None
    try:
        return float(Decimal(match[1]) / 100)
    except ArithmeticError:  # an exponent beyond all bounds
        return None


def _number_of(text: str) -> float | None:
    """``0.05`` and ``5 %``, as options of the command line have them; None for any other text."""
    try:
        return float(text)
    except ValueError:
        return percentage(text)


def _share(*, zero: bool, one: bool) -> Any:
    """A number from 0 to 1, or a percentage; ``zero`` and ``one`` say whether those two belong to it."""
    allowed = f"{'0 or more' if zero else 'more than 0'} and {'at most' if one else 'less than'} 1 (100 %)"

    def validate(value: object) -> object:
        share = _number_of(value) if isinstance(value, str) else value
        if isinstance(share, bool) or not isinstance(share, (int, float)) or math.isnan(share):
            return value  # which pydantic refuses
        if 0 < share < 1 or (zero and share == 0) or (one and share == 1):
            return share
        bare = not (isinstance(value, str) and "%" in value)
        meant = f"; for {share:g} percent write '{share:g} %'" if bare and 1 < share < 100 else ""
        raise refused(f"{show(value)} is out of range: it must be {allowed}{meant}")

    text: Any = Annotated[str, Field(pattern=r"^\s*[0-9.eE+-]+\s*%\s*$")]
    bounds: Any = {"ge" if zero else "gt": 0.0, "le" if one else "lt": 1.0}
    number: Any = Annotated[float, Field(**bounds)]
    return Annotated[number, BeforeValidator(validate, json_schema_input_type=number | text)]


Probability = _share(zero=True, one=False)
Share = _share(zero=True, one=True)
PositiveShare = _share(zero=False, one=True)


# A size in bytes or the word "auto"; a union of both would make two errors out of one mistake.
MemoryOrAuto: Any = Annotated[
    Memory,
    WrapValidator(lambda value, handler: value if value == "auto" else handler(value)),
    PlainSerializer(lambda value: value if value == "auto" else MEMORY.format(value), return_type=str),
]
