"""``bwbench report``: what has been recorded, as a page to explore or as a section for a paper."""

from __future__ import annotations

import contextlib
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError
from bwbench.cli.plot import check_folder

if TYPE_CHECKING:
    from bwbench.records import CellFolder
    from bwbench.results.analysis.tables import Reader


class ReportFormat(str, Enum):
    """What is written: one HTML file, or a section in one of two markup languages."""

    html = "html"
    latex = "latex"
    markdown = "markdown"


_NAMES = {ReportFormat.html: "report.html", ReportFormat.latex: "report.tex", ReportFormat.markdown: "report.md"}


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="DIR/report.html, .tex or .md")
    ] = None,
    format: Annotated[
        ReportFormat, typer.Option(help="A page for the browser, or a results section for a paper.")
    ] = ReportFormat.html,
) -> int:
    """Write one HTML file to explore the cells in: no server, no network. Or a section for a paper.

    The page computes in the browser: filters, a slider for the target, and which algorithm is fastest on a link of
    yours. Prints the file written. The same records make the same bytes.
    """
    check_folder(folder)
    out = out or folder / _NAMES[format]
    if out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; name a file, e.g. {out / _NAMES[format]}")
    text = _page(folder) if format is ReportFormat.html else _section(folder, format)
    _write(out, text)
    print(out)
    return EXIT_OK


def _page(folder: Path) -> str:
    from bwbench.results.analysis.tables import Reader  # pandas and matplotlib take a second to import
    from bwbench.results.page.payload import build_payload
    from bwbench.results.page.render import render_page

    reader = Reader()
    return render_page(build_payload(_readable(folder, reader), folder.resolve().name, reader))


def _readable(folder: Path, reader: Reader) -> list[CellFolder]:
    from bwbench.cli.output import say_unreadable
    from bwbench.results.analysis.results import read_cells

    cells, refused = read_cells(folder, reader)
    say_unreadable(refused)
    if not cells:
        raise ConfigError(f"{folder} holds no cell that can be read; see the notes above")
    return cells


def _section(folder: Path, format: ReportFormat) -> str:
    from bwbench.results.analysis.results import results_of
    from bwbench.results.analysis.tables import Reader
    from bwbench.results.section import write_section

    reader = Reader()
    results = results_of(_readable(folder, reader), reader)
    return write_section(results, "latex" if format is ReportFormat.latex else "markdown")


def _write(path: Path, text: str) -> None:
    """Write as a whole or not at all: a page half written would open, and lie."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # there may be no folder to hold it
            temporary.unlink()
        raise ConfigError(f"--out: {path} cannot be written: {error.strerror}; name another file") from error
