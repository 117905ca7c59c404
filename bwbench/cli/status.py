"""``bwbench status``: how every cell ended, and how far those are that run at this moment."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.base.errors import EXIT_OK, RecordError
from bwbench.cli.plot import check_folder

if TYPE_CHECKING:
    from bwbench.records import CellFolder

_REASON_LENGTH = 90  # of a line in the table; `bwbench show` and --json have all of it


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    spent: Annotated[
        bool, typer.Option("--spent", help="Machine hours, share run whole, error of composed times and of links.")
    ] = False,
) -> int:
    """List the cells of an experiment: done or not, time to target, final metric, and why a cell failed.

    Works while they run, from anywhere that sees the folder: a cell that runs shows what is being done, and how far it
    is.
    """
    from bwbench.cli.output import print_json_rows
    from bwbench.records import iter_cells

    check_folder(folder)
    if spent:
        return _print_spent(folder, json)
    overview = _Overview()
    entries = (overview.take(cell) for cell in iter_cells(folder))  # one after another: all would fill the memory
    if json:
        print_json_rows("cells", entries, lambda: {"notes": overview.notes})
        return EXIT_OK
    _print_table(entries)
    total = overview.counts.total()
    tally = ", ".join(f"{number} {name}" for name, number in overview.counts.most_common())
    print(f"{total} {'cell' if total == 1 else 'cells'}: {tally}", file=sys.stderr)
    for note in overview.notes:
        print(f"note: {note}", file=sys.stderr)
    return EXIT_OK


def _print_spent(folder: Path, json: bool) -> int:
    from bwbench.cli.output import print_json
    from bwbench.cli.spent_text import spent_text
    from bwbench.results.analysis.spent import spent

    experiments, total = spent(folder)
    rows = [total.to_json(), *(one.to_json() for one in experiments)]
    if json:
        print_json({"total": rows[0], "experiments": rows[1:]})
        return EXIT_OK
    for line in spent_text(rows if len(experiments) > 1 else rows[1:]):
        print(line)
    return EXIT_OK


class _Overview:
    """What is to be said of all cells together, taken in one by one."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._provenances: set[tuple[str, str, str]] = set()
        self._num_composed = 0
        self._errors: list[float] = []

    def take(self, folder: CellFolder) -> dict[str, Any]:
        """The entry of a cell, which is counted."""
        from bwbench.results.analysis.provenance import provenance_of

        entry = status_entry(folder)
        self.counts[entry["status"]] += 1
        self._num_composed += entry["composed"]
        if entry["composed_error"] is not None:
            self._errors.append(entry["composed_error"])
        if entry["status"] == "done":
            self._provenances.add(provenance_of(folder))
        return entry

    @property
    def notes(self) -> list[str]:
        """What must be said of the cells that were taken."""
        from bwbench.results.analysis.composed_error import composed_note
        from bwbench.results.analysis.provenance import mixed_note

        composed = composed_note(self._num_composed, self.counts["done"], self._errors)
        return [note for note in (composed, mixed_note(self._provenances)) if note]


def status_entry(folder: CellFolder) -> dict[str, Any]:
    """One cell of ``--json``. Reads cell.json and status.json only, so that ten thousand cells take seconds.

    ``status`` is ``missing`` before the first attempt, ``running`` while a process holds the cell, ``unfinished`` after
    an attempt was cut off, ``unreadable`` where cell.json is broken: one such cell must not hide the others.
    """
    from bwbench.results.analysis.cells import PLANNED, UNFINISHED, is_composed, state_of
    from bwbench.results.analysis.composed_error import composed_error

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


def running_now(folder: CellFolder) -> dict[str, Any] | None:
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

    text = f"{running['phase']} on {running['host'] or '?'} (process {running['pid'] or '?'})"
    if running["samples"] is None:
        return text
    metric = "".join(f", {name} {value:.3g}" for name, value in (running["metrics"] or {}).items() if value is not None)
    share = f"{running['samples']} of at most {running['limit_samples']} samples"
    return f"{text}: {share}, {seconds(running['clock_s'])}{metric}"


def _print_table(cells: Iterable[dict[str, Any]]) -> None:
    from bwbench.cli.plain_table import plain_table

    rows = []
    for cell in cells:
        row = [str(cell["experiment"]), str(cell["arm"]), f"{cell['slug']}-{cell['id']}", cell["status"]]
        rows.append([*row, time_to_target(cell), _metric(cell), _first_line(cell["reason"])])
    columns = ["experiment", "arm", "cell", "status", "time to target", "final metric", "reason"]
    if len({row[0] for row in rows}) <= 1:
        columns, rows = columns[1:], [row[1:] for row in rows]
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
