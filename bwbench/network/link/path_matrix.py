"""A matrix of paths between places in a file: names in the first line and in the first column, a path in each cell.

    ,oregon,virginia,tokyo
    oregon,-,790 Mbit/s 33.5 ms,523 Mbit/s 48 ms
    virginia,,-,524 Mbit/s 71.5 ms
    tokyo,,,-

The row says from where, the column where to. A cell may be empty where the one across the diagonal is not: then both
directions are alike. On the diagonal stands nothing, or ``-``. Commas, semicolons or tabs divide cells; lines that
begin with ``#`` are remarks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import nearest
from bwbench.network.link.data_file import FileKind

_EMPTY = ("", "-")
_EXAMPLE = "',oregon,tokyo', then 'oregon,-,523 Mbit/s 48 ms' and 'tokyo,,-'"
PATHS = FileKind(
    "matrix of paths",
    f"names and rows: {_EXAMPLE}",
    1 << 20,  # 254 places with 16 characters a cell
    "Paths are relative to the file that names them",
    "leave out places that are no sites",
)
_Cell = TypeVar("_Cell")


def read_matrix(text: str, shown: str, parse: Callable[[str], _Cell]) -> dict[str, dict[str, _Cell]]:
    """``[from][to]`` of what ``parse`` makes of each cell that is not empty; rows in the order of the file.

    Args:
        text: in the file; shown: its name in messages.
        parse: raises ValueError, in words for the user.

    Raises ConfigError with every problem, by line: a matrix that is not square, a pair without a path, a cell that is
    none.
    """
    lines = _lines(text)
    problems: list[Problem] = []
    if not lines:
        raise ConfigError(Problem(f"has remarks alone; a matrix of paths has names and rows: {_EXAMPLE}", shown))
    first, header = lines[0]
    delimiter = next((sign for sign in "\t;," if sign in header), ",")
    corner, *names = (cell.strip() for cell in header.split(delimiter))
    if corner or len(names) < 2 or "" in names:
        text = f"the first line has to name two places or more, with an empty cell before them: {_EXAMPLE}"
        raise ConfigError(Problem(text, shown, first))
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        raise ConfigError(Problem(f"{name!r} stands twice in the first line; name each place once", shown, first))
    rows: dict[str, dict[str, _Cell]] = {}
    row_lines: dict[str, int] = {}
    for number, line in lines[1:]:
        name, *cells = (cell.strip() for cell in line.split(delimiter))
        if name not in names:
            problems.append(
                Problem(f"row {name!r} is no column.{nearest(name, names)} Columns: {', '.join(names)}", shown, number)
            )
            continue
        if name in rows:
            problems.append(Problem(f"row {name!r} stands twice, first in line {row_lines[name]}", shown, number))
            continue
        rows[name], row_lines[name] = {}, number
        if len(cells) != len(names):
            text = (
                f"row {name!r} has {len(cells)} cells, and there are {len(names)} columns: a matrix of paths is square"
            )
            problems.append(Problem(text, shown, number))
            continue
        for other, cell in zip(names, cells, strict=True):
            if cell in _EMPTY:
                continue
            if other == name:
                text = f"{name!r} has no path to itself: leave the cell empty; inside a site the link's own rate holds"
                problems.append(Problem(text, shown, number))
                continue
            try:
                rows[name][other] = parse(cell)
            except ValueError as error:
                problems.append(Problem(f"from {name!r} to {other!r}: {error}", shown, number))
    for name in names:
        if name not in rows:
            text = f"there is no row {name!r}: a matrix of paths is square, with a row for each column"
            problems.append(Problem(text, shown, lines[-1][0]))
    if not problems:
        for name in names:
            for other in names[: names.index(name)]:
                if other not in rows[name] and name not in rows[other]:
                    text = f"no path between {other!r} and {name!r}: write it in one of their rows: '100 Mbit/s 20 ms'"
                    problems.append(Problem(text, shown, row_lines[other]))
    if problems:
        raise ConfigError(problems)
    return {name: rows[name] for name in names}


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines that say something, with their numbers; an empty first cell may be a tab."""
    numbered = ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1))
    return [(number, line) for number, line in numbered if line.strip() and not line.lstrip().startswith("#")]
