"""``bwbench merge``: result folders of several machines into one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK


def merge(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Results folders, or experiments in them.", show_default=False),
    ],
    into: Annotated[Path, typer.Option(help="Results folder that gets them all; made where it is missing.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Copy the finished cells of several results folders into one; safe to repeat, and to run again after a crash.

    Where both sides have the same cell, done stands before not done and run whole before composed; else the one that
    is there already. The other is kept below .duplicates/. Unfinished and broken cells are skipped, and said.
    """
    from bwbench.cli.output import print_json
    from bwbench.cli.plain_table import plain_table
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
