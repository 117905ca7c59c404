"""Tables as plain text: never wrapped, never styled, quick at ten thousand rows, fit for `grep` and `awk`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), indent: str = ""
) -> Iterator[str]:
    """Lines of a table, header first; columns named in ``right`` are flushed right."""
    table = [list(columns), *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        cells = [
            text.rjust(width) if name in right else text.ljust(width)
            for text, width, name in zip(row, widths, columns, strict=True)
        ]
        yield (indent + "  ".join(cells)).rstrip()
