"""A table of arms against bandwidths, in as many pieces as fit on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bwbench.base.units import BANDWIDTH
from bwbench.results.section.content import Table
from bwbench.results.text import Number, Phrase, phrase

_MOST_COLUMNS = 5  # of values with their intervals below them, on a page of one column

Lines = Sequence[Phrase]  # what stands in one cell, a line each


def grid_tables(
    label: str,
    caption: Phrase,
    arms: Sequence[str],
    bandwidths: Sequence[float | None],
    cell: Callable[[str, float | None], Lines],
) -> Iterator[Table]:
    """One table, or several where there are more bandwidths than fit, each with all arms that have a value there.

    Args:
        bandwidths: in bit/s, in the order of the columns; None is a column for arms without a link.
        cell: the lines of an arm at a bandwidth; none where it has no value.
    """
    parts = _parts(bandwidths)
    for number, part in enumerate(parts, start=1):
        rows = []
        for arm in arms:
            cells = [cell(arm, bandwidth) for bandwidth in part]
            if any(cells):
                rows.append([[phrase(arm)], *(lines or [phrase("–")] for lines in cells)])
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


def _parts(bandwidths: Sequence[float | None]) -> list[Sequence[float | None]]:
    """Parts of nearly equal width."""
    count = -(-len(bandwidths) // _MOST_COLUMNS)
    size = -(-len(bandwidths) // max(1, count))
    return [bandwidths[start : start + size] for start in range(0, len(bandwidths), size)]
