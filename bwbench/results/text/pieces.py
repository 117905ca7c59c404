"""A sentence as pieces, so that it is written once: plain words, and numbers that become macros in LaTeX."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bwbench.results.text.escape import latex, markdown

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


class Writer(ABC):
    """Turns phrases into the text of one format."""

    @abstractmethod
    def write(self, text: Phrase) -> str:
        """The phrase, escaped."""


class MarkdownWriter(Writer):
    """Numbers stand as they are."""

    def write(self, text: Phrase) -> str:
        """The phrase, escaped for Markdown."""
        return markdown("".join(piece if isinstance(piece, str) else piece.text for piece in text))


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
