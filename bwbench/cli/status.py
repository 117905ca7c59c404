"""``bwbench status``: how every cell ended, and how far those are that run at this moment."""

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
    """List the cells of an experiment: done or not, time to target, final metric, and why a cell failed.

    Works while they run, from anywhere that sees the folder: a cell that runs shows what is being done, and how far it
    is.
    """
    from bwbench.analysis.composed_error import composed_note
    from bwbench.analysis.provenance import provenance_note
    from bwbench.records import iter_cells

    check_folder(folder)
    folders = list(iter_cells(folder))
    cells = [status_entry(cell) for cell in folders]
    mixed = provenance_note(cell for cell, entry in zip(folders, cells, strict=True) if entry["status"] == "done")
    done = sum(cell["status"] == "done" for cell in cells)
    errors = [cell["composed_error"] for cell in cells if cell["composed_error"] is not None]
    composed = composed_note(sum(cell["composed"] for cell in cells), done, errors)
    if json:
        _print_json(cells, [note for note in (composed, mixed) if note])
        return EXIT_OK
    _print_table(cells)
    counts = Counter(cell["status"] for cell in cells)
    tally = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    print(f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}: {tally}", file=sys.stderr)
    for note in (composed, mixed):
        if note:
            print(f"note: {note}", file=sys.stderr)
    return EXIT_OK


def status_entry(folder: Any) -> dict[str, Any]:
    """One cell of ``--json``. Reads cell.json and status.json only, so that ten thousand cells take seconds.

    ``status`` is ``missing`` before the first attempt, ``running`` while a process holds the cell, ``unfinished`` after
    an attempt was cut off, ``unreadable`` where cell.json is broken: one such cell must not hide the others.
    """
    from bwbench.analysis.cells import PLANNED, UNFINISHED, is_composed, state_of
    from bwbench.analysis.composed_error import composed_error

    try:
        cell, recorded = folder.cell, folder.status or {}
    except RecordError as error:
        slug, _, cell_id = folder.path.name.rpartition("-")
        named = {"id": cell_id, "slug": slug, "experiment": folder.path.parent.name, "arm": "", "status": "unreadable"}
        empty = dict.fromkeys(("metric", "time_to_target_s", "censored_at_s", "final_metric", "config"))
        empty |= {"composed": False, "composed_error": None}
        return {**named, **empty, "reason": str(error), "folder": str(folder.path), "running": None}
    entry = {key: cell.get(key) for key in ("id", "slug", "experiment", "arm", "repeat")}
    entry |= {"status": state_of(folder), "reason": recorded.get("reason")}
    entry |= {key: recorded.get(key) for key in ("metric", "time_to_target_s", "censored_at_s", "final_metric")}
    entry |= {key: recorded.get(key) for key in ("test_metric", "steps", "samples", "training_clock_s", "wire_bytes")}
    both = composed_error(folder)
    entry |= {"composed": is_composed(folder), "composed_error": both.error if both is not None else None}
    running = running_now(folder) if entry["status"] in (PLANNED, UNFINISHED) else None
    if running is not None:
        entry |= {"status": "running", "reason": _in_words(running)}
    return entry | {"running": running, "folder": str(folder.path), "config": cell.get("config")}


def running_now(folder: Any) -> dict[str, Any] | None:
    """Who runs a cell and how far it is, from its claim and from what rank 0 has recorded; None where nobody does."""
    from bwbench.records.lock import claim_of

    claim = claim_of(folder.path)
    if claim is None:
        return None
    config = folder.cell.get("config") or {}
    limit = (config.get("limit") or {}).get("samples")
    latest = _latest_evaluation(folder.last_attempt / "rank0.jsonl") if folder.last_attempt else {}
    known = {key: claim.get(key) for key in ("pid", "host", "since_unix_s", "phase")}
    known["phase"] = known["phase"] or "opening the link"
    if latest and str(known["phase"]).startswith("starting"):
        known["phase"] = "training"
    measured = {key: latest.get(key) for key in ("samples", "clock_s")} | {"metrics": latest.get("mean")}
    return {**known, **measured, "limit_samples": limit}


def _latest_evaluation(events: Path) -> dict[str, Any]:
    """The last evaluation in a file that is being written; empty where there is none yet."""
    from bwbench.records import read_last_events

    evaluations = [event for event in read_last_events(events) if event.get("event") == "eval"]
    return evaluations[-1] if evaluations else {}


def _in_words(running: dict[str, Any]) -> str:
    from bwbench.cli.output import seconds

    text = f"{running['phase']} on {running['host']} (process {running['pid']})"
    if running["samples"] is None:
        return text
    metric = "".join(f", {name} {value:.3g}" for name, value in (running["metrics"] or {}).items() if value is not None)
    share = f"{running['samples']} of at most {running['limit_samples']} samples"
    return f"{text}: {share}, {seconds(running['clock_s'])}{metric}"


def _print_json(cells: list[dict[str, Any]], notes: list[str]) -> None:
    """A cell a line: json's indenting encoder takes a second for ten thousand cells."""
    from json import dumps

    print('{"cells": [')
    print(",\n".join(dumps(cell, allow_nan=False) for cell in cells))
    print(f'], "notes": {dumps(notes)}}}')


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
    """``12.3 s``, ``> 60.0 s`` where the target was not reached within the training limit, ``-`` where it has none.

    ``composed`` after it where the time was not measured whole.
    """
    from bwbench.cli.output import seconds

    mark = " composed" if recorded.get("composed") else ""
    if recorded.get("time_to_target_s") is not None:
        return f"{seconds(recorded['time_to_target_s'])}{mark}"
    return f"> {seconds(recorded['censored_at_s'])}{mark}" if recorded.get("censored_at_s") is not None else "-"


def _metric(cell: dict[str, Any]) -> str:
    return "-" if cell["final_metric"] is None else f"{cell['metric'] or 'metric'} {cell['final_metric']:.4g}"


def _first_line(reason: object) -> str:
    line = str(reason or "").strip().partition("\n")[0]
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 1]}…"
