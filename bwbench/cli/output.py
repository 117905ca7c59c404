"""Where output goes: data on stdout, messages on stderr, nothing wrapped where nobody looks at a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bwbench.cli.clean_text import one_line, uncleaned

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from bwbench.base.errors import RecordError

_SHOWN_UNREADABLE = 8
MAX_ROWS = 500  # of a table: beyond that nobody reads it, and drawing it takes longer than planning
_LONGEST_TEXT = 4096  # of a table, as long as a path: a longer one would make every line as long
_NAMES = ("cell", "arm", "method")  # columns of names
_NO_BREAK = "\N{NO-BREAK SPACE}"
_NARROWEST = 24  # of a column that goes on in the next line
MUCH_LESS = "usually much less"  # behind a time up to the limit, of trainings that stop at their target
PLAIN_WIDTH = 240  # columns of a table that goes into a file or a pipe: nothing there wraps it


def stdout() -> Console:
    """Console for data."""
    from bwbench.cli.clean_console import CleanConsole

    file = uncleaned(sys.stdout)
    console = CleanConsole(file=file, highlight=False, soft_wrap=False, markup=False)
    return console if console.is_terminal else CleanConsole(file=file, highlight=False, markup=False, width=PLAIN_WIDTH)


def stderr() -> Console:
    """Console for progress and messages."""
    from bwbench.cli.clean_console import CleanConsole

    return CleanConsole(file=uncleaned(sys.stderr), stderr=True, highlight=False, markup=False, soft_wrap=True)


def table_width() -> int:
    """Columns that a table on stdout may have: those of the terminal; without end where nothing wraps it."""
    console = stdout()
    return console.width if console.is_terminal else sys.maxsize


def print_json(content: object) -> None:
    """Print ``content`` as one JSON document on stdout."""
    from json import dumps  # inside, as all that `bwbench --help` can do without

    print(dumps(content, indent=1, allow_nan=False))


def print_json_rows(key: str, rows: Iterable[object], rest: Callable[[], Mapping[str, object]]) -> None:
    """Print ``{KEY: rows, **rest()}`` as one JSON document, a row a line: quick, and never all in memory.

    Args:
        rest: called once all rows are printed.
    """
    from json import JSONEncoder  # as above

    encode = JSONEncoder(allow_nan=False).encode  # with indent it would be the encoder written in Python
    sys.stdout.write(f"{{{encode(key)}: [")
    for number, row in enumerate(rows):
        sys.stdout.write(f"{',' if number else ''}\n{encode(row)}")
    sys.stdout.write("\n]")
    for name, value in rest().items():
        sys.stdout.write(f",\n{encode(name)}: {encode(value)}")
    print("}")


def new_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table in the one look of this program; columns named in ``right`` hold numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        of_names = column in _NAMES  # broken inside, nobody could copy one
        table.add_column(column, justify="right" if column in right else "left", overflow="fold", no_wrap=of_names)
    return table


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), indent: str = ""
) -> Iterator[str]:
    """Lines of a table, header first; columns named in ``right`` are flushed right.

    Never wrapped, never styled, a row a line whatever the texts hold, quick at ten thousand rows, fit for `grep` and
    `awk`.
    """
    table = [[one_line(text[:_LONGEST_TEXT]) for text in row] for row in (columns, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        cells = [
            text.rjust(width) if name in right else text.ljust(width)
            for text, width, name in zip(row, widths, columns, strict=True)
        ]
        yield (indent + "  ".join(cells)).rstrip()


@dataclass(frozen=True)
class FittedTable:
    """A table cut to a terminal, since what is wrapped there is hard to read.

    Attributes:
        header: the columns' names; rows: the lines of each row.
        left_out: the columns that no room was for.
    """

    header: str
    rows: list[list[str]]
    left_out: list[str]

    @property
    def note(self) -> list[str]:
        """A line on what is left out; none where all is there."""
        if not self.left_out:
            return []
        return [f"(no room for {', '.join(self.left_out)}: widen the terminal, or write into a file)"]


def fit_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, *,
    less_needed: Sequence[str] = (), flowing: Sequence[str] = (), right: Collection[str] = (),
) -> FittedTable:  # fmt: skip
    """``plain_table`` in ``width`` columns, where that can be had.

    Args:
        less_needed: names of columns that are left out where room is short, in this order.
        flowing: names of columns of lists, which then go on in the next line.
    """
    kept, left_out = list(range(len(columns))), []

    def widths() -> list[int]:
        return [max(len(row[index]) for row in (columns, *rows)) for index in kept]

    def room() -> int:
        return width - sum(widths()) - 2 * (len(kept) - 1)

    for name in less_needed:
        if name in columns and room() < 0:
            kept.remove(columns.index(name))
            left_out.append(name)
    wide = dict(zip(kept, widths(), strict=True))
    lists = [index for index in kept if columns[index] in flowing]
    if (lacking := -room()) > 0:
        for index in sorted(lists, key=lambda index: wide[index]):  # the widest gives most of what is lacking
            others = sum(wide[other] for other in lists)
            given = min(math.ceil(lacking * wide[index] / others), wide[index] - _NARROWEST)
            wide[index] -= max(0, given)
    lines: list[list[str]] = []
    numbers: list[int] = []
    for number, row in enumerate((columns, *rows)):
        parts = [flowed(row[index], wide[index]) if index in lists else [row[index]] for index in kept]
        for line in range(max(map(len, parts))):
            lines.append([part[line] if line < len(part) else "" for part in parts])
            numbers.append(number)
    drawn = list(plain_table([columns[index] for index in kept], lines, right))[1:]
    found: list[list[str]] = [[] for _ in range(len(rows) + 1)]
    for number, text in zip(numbers, drawn, strict=True):
        found[number].append(text)
    return FittedTable("\n".join(found[0]), found[1:], left_out)


def flowed(text: str, width: int) -> list[str]:
    """In lines of at most ``width``: broken at commas, and at blanks only in what is too long by itself; never inside a
    word."""
    from textwrap import wrap  # `bwbench --help` can do without it

    parts = [part if len(part) >= width else part.replace(" ", _NO_BREAK) for part in text.split(", ")]
    lines = wrap(", ".join(parts), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines] or [""]


def seconds(value: float | None) -> str:
    """A duration for people: ``0.42 s``, ``12.3 s``, ``4 min 10 s``."""
    if value is None:
        return "-"
    if value < 60:
        from bwbench.base.units import rounded  # inside, as it brings pydantic

        return f"{rounded(value, 3)} s" if value < 10 else f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def size(value: float | None) -> str:
    """A number of bytes for people, in powers of ten: ``1.5 MB``."""
    if value is None:
        return "-"
    from bwbench.base.units import rounded  # as above

    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{rounded(value, 3)} {unit}"


def say_unreadable(refused: Sequence[RecordError]) -> None:
    """Notes on stderr: which cells cannot be read and are left out, each with its reason, and how many there are."""
    for error in refused[:_SHOWN_UNREADABLE]:
        print(f"note: left out: {error}", file=sys.stderr)
    if len(refused) > _SHOWN_UNREADABLE:
        more = len(refused) - _SHOWN_UNREADABLE
        print(f"note: left out: {more} more; `bwbench status` names them all", file=sys.stderr)
    if refused:
        words = "1 cell is" if len(refused) == 1 else f"{len(refused)} cells are"
        print(f"note: {words} unreadable", file=sys.stderr)
