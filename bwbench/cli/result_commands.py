"""Commands about what has been recorded: ``status``, ``show``, ``compare``; ``publish`` and ``merge`` records.

Or write files from it: ``plot`` pictures, ``report`` a page or a section, ``export`` a table.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from enum import Enum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError, RecordError
from bwbench.cli.clean_text import clean
from bwbench.cli.options import ResultsFolder, WithPublished, find_cell, option, take
from bwbench.cli.output import plain_table, print_json, say_unreadable, size

if TYPE_CHECKING:
    from bwbench.records import CellFolder
    from bwbench.records.own_and_published import Taken
    from bwbench.results.analysis.cells import Row


AskedTarget = Annotated[
    str | None,
    option(
        "Look at another target than the recorded one, where the curves allow it: accuracy=0.87.",
        metavar="METRIC=VALUE",
        show_default="the recorded target",
    ),
]
AsJson = Annotated[bool, option("Print JSON instead of a table.", "--json")]
_SHOWN_LEFT_OUT = 8
_FORMULA = tuple("=+-@|%＝＋－＠")  # what a formula begins with


def status(
    folder: ResultsFolder,
    *,
    published: WithPublished = False,
    json: AsJson = False,
    spent: Annotated[
        bool, option("Machine hours, share run whole, error of composed times and of links.", "--spent")
    ] = False,
) -> int:
    """List the cells of an experiment: done or not, time to target, final metric, and why a cell failed.

    Works while they run, from anywhere that sees the folder: a cell that runs shows what is being done, and how far it
    is. Of several experiments, each published set is one line; `bwbench status DIR/published/NAME` lists its cells.
    """
    taken = take(folder, published=published)

    from bwbench.cli.cell_table import print_cells, print_cells_as_json, print_spent

    if spent:
        print_spent(taken, as_json=json)
    elif json:
        print_cells_as_json(taken)
    else:
        print_cells(taken)
    return EXIT_OK


def show(
    cell: Annotated[
        str,
        typer.Argument(metavar="CELL", help="Its folder, its id or the start of it, or its slug.", show_default=False),
    ],
    results: Annotated[Path, option("Where to look for an id or a slug.", metavar="DIR")] = Path("results"),
    *,
    json: Annotated[bool, option("Print JSON instead of text.", "--json")] = False,
) -> int:
    """Show one cell: its configuration, the link it asked for and got, where its time went, bytes, and its log.

    A run of your own is found before a published cell of the same name.
    """
    from bwbench.cli.cell_text import cell_text, shown

    record = shown(find_cell(cell, results))
    if json:
        print_json(record.to_json())
    else:
        for line in cell_text(record):
            print(line)
    return EXIT_OK


def compare(
    folder: ResultsFolder,
    baseline: Annotated[str, option("The arm that all others are compared with, e.g. ddp or single.", metavar="ARM")],
    by: Annotated[
        str, option("Dotted key of the configuration whose values stand first.", metavar="KEY")
    ] = "link.bandwidth",
    *,
    published: WithPublished = False,
    target: AskedTarget = None,
    json: Annotated[bool, option("Print JSON instead of tables.", "--json")] = False,
) -> int:
    """How many times faster each arm reaches the target than the baseline, with 95 % intervals.

    Besides: the bandwidth at which two arms are equally fast, and the arms that no other beats in both time and
    accuracy. A target that was not reached gives bounds. Cells without a target are compared by samples a second. Notes
    on what is left out go to stderr.
    """
    taken = take(folder, published=published)

    from bwbench.cli.comparison_text import print_comparison
    from bwbench.results.analysis.cell_arrival import asked_target

    print_comparison(taken.cells(), baseline, by, asked_target(target) if target else None, as_json=json)
    return EXIT_OK


def publish(
    folder: ResultsFolder,
    *,
    to: Annotated[
        Path | None, option("Folder for the sets.", metavar="DIR", show_default="published in the results folder")
    ] = None,
    json: AsJson = False,
) -> int:
    """Pack the cells of each experiment into one small file, which can be committed and read like the folders.

    results/published/EXPERIMENT/cells.jsonl.gz holds what tables, figures and reports need: configuration, outcome,
    link, environment, curve and ledger; not the single steps. Cells that have not ended are left out, and said. Where
    the file is there already, cells that have no folder any more stay in it.
    """
    from bwbench.results.publish import publish as publish_experiments

    published = []
    for one in publish_experiments(folder, to):
        published.append(one)
        for line in one.left_out[:_SHOWN_LEFT_OUT]:
            print(f"note: left out: {one.experiment}: {line}", file=sys.stderr)
        if (more := len(one.left_out) - _SHOWN_LEFT_OUT) > 0:
            print(f"note: left out: {one.experiment}: {more} more; `bwbench status` lists all", file=sys.stderr)
    if json:
        print_json({"experiments": [{**vars(one), "path": str(one.path)} for one in published]})
        return EXIT_OK
    columns = ["experiment", "cells", "not done", "left out", "size", "a cell", "file"]
    rows = []
    for one in published:
        counts = [str(one.num_cells), str(one.num_undone), str(len(one.left_out))]
        sizes = [size(one.num_bytes), size(one.num_bytes / one.num_cells)]
        rows.append([one.experiment, *counts, *sizes, str(one.path)])
    for line in plain_table(columns, rows, right=set(columns[1:-1])):
        print(line)
    return EXIT_OK


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIRS", help="Results folders, or experiments in them.", show_default=False)
    ],
    into: Annotated[Path, option("Results folder that gets them all; made where it is missing.", metavar="DIR")],
    *,
    published: WithPublished = False,
    json: AsJson = False,
) -> int:
    """Copy the finished cells of several results folders into one; safe to repeat, and to run again after a crash.

    Where both sides have the same cell, done stands before not done and run whole before composed; else the one that
    is there already. The other is kept below .duplicates/. Unfinished and broken cells are skipped, and said.
    """
    from bwbench.records.merge import COPIED, REFUSED, SAME
    from bwbench.records.merge import merge as merge_folders
    from bwbench.records.own_and_published import taken

    for folder in folders:
        if note := taken(folder, published=published).note:
            print(f"note: {note}", file=sys.stderr)
    merged = []
    for one in merge_folders(folders, into, published=published):
        merged.append(one)
        if one.why:
            print(f"{one.outcome}: {one.source}: {one.cell}: {one.why}", file=sys.stderr)
    if json:
        print_json({"cells": [{**vars(one), "source": str(one.source)} for one in merged]})
    else:
        outcomes = [COPIED, SAME, *sorted({one.outcome for one in merged} - {COPIED, SAME})]
        counts = {source: Counter(one.outcome for one in merged if one.source == source) for source in folders}
        rows = [[str(source), *(str(counts[source][outcome]) for outcome in outcomes)] for source in counts]
        for line in plain_table(["source", *outcomes], rows, right=set(outcomes)):
            print(line)
    return EXIT_CELLS_FAILED if any(one.outcome == REFUSED for one in merged) else EXIT_OK


# What an option may be, as typer takes it: one column or both columns of a paper; pictures as in
# ``figures.save.FORMATS``; one HTML file, or a section in one of two markup languages; an exported table and its rows.
Width = Enum("Width", {"page": "page", "column": "column"})
PictureFormat = Enum("PictureFormat", {"png": "png", "pdf": "pdf"})
ReportFormat = Enum("ReportFormat", {"html": "html", "latex": "latex", "markdown": "markdown"})
TableFormat = Enum(
    "TableFormat",
    {"parquet": "parquet", "csv": "csv", "json": "json", "tensorboard": "tensorboard", "mlflow": "mlflow"},
)
_TABLES = (TableFormat.parquet, TableFormat.csv, TableFormat.json)  # the others are runs of other programs
TableRows = Enum("TableRows", {"cells": "cells", "evaluations": "evaluations", "steps": "steps", "ratios": "ratios"})

_REPORT_NAMES = {ReportFormat.html: "report.html", ReportFormat.latex: "report.tex", ReportFormat.markdown: "report.md"}


def plot(
    folder: ResultsFolder,
    *,
    all_: Annotated[
        bool, option("Every figure at every setting; else the few that answer first, each at one setting.", "--all")
    ] = False,
    out: Annotated[Path | None, option("Folder for the pictures.", metavar="DIR", show_default="DIR/figures")] = None,
    figure: Annotated[
        list[str] | None,
        option(
            "Draw this figure only, at every setting: 'bwbench list figures'. Repeatable.",
            metavar="NAME",
            show_default="those that answer first",
        ),
    ] = None,
    width: Annotated[Width, option("7 in (page) or 3.4 in (column) wide.", metavar="page|column")] = Width.page,
    at: Annotated[
        list[str] | None,
        option(
            "Of figures that stand for one setting each (accuracy-over-time_10Mbps), draw those of this one only; "
            "repeatable: all parts of the name have to be given.",
            metavar="SETTING",
            show_default="one setting; with --all or --figure every one",
        ),
    ] = None,
    format: Annotated[
        list[PictureFormat] | None, option("Pictures of this format only.", metavar="png|pdf", show_default="both")
    ] = None,
    folders: Annotated[bool, option("A folder for each experiment even where there is only one.", "--folders")] = False,
    published: WithPublished = False,
    target: AskedTarget = None,
    verbose: Annotated[
        bool, option("Say what is not drawn, and why, and what stands under the pictures.", "--verbose", "-v")
    ] = False,
) -> int:
    """Draw the figures that answer what an experiment asks, as PNG and PDF, each with a JSON file of its numbers and
    cells: time to target by whatever varies, by method, and accuracy over time. --all draws the others too.

    Prints each file as soon as it is written, one a line; how far it is, and what was left out, on stderr.
    """
    taken = take(folder, published=published)
    from bwbench.base.registry import FIGURES  # entry points: importlib.metadata takes 10 ms

    for name in figure or []:
        if name not in FIGURES:
            raise ConfigError(f"--figure: {FIGURES.unknown(name)}")

    from bwbench.cli.drawing import Wanted, draw
    from bwbench.results.analysis.cell_arrival import asked_target
    from bwbench.results.figures.style import WIDTHS_IN

    draw(
        taken,
        out or _own_folder(folder, "figures"),
        Wanted(tuple(figure or ()), tuple(at or ()), everything=all_),
        asked_target(target) if target else None,
        width_in=WIDTHS_IN[width.value],
        formats=[one.value for one in format or PictureFormat],
        folders=folders,
        verbose=verbose,
    )
    return EXIT_OK


def _own_folder(folder: Path, name: str) -> Path:
    """Where results are written that no option says a place for; raises ConfigError where that is a link out of it."""
    from bwbench.records.files import leads_out  # pydantic: `bwbench --help` can do without it

    place = folder / name
    if place.is_symlink() and leads_out(place, folder):
        raise ConfigError(f"{place} is a link out of {folder}; remove it, or name a folder with --out")
    return place


def report(
    folder: ResultsFolder,
    out: Annotated[
        Path | None, option("File to write.", metavar="FILE", show_default="DIR/report.html, .tex or .md")
    ] = None,
    format: Annotated[
        ReportFormat, option("A page for the browser, or a results section for a paper.", metavar="html|latex|markdown")
    ] = ReportFormat.html,
    *,
    published: WithPublished = False,
    target: AskedTarget = None,
) -> int:
    """Write one HTML file to explore the cells in: no server, no network. Or a section for a paper.

    The page computes in the browser: filters, a slider for the target, and which algorithm is fastest on a link of
    yours. Prints the file written. The same records make the same bytes.
    """
    taken = take(folder, published=published)
    out = out or folder / _REPORT_NAMES[format]
    if out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; name a file, e.g. {out / _REPORT_NAMES[format]}")
    from bwbench.records.files import write_bytes_atomic
    from bwbench.results.analysis.cell_arrival import asked_target, at_target
    from bwbench.results.analysis.results import Reader, read_cells, results_of  # pandas takes a second to import
    from bwbench.results.page.payload import build_payload
    from bwbench.results.page.render import render_page
    from bwbench.results.section import write_section

    reader = Reader()
    cells, refused = read_cells(taken.cells(), reader)
    say_unreadable(refused)
    if not cells:
        raise ConfigError(f"{folder} holds no cell that can be read; see the notes above")
    cells = at_target(cells, asked_target(target) if target else None)
    if format is ReportFormat.html:
        text = render_page(build_payload(cells, _in_utf_8(folder.resolve().name), reader))
    else:
        text = write_section(results_of(cells, reader), "latex" if format is ReportFormat.latex else "markdown")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(out, text.encode(), sync=False)
    except OSError as error:
        raise ConfigError(f"--out: {out} cannot be written: {error.strerror}; name another file") from error
    print(out)
    return EXIT_OK


def _in_utf_8(name: str) -> str:
    """The name of a folder, which may be of any bytes, for a file that is UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def export(
    folder: ResultsFolder,
    to: Annotated[
        TableFormat,
        option(
            "Format of the table: parquet, csv or json. Or the program that shows the runs: tensorboard or mlflow.",
            metavar="FORMAT",
        ),
    ],
    out: Annotated[
        Path | None,
        option(
            "File to write; of runs the folder.",
            metavar="FILE",
            show_default="stdout; bwbench-WHAT.parquet for parquet; bwbench-tensorboard, bwbench-mlflow",
        ),
    ] = None,
    what: Annotated[
        TableRows, option("What a row is: cells, evaluations, steps or ratios.", metavar="ROWS")
    ] = TableRows.cells,
    *,
    baseline: Annotated[str | None, option("Arm that `--what ratios` compares all others with.", metavar="ARM")] = None,
    published: WithPublished = False,
    target: AskedTarget = None,
) -> int:
    """Write one flat table: a row a cell, an evaluation, a step, or a ratio to --baseline.

    A cell has configuration, outcome, link and provenance. Ratios are those of `bwbench compare`, taken apart into step
    time and samples to the target.

    Numbers are in SI units, which end the names of their columns. A file is replaced as a whole or not at all.

    tensorboard and mlflow get every cell as a run: configuration, outcome, and all curves over samples. They need
    `pip install 'bwbench[tensorboard]'`, or `[mlflow]`.
    """
    if to not in _TABLES:
        is_plain = what is TableRows.cells and baseline is None and not target
        return _export_runs(take(folder, published=published), to.value, out, is_plain=is_plain)
    from bwbench.records import readable
    from bwbench.records.files import write_bytes_atomic
    from bwbench.results.analysis.cell_arrival import asked_target, at_target
    from bwbench.results.analysis.export import WHAT

    taken = take(folder, published=published)
    asked = asked_target(target) if target else None
    if out is not None and out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; name a file, e.g. {out / f'{what.value}.{to.value}'}")
    cells, refused = readable(taken.cells())
    rows: list[Row] = []
    if what is TableRows.ratios:
        rows = _ratios(at_target(cells, asked), baseline)
    for cell in () if what is TableRows.ratios else at_target(cells, asked):
        try:
            rows += WHAT[what.value]([cell])
        except RecordError as error:  # of its events, which are read for rows of evaluations and steps alone
            refused.append(error)
    skipped = []
    if what is TableRows.steps and (num_packed := sum(cell.is_packed for cell in cells)):
        skipped.append(f"steps of {num_packed} published cells: records that are published hold none")
    if not rows:
        why = f" ({[*refused, *skipped][-1]})" if refused or skipped else ""
        raise ConfigError(f"{folder}: there are no {what.value} to export{why}")
    say_unreadable(refused)
    for line in skipped:
        print(f"note: left out: {line}", file=sys.stderr)
    if out is None and to is TableFormat.parquet:
        out = Path(f"bwbench-{what.value}.parquet")
    content = _parquet(rows) if to is TableFormat.parquet else _text(rows, to).encode()
    if out is None:
        sys.stdout.write(content.decode())
        return EXIT_OK
    try:
        write_bytes_atomic(out, content, sync=False)
    except OSError as error:
        raise RecordError(f"--out: {out} cannot be written: {error.strerror or error}; name another file") from None
    print(out)
    return EXIT_OK


