"""Text that is written once and rendered as LaTeX and as Markdown: numbers, escapes, and sentences as pieces."""

from __future__ import annotations

import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bwbench.base.units import BANDWIDTH

_SIGNIFICANT_DIGITS = 3
_MINUS = "−"


def significant(value: float, digits: int = _SIGNIFICANT_DIGITS, apart_from: float | None = None) -> str:
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


class TimeUnit(NamedTuple):
    """The unit of a time axis, or of a time and its interval."""

    symbol: str
    seconds: float


def time_unit(longest_s: float) -> TimeUnit:
    """The unit in which ``longest_s`` is neither tiny nor a long number."""
    if longest_s < 0.1:
        return TimeUnit("ms", 1e-3)
    if longest_s <= 600.0:
        return TimeUnit("s", 1.0)
    return TimeUnit("min", 60.0) if longest_s <= 6 * 3600.0 else TimeUnit("h", 3600.0)


def _plain(value: float, digits: int) -> str:
    """No exponent, trailing zeros kept: 0.0120, 1.20, 1204."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    if places and abs(float(text)) >= 10 ** (math.floor(math.log10(abs(value))) + 1):  # 9.996 reads 10.0, not 10.00
        text = f"{value:.{places - 1}f}"
    return text


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "±": r"\ensuremath{\pm}",
    "−": r"\ensuremath{-}",
    "→": r"\ensuremath{\rightarrow}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "≈": r"\ensuremath{\approx}",
    "∞": r"\ensuremath{\infty}",
    "⊙": r"\ensuremath{\odot}",
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "µ": r"\ensuremath{\mu}",
    "μ": r"\ensuremath{\mu}",
    "²": r"\textsuperscript{2}",
    "\N{NO-BREAK SPACE}": "~",
}
_LAST_OF_T1 = 0xFF  # what inputenc and the T1 encoding have without further packages
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|$~^&@]")


def latex(text: str) -> str:
    """``text`` for the body of a LaTeX document with T1 fonts. A character that no such font has is named instead."""
    text = _one_line(text)
    following = [*text[1:], ""]
    return "".join(_latex_character(one, after) for one, after in zip(text, following, strict=True)) if text else ""


def markdown(text: str) -> str:
    """``text`` for running text and table cells of Markdown: GitHub's, pandoc's and CommonMark."""
    escaped = _MARKDOWN.sub(lambda match: "\\" + match[0], _one_line(text))
    escaped = escaped.replace("--", r"-\-").replace("://", r"\://")  # no dash, no link of its own
    return re.sub(r"^(\d+)([.)])(?=\s)", r"\1\\\2", re.sub(r"^([+-])(?=\s)", r"\\\1", escaped))


def _one_line(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    text = re.sub(r"[\t\r\n\v\f\x85\u2028\u2029]+", " ", text)
    return "".join(character for character in text if unicodedata.category(character) not in ("Cc", "Cf", "Cs"))


def _latex_character(character: str, after: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character == "-" and after == "-":
        return "-{}"  # two of them are two, not a dash
    return character if ord(character) <= _LAST_OF_T1 else f"U+{ord(character):04X}"


_DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


@dataclass(frozen=True)
class Number:
    """A number in prose or in a table.

    Attributes:
        key: what it is, in a few words; the name of its macro is made from it.
        text: as people read it, with its unit: ``3.42 s``.
    """

    key: str
    text: str


Piece = str | Number
Phrase = tuple[Piece, ...]


def phrase(*parts: Piece | Phrase) -> Phrase:
    """One phrase of words, numbers and phrases. Words are plain text: they are escaped when written."""
    pieces: list[Piece] = []
    for part in parts:
        pieces.extend([part] if isinstance(part, (str, Number)) else part)
    return tuple(pieces)


def joined(phrases: Sequence[Phrase], separator: str = ", ", last: str | None = None) -> Phrase:
    """Phrases with a separator between them, and another one before the last: ``a, b and c``."""
    pieces: list[Piece] = []
    for index, one in enumerate(phrases):
        if index:
            pieces.append(last if last is not None and index == len(phrases) - 1 else separator)
        pieces.extend(one)
    return tuple(pieces)


def plain(text: Phrase) -> str:
    """A phrase as plain text, for terminals and messages."""
    return "".join(piece if isinstance(piece, str) else piece.text for piece in text)


class Writer(ABC):
    """Turns phrases into the text of one format."""

    @abstractmethod
    def write(self, text: Phrase) -> str:
        """The phrase, escaped."""


class MarkdownWriter(Writer):
    """Numbers stand as they are."""

    def write(self, text: Phrase) -> str:
        """The phrase, escaped for Markdown."""
        return markdown(plain(text))


class LatexWriter(Writer):
    """Numbers become macros, which are collected: ``macros`` has their definitions once all is written."""

    def __init__(self, prefix: str = "bw") -> None:
        self._prefix = prefix
        self._texts: dict[str, str] = {}

    def write(self, text: Phrase) -> str:
        """The phrase, escaped for LaTeX; a number as the use of its macro."""
        return "".join(latex(piece) if isinstance(piece, str) else self._use(piece) for piece in text)

    @property
    def macros(self) -> list[str]:
        r"""``\newcommand`` lines, in order of first use."""
        return [define(name, text) for name, text in self._texts.items()]

    def _use(self, number: Number) -> str:
        name = plain = macro_name(number.key, self._prefix)
        count = 1
        while self._texts.setdefault(name, number.text) != number.text:
            count += 1
            name = f"{plain}V{_letters(str(count))}"
        return f"\\{name}{{}}"


def define(name: str, text: str) -> str:
    """The definition of a macro that stands for a number: its unit stays on the same line."""
    return f"\\newcommand{{\\{name}}}{{{latex(text).replace(' ', '~')}}}"


def macro_name(key: str, prefix: str = "bw") -> str:
    """A name of letters alone, as TeX wants it: ``time ring-fp16`` gives ``bwTimeRingFpOneSix``."""
    words: Iterable[str] = re.findall(r"[A-Za-z]+|[0-9]", key)
    return prefix + "".join(_letters(word) for word in words)


def _letters(word: str) -> str:
    return "".join(_DIGITS[int(c)] for c in word) if word.isdigit() else word[0].upper() + word[1:]
