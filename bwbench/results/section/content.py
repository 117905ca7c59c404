"""The section before it has a format: parts with paragraphs, lists and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bwbench.results.text import Phrase


@dataclass(frozen=True)
class Paragraph:
    """Sentences that belong together."""

    text: Phrase
    kind: str = "paragraph"


@dataclass(frozen=True)
class Bullets:
    """A list, an item a line."""

    items: Sequence[Phrase]
    kind: str = "bullets"


@dataclass(frozen=True)
class Table:
    """A table whose cells have one line or more: a value, and its interval below it.

    Attributes:
        label: for references, letters and hyphens alone.
        rows: of cells, of lines.
        names: how many of the first columns hold names, which stand on the left.
    """

    label: str
    caption: Phrase
    header: Sequence[Phrase]
    rows: Sequence[Sequence[Sequence[Phrase]]]
    names: int = 1
    kind: str = "table"


Block = Paragraph | Bullets | Table


@dataclass(frozen=True)
class Part:
    """A heading and what stands below it. ``level`` 1 is an experiment, 2 a question about it, 3 one of its groups."""

    level: int
    title: Phrase
    blocks: list[Block] = field(default_factory=list)
