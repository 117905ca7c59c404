"""Commands about what has been recorded: ``status``, ``show``, ``compare``, ``publish`` and ``merge``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK
from bwbench.cli.option_classes import option
from bwbench.cli.output import plain_table, print_json, size
from bwbench.cli.results_folder import ResultsFolder, check_folder, find_cell

AsJson = Annotated[bool, option("Print JSON instead of a table.", "--json")]
_SHOWN_LEFT_OUT = 8


def status(
    folder: ResultsFolder,
    *,
    json: AsJson = False,
    spent: Annotated[
        bool, option("Machine hours, share run whole, error of composed times and of links.", "--spent")
    ] = False,
) -> int:
    """List the cells of an experiment: done or not, time to target, final metric, and why a cell failed.

    Works while they run, from anywhere that sees the folder: a cell that runs shows what is being done, and how far it
    is.
    """
    check_folder(folder)

    from bwbench.cli.cell_table import print_cells, print_cells_as_json, print_spent

    if spent:
        print_spent(folder, as_json=json)
    elif json:
        print_cells_as_json(folder)
    else:
        print_cells(folder)
    return EXIT_OK


def show(
    cell: Annotated[
        str,
        typer.Argument(metavar="CELL", help="Its folder, its id or the start of it, or its slug.", show_default=False),
    ],
    results: Annotated[Path, option("Where to look for an id or a slug.")] = Path("results"),
    *,
    json: Annotated[bool, option("Print JSON instead of text.", "--json")] = False,
) -> int:
    """Show one cell: its configuration, the link it asked for and got, where its time went, bytes, and its log."""
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
    baseline: Annotated[str, option("The arm that all others are compared with, e.g. ddp or single.")],
    by: Annotated[str, option("Dotted key of the configuration whose values stand first.")] = "link.bandwidth",
    *,
    json: Annotated[bool, option("Print JSON instead of tables.", "--json")] = False,
) -> int:
    """How many times faster each arm reaches the target than the baseline, paired by seed, with 95 % intervals.

    Besides: the bandwidth at which two arms are equally fast, and the arms that no other beats in both time and
    accuracy. A target that was not reached gives bounds. Notes on what is left out go to stderr.
    """
    check_folder(folder)

    from bwbench.cli.comparison_text import print_comparison

    print_comparison(folder, baseline, by, as_json=json)
    return EXIT_OK


def publish(
    folder: ResultsFolder,
    *,
    to: Annotated[Path | None, option("Results folder for the files.", show_default="beside the records")] = None,
    json: AsJson = False,
) -> int:
    """Pack the cells of each experiment into one small file, which can be committed and read like the folders.

    results/EXPERIMENT/cells.jsonl.gz holds what tables, figures and reports need: configuration, outcome, link,
    environment, curve and ledger; not the single steps. Cells that have not ended are left out, and said. Where the
    file is there already, cells that have no folder any more stay in it.
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
        list[Path],
        typer.Argument(metavar="DIR...", help="Results folders, or experiments in them.", show_default=False),
    ],
    into: Annotated[Path, option("Results folder that gets them all; made where it is missing.")],
    *,
    json: AsJson = False,
) -> int:
    """Copy the finished cells of several results folders into one; safe to repeat, and to run again after a crash.

    Where both sides have the same cell, done stands before not done and run whole before composed; else the one that
    is there already. The other is kept below .duplicates/. Unfinished and broken cells are skipped, and said.
    """
    from bwbench.records.merge import COPIED, REFUSED, SAME
    from bwbench.records.merge import merge as merge_folders

    merged = []
    for one in merge_folders(folders, into):
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
