"""``bwbench status``: how every cell ended."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from bwbench.cli.plot import check_folder
from bwbench.errors import EXIT_OK, RecordError

_REASON_LENGTH = 90  # of a line in the table; `bwbench show` and --json have all of it


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """List the cells of an experiment: done or not, time to target, final metric, and why a cell failed."""
    from bwbench.records import iter_cells

    check_folder(folder)
    cells = [status_entry(cell) for cell in iter_cells(folder)]
    if json:
        _print_json(cells)
        return EXIT_OK
    _print_table(cells)
    counts = Counter(cell["status"] for cell in cells)
    tally = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    print(f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}: {tally}", file=sys.stderr)
    return EXIT_OK


def status_entry(folder: Any) -> dict[str, Any]:
    """One cell of ``--json``. Reads cell.json and status.json only, so that ten thousand cells take seconds.

    ``status`` is ``missing`` before the first attempt, ``unfinished`` while an attempt runs or after it was cut off,
    ``unreadable`` where cell.json is broken: one such cell must not hide the others.
    """
    from bwbench.analysis.cells import state_of

    try:
        cell, recorded = folder.cell, folder.status or {}
    except RecordError as error:
        slug, _, cell_id = folder.path.name.rpartition("-")
        named = {"id": cell_id, "slug": slug, "experiment": folder.path.parent.name, "arm": "", "status": "unreadable"}
        empty = dict.fromkeys(("metric", "time_to_target_s", "censored_at_s", "final_metric", "config"))
        return {**named, **empty, "reason": str(error), "folder": str(folder.path)}
    entry = {key: cell.get(key) for key in ("id", "slug", "experiment", "arm", "repeat")}
    entry |= {"status": state_of(folder), "reason": recorded.get("reason")}
    entry |= {key: recorded.get(key) for key in ("metric", "time_to_target_s", "censored_at_s", "final_metric")}
    entry |= {key: recorded.get(key) for key in ("test_metric", "steps", "samples", "training_clock_s", "wire_bytes")}
    return entry | {"folder": str(folder.path), "config": cell.get("config")}


def _print_json(cells: list[dict[str, Any]]) -> None:
    """A cell a line: json's indenting encoder takes a second for ten thousand cells."""
    from json import dumps

    print('{"cells": [')
    print(",\n".join(dumps(cell, allow_nan=False) for cell in cells))
    print("]}")


def _print_table(cells: list[dict[str, Any]]) -> None:
    from bwbench.cli.plain_table import plain_table

    several = len({cell["experiment"] for cell in cells}) > 1
    rows = []
    for cell in cells:
        row = [str(cell["experiment"])] if several else []
        row += [str(cell["arm"]), f"{cell['slug']}-{cell['id']}", cell["status"], time_to_target(cell), _metric(cell)]
        rows.append([*row, _first_line(cell["reason"])])
    columns = [
        *(["experiment"] if several else []),
        "arm",
        "cell",
        "status",
        "time to target",
        "final metric",
        "reason",
    ]
    for line in plain_table(columns, rows, right={"time to target"}):
        print(line)


def time_to_target(recorded: dict[str, Any]) -> str:
    """``12.3 s``, ``> 60.0 s`` where the target was not reached within the training limit, ``-`` where it has none."""
    from bwbench.cli.output import seconds

    if recorded.get("time_to_target_s") is not None:
        return seconds(recorded["time_to_target_s"])
    return f"> {seconds(recorded['censored_at_s'])}" if recorded.get("censored_at_s") is not None else "-"


def _metric(cell: dict[str, Any]) -> str:
    return "-" if cell["final_metric"] is None else f"{cell['metric'] or 'metric'} {cell['final_metric']:.4g}"


def _first_line(reason: object) -> str:
    line = str(reason or "").strip().partition("\n")[0]
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 1]}…"
