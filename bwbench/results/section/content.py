"""The section before it has a format: parts with paragraphs, lists and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from bwbench.base.units import BANDWIDTH
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.text import Number, Phrase, phrase, significant


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
    """A table whose cells have one line or more: a value, and its interval below it. Its first column holds names.

    Attributes:
        label: for references, letters and hyphens alone.
        rows: of cells, of lines.
        align: of the columns in LaTeX, a letter each; numbers behind names on the right where it is empty.
    """

    label: str
    caption: Phrase
    header: Sequence[Phrase]
    rows: Sequence[Sequence[Sequence[Phrase]]]
    align: str = ""
    kind: str = "table"


Block = Paragraph | Bullets | Table


@dataclass(frozen=True)
class Part:
    """A heading and what stands below it. ``level`` 1 is an experiment, 2 a question about it, 3 one of its groups."""

    level: int
    title: Phrase
    blocks: list[Block] = field(default_factory=list)


_MOST_COLUMNS = 5  # of values with their intervals below them, on a page of one column

Lines = Sequence[Phrase]  # what stands in one cell, a line each


def grid_tables(
    label: str,
    caption: Phrase,
    arms: Mapping[str, str],
    bandwidths: Sequence[float | None],
    cell: Callable[[str, float | None], Lines],
    below: Mapping[str, Lines] = MappingProxyType({}),
) -> Iterator[Table]:
    """One table, or several where there are more bandwidths than fit, each with all arms that have a value there.

    Args:
        arms: by recorded name, in their order; what each is called.
        below: what stands below the name of an arm.
        bandwidths: in bit/s, in the order of the columns; None is a column for arms without a link.
        cell: the lines of an arm at a bandwidth; none where it has no value.
    """
    count = -(-len(bandwidths) // _MOST_COLUMNS)
    size = -(-len(bandwidths) // max(1, count))  # parts of nearly equal width
    parts = [bandwidths[start : start + size] for start in range(0, len(bandwidths), size)]
    for number, part in enumerate(parts, start=1):
        rows = []
        for arm, label in arms.items():
            cells = [cell(arm, bandwidth) for bandwidth in part]
            if any(cells):
                rows.append([[phrase(label), *below.get(arm, [])], *(lines or [phrase("–")] for lines in cells)])
        if not rows:
            continue
        said = phrase(caption, f" Part {number} of {len(parts)}.") if len(parts) > 1 else caption
        name = f"{label}-{number}" if len(parts) > 1 else label
        yield Table(name, said, [phrase("arm"), *map(column_title, part)], rows)


def column_title(bandwidth_bps: float | None) -> Phrase:
    """The head of a column."""
    text = place(bandwidth_bps)
    return phrase(text if bandwidth_bps is None else Number(f"bandwidth {text}", text))


def place(bandwidth_bps: float | None) -> str:
    """Where a number comes from, as part of its key."""
    return "no link" if bandwidth_bps is None else BANDWIDTH.show(bandwidth_bps, 4)


@dataclass(frozen=True)
class RatioWords:
    """What may be said of a ratio.

    Attributes:
        side: 1 where the arm is certainly the faster one, -1 where the reference is, 0 where that cannot be told.
        value: the ratio, with ``>`` or ``<`` where it is a bound.
        basis: in brackets: interval, n, how many did not reach the target.
    """

    side: int
    value: Phrase
    basis: Phrase


def ratio_words(ratio: Ratio | None, key: str) -> RatioWords | None:
    """Words for a ratio (reference over arm); None where there is none.

    A bound tells a side where it lies on it. Without interval and bound (one repeat) no
    side is certain.
    """
    if ratio is None:
        return None
    side = side_of(ratio.value, ratio.low, ratio.high, ratio.bound)
    bound = f"{ratio.bound} " if ratio.bound else ""
    value = phrase(Number(f"ratio {key}", f"{bound}{significant(ratio.value, apart_from=1.0)}"))
    count = phrase("n = ", Number(f"ratio n {key}", str(ratio.num)))
    if ratio.low is not None and ratio.high is not None:
        low, high = (significant(end, apart_from=1.0) for end in (ratio.low, ratio.high))
        ends = phrase("95 % interval ", Number(f"ratio low {key}", low), " to ", Number(f"ratio high {key}", high))
    elif ratio.num_censored:
        missed = Number(f"ratio censored {key}", str(ratio.num_censored))
        ends = phrase("bound, target not reached by ", missed)
    else:
        ends = phrase("no interval")
    return RatioWords(side, value, phrase("(", ends, ", ", count, ")"))


def side_of(value: float, low: float | None, high: float | None, bound: str, reference: float = 1.0) -> int:
    """1 where the value is certainly above ``reference``, -1 where below, 0 where that cannot be told."""
    if low is not None and high is not None:
        return (low > reference) - (high < reference)
    if bound == ">":
        return int(value > reference)
    return -int(value < reference) if bound == "<" else 0