def _export_runs(found: Taken, tracker: str, out: Path | None, *, is_plain: bool) -> int:
    """Write cells as runs; ``is_plain``: none of the options of tables was given."""
    from bwbench.records import readable
    from bwbench.records.files import machine_fault
    from bwbench.results.trackers import TRACKERS, VIEWERS, tracked_runs

    if not is_plain:
        said = "--what, --baseline and --target are for tables"
        raise ConfigError(f"--to {tracker} writes every cell with all its curves; {said}")
    out = out or Path(f"bwbench-{tracker}")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {out} is a file; name a folder")
    cells, refused = readable(found.cells())
    try:
        number = TRACKERS[tracker](tracked_runs(cells, refused), out)
    except OSError as error:
        raise RecordError(machine_fault(error, out) or f"{out} cannot be written: {error}") from None
    if not number:
        raise ConfigError("no cell has begun; there is nothing to export")
    say_unreadable(refused)
    print(out)
    print(f"{number} runs; `{VIEWERS[tracker].format(folder=quote(str(out)))}` shows them", file=sys.stderr)
    return EXIT_OK


def _ratios(cells: list[CellFolder], baseline: str | None) -> list[Row]:
    # These two read plans and links: `bwbench --help` can do without.
    from bwbench.cli.comparison_json import ratio_rows
    from bwbench.results.analysis.comparison import compare_cells

    if baseline is None:
        raise ConfigError("--what ratios: say with --baseline which arm all others are compared with")
    return ratio_rows(compare_cells(cells, baseline))


