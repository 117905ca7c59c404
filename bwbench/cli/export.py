"""``bwbench export``: records as one flat table, for other programs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.base.errors import EXIT_OK, ConfigError, RecordError
from bwbench.cli.plot import check_folder

if TYPE_CHECKING:
    from bwbench.results.analysis.cells import Row


class Format(str, Enum):
    """How the table is written."""

    parquet = "parquet"
    csv = "csv"
    json = "json"


class What(str, Enum):
    """What a row is."""

    cells = "cells"
    evaluations = "evaluations"
    steps = "steps"


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    to: Annotated[Format, typer.Option(help="Format of the table.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="stdout; bwbench-WHAT.parquet for parquet")
    ] = None,
    what: Annotated[What, typer.Option(help="What a row is.")] = What.cells,
) -> int:
    """Write one flat table: a row a cell with configuration, outcome, link and provenance; or evaluations, or steps.

    Numbers are in SI units, which end the names of their columns. A file is replaced as a whole or not at all.
    """
    from bwbench.cli.output import say_unreadable
    from bwbench.records import iter_cells, readable
    from bwbench.results.analysis.export import WHAT

    check_folder(folder)
    if out is not None and out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; name a file, e.g. {out / f'{what.value}.{to.value}'}")
    cells, refused = readable(iter_cells(folder))
    rows: list[Row] = []
    for cell in cells:
        try:
            rows += WHAT[what.value]([cell])
        except RecordError as error:  # of its events, which are read for rows of evaluations and steps alone
            refused.append(error)
    skipped = []
    if what is What.steps and (num_packed := sum(cell.is_packed for cell in cells)):
        skipped.append(f"steps of {num_packed} published cells: records that are published hold none")
    if not rows:
        why = f" ({[*refused, *skipped][-1]})" if refused or skipped else ""
        raise ConfigError(f"{folder}: there are no {what.value} to export{why}")
    say_unreadable(refused)
    for line in skipped:
        print(f"note: left out: {line}", file=sys.stderr)
    if out is None and to is Format.parquet:
        out = Path(f"bwbench-{what.value}.parquet")
    if out is None:
        _write(rows, to, sys.stdout)
        return EXIT_OK
    try:
        with _replaced(out) as part:
            if to is Format.parquet:
                _frame(rows).to_parquet(part, index=False)
            else:
                with part.open("w", encoding="utf-8", newline="") as file:
                    _write(rows, to, file)
    except OSError as error:
        raise RecordError(f"{out} cannot be written: {error.strerror or error}") from None
    print(out)
    return EXIT_OK


def _write(rows: list[Row], to: Format, file: Any) -> None:
    from csv import DictWriter
    from json import dumps

    if to is Format.json:
        file.write('{"rows": [\n' + ",\n".join(dumps(row, allow_nan=False) for row in rows) + "\n]}\n")
        return
    writer = DictWriter(file, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _columns(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _frame(rows: list[Row]) -> Any:
    """A column of unlike values (a model's option that is a number here and a word there) becomes text."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=_columns(rows))
    for column in frame.columns:
        values = frame[column].dropna()
        kinds = {bool if isinstance(value, bool) else float if isinstance(value, (int, float)) else str
                 for value in values}  # fmt: skip
        if len(kinds) > 1:
            frame[column] = frame[column].map(lambda value: None if pd.isna(value) else str(value))
    return frame


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place at the end, and is gone where that fails."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
