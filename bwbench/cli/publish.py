"""``bwbench publish``: records small enough to be committed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK

_SHOWN_LEFT_OUT = 8


def publish(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    to: Annotated[
        Path | None, typer.Option(help="Results folder for the files.", show_default="beside the records")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Pack the cells of each experiment into one small file, which can be committed and read like the folders.

    results/EXPERIMENT/cells.jsonl.gz holds what tables, figures and reports need: configuration, outcome, link,
    environment, curve and ledger; not the single steps. Cells that have not ended are left out, and said. Where the
    file is there already, cells that have no folder any more stay in it.
    """
    from bwbench.cli.output import print_json, size
    from bwbench.cli.plain_table import plain_table
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
