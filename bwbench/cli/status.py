"""``bwbench status``: how every cell ended, and how far those are that run at this moment."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from bwbench.base.errors import EXIT_OK, RecordError
from bwbench.cli.plot import check_folder

if TYPE_CHECKING:
    from bwbench.records import CellFolder
    from bwbench.records.schema import Evaluation

Entry: TypeAlias = dict[str, Any]  # of --json
_RECORDED = ("metric", "time_to_target_s", "censored_at_s", "final_metric", "test_metric", "steps", "samples",
             "training_clock_s", "wire_bytes")  # fmt: skip
_MOST_LINKS = 500  # cells whose links are looked into: with more a list would take half as long again
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

    def take(self, folder: CellFolder) -> Entry:
        """The entry of a cell, which is counted."""
        from bwbench.results.analysis.provenance import provenance_of

        entry = status_entry(folder, links_too=self.counts.total() < _MOST_LINKS)
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


def status_entry(folder: CellFolder, *, links_too: bool = True) -> Entry:
    """One cell of ``--json``. Reads no events, so that ten thousand cells take seconds.

    Args:
        links_too: look into link.json as well, which nothing but its being readable depends on here.

    ``status`` is ``missing`` before the first attempt, ``running`` while a process holds the cell, ``unfinished`` after
    an attempt was cut off, ``unreadable`` where a record is broken: one such cell must not hide the others.
    """
    from bwbench.results.analysis.cells import PLANNED, UNFINISHED, is_composed, state_of
    from bwbench.results.analysis.composed_error import composed_error

    if (problem := _problem(folder, links_too)) is not None:
        return _unreadable(folder, problem)
    cell, recorded = folder.cell, folder.status
    entry: Entry = {key: getattr(cell, key) for key in ("id", "slug", "experiment", "arm", "repeat")}
    entry |= {"status": state_of(folder), "reason": recorded.reason if recorded is not None else None}
    entry |= {key: getattr(recorded, key, None) for key in _RECORDED}
    both = composed_error(folder)
    entry |= {"composed": is_composed(folder), "composed_error": both.error if both is not None else None}
    running = running_now(folder) if entry["status"] in (PLANNED, UNFINISHED) else None
    if running is not None:
        entry |= {"status": "running", "reason": _in_words(running)}
    return entry | {"running": running, "folder": str(folder.path), "config": cell.config}


def _problem(folder: CellFolder, links_too: bool) -> RecordError | None:
    try:
        return folder.problem if links_too else folder.problem_at_a_glance
    except RecordError as error:  # of the line of a published cell
        return error


def _unreadable(folder: CellFolder, problem: RecordError) -> Entry:
    from bwbench.experiment.plan.assess import UNREADABLE

    slug, _, cell_id = folder.path.name.rpartition("-")
    named = {"id": cell_id, "slug": slug, "experiment": folder.path.parent.name, "arm": "", "status": UNREADABLE}
    empty = dict.fromkeys(("metric", "time_to_target_s", "censored_at_s", "final_metric", "config"))
    empty |= {"composed": False, "composed_error": None}
    return {**named, **empty, "reason": str(problem), "folder": str(folder.path), "running": None}


def running_now(folder: CellFolder) -> Entry | None:
    """Who runs a cell and how far it is, from its claim and from what rank 0 has recorded; None where nobody does."""
    from bwbench.records.lock import claim_of

    claim = claim_of(folder.path)
    if claim is None:
        return None
    limit = (folder.cell.config.get("limit") or {}).get("samples")
    latest = _latest_evaluation(folder.last_attempt / "rank0.jsonl") if folder.last_attempt else None
    known: Entry = dict(vars(claim))
    known["phase"] = known["phase"] or "opening the link"
    if latest is not None and str(known["phase"]).startswith("starting"):
        known["phase"] = "training"
    far = None if latest is None else (latest.samples, latest.clock_s, latest.mean)
    measured = dict(zip(("samples", "clock_s", "metrics"), far or (None, None, None), strict=True))
    return {**known, **measured, "limit_samples": limit}


def _latest_evaluation(events: Path) -> Evaluation | None:
    """The last evaluation in a file that is being written; None where there is none yet."""
    from bwbench.records import read_last_events
    from bwbench.records.schema import Evaluation

    return next((event for event in reversed(read_last_events(events)) if isinstance(event, Evaluation)), None)


def _in_words(running: Entry) -> str:
    from bwbench.cli.output import seconds

    text = f"{running['phase']} on {running['host'] or '?'} (process {running['pid'] or '?'})"
    if running["samples"] is None:
        return text
    metric = "".join(f", {name} {value:.3g}" for name, value in (running["metrics"] or {}).items() if value is not None)
    share = f"{running['samples']} of at most {running['limit_samples']} samples"
    return f"{text}: {share}, {seconds(running['clock_s'])}{metric}"


def _print_table(cells: Iterable[Entry]) -> None:
    from bwbench.cli.plain_table import plain_table

    rows = []
    for cell in cells:
        row = [str(cell["experiment"]), str(cell["arm"]), f"{cell['slug']}-{cell['id']}", cell["status"]]
        time_s = time_to_target(cell["time_to_target_s"], cell["censored_at_s"], cell["composed"])
        rows.append([*row, time_s, _metric(cell), _first_line(cell["reason"])])
    columns = ["experiment", "arm", "cell", "status", "time to target", "final metric", "reason"]
    if len({row[0] for row in rows}) <= 1:
        columns, rows = columns[1:], [row[1:] for row in rows]
    for line in plain_table(columns, rows, right={"time to target"}):
        print(line)


def time_to_target(reached_s: float | None, censored_at_s: float | None, composed: bool) -> str:
    """``12.3 s``, ``> 60.0 s`` where the target was not reached within the training limit, ``-`` where it has none.

    ``composed`` after it where the time was not measured whole.
    """
    from bwbench.cli.output import seconds

    mark = " composed" if composed else ""
    if reached_s is not None:
        return f"{seconds(reached_s)}{mark}"
    return f"> {seconds(censored_at_s)}{mark}" if censored_at_s is not None else "-"


def _metric(cell: Entry) -> str:
    return "-" if cell["final_metric"] is None else f"{cell['metric'] or 'metric'} {cell['final_metric']:.4g}"


def _first_line(reason: object) -> str:
    line = str(reason or "").strip().partition("\n")[0]
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 1]}…"