def _text(rows: list[Row], to: TableFormat) -> str:
    from csv import DictWriter  # `bwbench --help` can do without these two
    from json import dumps

    if to is TableFormat.json:
        return '{"rows": [\n' + ",\n".join(dumps(row, allow_nan=False) for row in rows) + "\n]}\n"
    text = io.StringIO()
    columns = {column: str(_csv_cell(column)) for column in _columns(rows)}
    writer = DictWriter(text, columns, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows({column: _csv_cell(value) for column, value in row.items()} for row in rows)
    return text.getvalue()


def _csv_cell(value: object) -> object:
    """As it stands; before a text that a spreadsheet would take for a formula and carry out stands an apostrophe."""
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.lstrip()[:1] in _FORMULA and text.strip() else text


def _columns(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _parquet(rows: list[Row]) -> bytes:
    """A column of unlike values (a model's option that is a number here and a word there) becomes text."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=_columns(rows))
    for column in frame.columns:
        values = frame[column].dropna()
        kinds = {bool if isinstance(value, bool) else float if isinstance(value, (int, float)) else str
                 for value in values}  # fmt: skip
        if len(kinds) > 1:
            frame[column] = frame[column].map(lambda value: None if pd.isna(value) else str(value))
    return bytes(frame.to_parquet(index=False))
