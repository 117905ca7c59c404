"""``bwbench plot``: pictures of what has been recorded."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError


class Width(str, Enum):
    """Width of the pictures: one column or both columns of a paper."""

    page = "page"
    column = "column"


class Format(str, Enum):
    """Of pictures, as in ``figures.save.FORMATS``."""

    png = "png"
    pdf = "pdf"


def plot(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures.", show_default="DIR/figures")] = None,
    figure: Annotated[
        list[str] | None, typer.Option(help="Draw this figure only; repeatable.", show_default="all that apply")
    ] = None,
    width: Annotated[Width, typer.Option(help="7 in (page) or 3.4 in (column) wide.")] = Width.page,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Of figures that stand for one setting each (accuracy-over-time_10Mbps), draw those of this one only; "
            "repeatable: all parts of the name have to be given.",
            show_default="every setting",
        ),
    ] = None,
    format: Annotated[
        list[Format] | None, typer.Option(help="Pictures of this format only.", show_default="both")
    ] = None,
    folders: Annotated[
        bool, typer.Option("--folders", help="A folder for each experiment even where there is only one.")
    ] = False,
) -> int:
    """Draw the figures of an experiment as PNG and PDF, each with a JSON file of its numbers and cells.

    Prints the files written, one a line. What was not drawn, and why, is said on stderr.
    """
    check_folder(folder)
    for name in figure or []:
        check_figure(name)

    from bwbench.cli.output import say_unreadable
    from bwbench.results.analysis.results import read_cells, results_of  # pandas and matplotlib take a second to import
    from bwbench.results.analysis.tables import Reader
    from bwbench.results.figures.album import draw_albums
    from bwbench.results.figures.style import WIDTHS_IN

    formats = [one.value for one in format or Format]
    reader = Reader()
    cells, refused = read_cells(folder, reader)
    say_unreadable(refused)
    drawn = draw_albums(
        results_of(cells, reader), out or folder / "figures", figure, WIDTHS_IN[width.value], at or (), folders, formats
    )
    if not drawn.paths:
        raise ConfigError("\n  ".join([f"{folder}: there is nothing to draw", *drawn.skipped]))
    for path in drawn.paths:
        print(path)
    sys.stdout.flush()
    for line in [*drawn.notes, *(f"not drawn: {line}" for line in drawn.skipped)]:
        print(f"note: {line}", file=sys.stderr)
    return EXIT_OK


def check_folder(folder: Path) -> None:
    """Raise ConfigError where ``folder`` holds no cell."""
    from bwbench.records import iter_cells

    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name a results folder or one experiment in it")
    if next(iter_cells(folder), None) is None:
        hint = "name a results folder or one experiment in it, or make one with `bwbench run FILE`"
        raise ConfigError(f"{folder} holds no records: no <experiment>/<cell>/cell.json in it; {hint}")


def check_figure(name: str) -> None:
    """Raise ConfigError, with the nearest name, where there is no figure called ``name``."""
    from bwbench.base.registry import FIGURES

    if name not in FIGURES:
        raise ConfigError(f"--figure: {FIGURES.unknown(name)}")
