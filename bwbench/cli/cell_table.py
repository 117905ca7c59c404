"""How every cell ended, how far those are that run at this moment, and what experiments have cost."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from bwbench.base.errors import RecordError
from bwbench.base.plain_data import mapping_at
from bwbench.cli.output import plain_table, print_json, print_json_rows, seconds
from bwbench.methods.roles import HEADROOM, algorithms_of_role
from bwbench.records import CellFolder, read_last_events
from bwbench.records.lock import claim_of
from bwbench.records.own_and_published import Taken
from bwbench.records.schema import Evaluation
from bwbench.results.analysis.arrived_alone import arrived_alone_note
from bwbench.results.analysis.caveats import (
    Provenance,
    composed_error,
    composed_note,
    mixed_note,
    provenance_of,
    virtual_in_words,
)
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK
from bwbench.results.analysis.cells import PLANNED, RUNNING, UNFINISHED, cell_row, is_composed, is_virtual, state_of
from bwbench.results.analysis.host_bound import OwnSteps, host_bound_note
from bwbench.results.analysis.replicas_apart import replicas_apart_note
from bwbench.results.analysis.spent import spent

Entry: TypeAlias = dict[str, Any]  # of --json
_RECORDED = ("metric", "time_to_target_s", "censored_at_s", "final_metric", "test_metric", "steps", "samples",
             "training_clock_s", "wire_bytes")  # fmt: skip
_HOW_FAR_TO_TRUST = (
    "timing_runs", "between_share", "step_time_s", "slowest_step_s", "own_step_s", "host_bound", "arrived_alone",
)  # fmt: skip
_OF_NOTES = ("arm", "own_step_s", "host_bound", "slowest_step_s", "arrived_alone", "replicas_apart")
_MOST_LINKS = 500  # cells whose links are looked into: with more a list would take half as long again
RECORDED_NOTE = (  # of lists of what status.json says
    f"{FIRST_CROSSING_MARK} the first evaluation that met the target, as recorded; of runs that went on behind it "
    "(stop: limit) `bwbench compare` looks at the curve, and may count one as not arrived"
)
_REASON_LENGTH = 90  # of a line in the table; `bwbench show` and --json have all of it
_KINDS = {"whole": "whole runs", "convergence": "convergence", "timing": "timing", "tuning": "tuning"}


def print_cells(taken: Taken) -> None:
    """Print a line a cell on stdout; how many there are of each kind, and what must be said of them, on stderr.

    Of several experiments, the published cells of each are one line.
    """
    overview = _Overview()
    _print_table(overview.entries(taken))
    total = overview.counts.total()
    tally = ", ".join(f"{number} {name}" for name, number in overview.counts.most_common())
    print(f"{total} {'cell' if total == 1 else 'cells'}: {tally}", file=sys.stderr)
    for note in overview.notes:
        print(f"note: {note}", file=sys.stderr)


def print_cells_as_json(taken: Taken) -> None:
    """All cells as one JSON document, a line each."""
    overview = _Overview()
    entries = (entry for _, entry in overview.entries(taken))
    print_json_rows("cells", entries, lambda: {"notes": overview.notes})


def print_spent(taken: Taken, *, as_json: bool) -> None:
    """Print what each experiment has cost, and all together."""
    experiments, total = spent(taken.cells())
    rows = [total.to_json(), *(one.to_json() for one in experiments)]
    if as_json:
        print_json({"total": rows[0], "experiments": rows[1:]})
        return
    for line in _spent_lines(rows if len(experiments) > 1 else rows[1:]):
        print(line)


class _Overview:
    """What is to be said of all cells together, taken in one by one."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._provenances: set[Provenance] = set()
        self._num_composed, self._num_virtual = 0, 0
        self._done: list[Entry] = []
        self._any_crossed = False
        self._errors: list[float] = []

    def entries(self, taken: Taken) -> Iterator[tuple[CellFolder, Entry]]:
        """All cells, one after another, each with its entry and counted: all at once would fill the memory."""
        free_network = algorithms_of_role(HEADROOM)
        free = (cell for cell in taken.cells() if cell.path.name.startswith(free_network))
        own = OwnSteps.of(cell for cell in free if not has_problem(cell))
        for cell in taken.cells():
            entry = status_entry(cell, own, links_too=self.counts.total() < _MOST_LINKS)
            self.counts[entry["status"]] += 1
            self._num_composed += entry["composed"]
            self._num_virtual += entry["virtual"]
            self._any_crossed |= entry["time_to_target_s"] is not None and not entry["virtual"]
            if entry["composed_error"] is not None:
                self._errors.append(entry["composed_error"])
            if entry["status"] == "done":
                self._provenances.add(provenance_of(cell))
                self._done.append({name: entry[name] for name in _OF_NOTES})
            yield cell, entry

    @property
    def notes(self) -> list[str]:
        """What must be said of the cells that were taken."""
        composed = composed_note(self._num_composed, self.counts["done"], self._errors)
        crossed = RECORDED_NOTE if self._any_crossed else None
        apart, alone = replicas_apart_note(self._done), arrived_alone_note(self._done)
        bound = host_bound_note(self._done)
        virtual = virtual_in_words(self._num_virtual, self.counts["done"])
        mixed = mixed_note(self._provenances)
        return [note for note in (apart, crossed, alone, composed, bound, mixed, virtual) if note]


def status_entry(folder: CellFolder, own: OwnSteps, *, links_too: bool = True) -> Entry:
    """One cell of ``--json``. Reads no events, so that ten thousand cells take seconds.

    Args:
        own: what steps take without communication, of all cells that stand beside it.
        links_too: look into link.json as well, which nothing but its being readable depends on here.

    ``status`` is ``missing`` before the first attempt, ``running`` while a process holds the cell, ``unfinished`` after
    an attempt was cut off, ``unreadable`` where a record is broken: one such cell must not hide the others.
    """
    try:
        problem = folder.problem if links_too else folder.problem_at_a_glance
    except RecordError as error:  # of the line of a published cell
        problem = error
    if problem is not None:
        return _unreadable(folder, problem)
    cell, recorded = folder.cell, folder.status
    entry: Entry = {key: getattr(cell, key) for key in ("id", "slug", "experiment", "arm", "repeat")}
    entry |= {"status": state_of(folder), "reason": recorded.reason if recorded is not None else None}
    entry |= {key: getattr(recorded, key, None) for key in _RECORDED}
    both = composed_error(folder)
    entry |= {"composed": is_composed(folder), "composed_error": both.error if both is not None else None}
    entry["virtual"] = entry["status"] == "done" and is_virtual(folder)
    about = cell_row(folder) | own.row(folder)
    entry |= {name: about[name] for name in _HOW_FAR_TO_TRUST}
    entry["replicas_apart"] = about["replicas_apart"]
    running = running_now(folder) if entry["status"] in (PLANNED, UNFINISHED) else None
    if running is not None:
        entry |= {"status": RUNNING, "reason": _in_words(running)}
    return entry | {"running": running, "folder": str(folder.path), "config": cell.config}


def has_problem(folder: CellFolder) -> bool:
    """Whether one of a cell's records is broken."""
    try:
        return folder.problem_at_a_glance is not None
    except RecordError:
        return True


def _unreadable(folder: CellFolder, problem: RecordError) -> Entry:
    from bwbench.experiment.plan.assess import UNREADABLE  # planning takes a quarter of a second to import

    slug, _, cell_id = folder.path.name.rpartition("-")
    named = {"id": cell_id, "slug": slug, "experiment": folder.path.parent.name, "arm": "", "status": UNREADABLE}
    empty = dict.fromkeys(("metric", "time_to_target_s", "censored_at_s", "final_metric", "config"))
    empty |= {"composed": False, "composed_error": None, "virtual": False, **dict.fromkeys(_HOW_FAR_TO_TRUST)}
    empty["replicas_apart"] = False
    return {**named, **empty, "reason": str(problem), "folder": str(folder.path), "running": None}


def running_now(folder: CellFolder) -> Entry | None:
    """Who runs a cell and how far it is, from its claim and from what rank 0 has recorded; None where nobody does."""
    claim = claim_of(folder.path)
    if claim is None:
        return None
    limit = mapping_at(folder.cell.config, "limit").get("samples")
    events = read_last_events(folder.last_attempt / "rank0.jsonl") if folder.last_attempt else []
    latest = next((event for event in reversed(events) if isinstance(event, Evaluation)), None)
    known: Entry = {**vars(claim), "phase": claim.doing(is_training=latest is not None)}
    far = None if latest is None else (latest.samples, latest.clock_s, latest.mean)
    measured = dict(zip(("samples", "clock_s", "metrics"), far or (None, None, None), strict=True))
    return {**known, **measured, "limit_samples": limit}


def _in_words(running: Entry) -> str:
    text = f"{running['phase']} on {running['host'] or '?'} (process {running['pid'] or '?'})"
    if running["samples"] is None:
        return text
    metric = "".join(f", {name} {value:.3g}" for name, value in (running["metrics"] or {}).items() if value is not None)
    share = f"{running['samples']} of at most {running['limit_samples']} samples"
    return f"{text}: {share}, {seconds(running['clock_s'])}{metric}"


def _print_table(cells: Iterable[tuple[CellFolder, Entry]]) -> None:
    """A line a cell; where there are several experiments, below them a line for the published cells of each."""
    rows, sets = [], dict[str, _PublishedSet]()
    for cell, entry in cells:
        if cell.is_packed:
            sets.setdefault(str(entry["experiment"]), _PublishedSet(cell.path.parent)).add(entry)
        rows.append((cell.is_packed, _line_of(entry)))
    in_short = len({row[0] for _, row in rows}) > 1
    lines = [row for published, row in rows if not (published and in_short)]
    columns = ["experiment", "arm", "cell", "status", "time to target", "final metric", "reason"]
    if len({row[0] for row in lines}) <= 1 and not in_short:
        columns, lines = columns[1:], [row[1:] for row in lines]
    for line in plain_table(columns, lines, right={"time to target"}) if lines else ():
        print(line)
    if in_short and sets:
        counts = ["cells", "arms", "repeats", "reached target", "composed"]
        columns = ["published", *counts, "status", "its cells"]
        sums = [[name, *sets[name].words] for name in sorted(sets)]
        for line in (*[""] * bool(lines), *plain_table(columns, sums, right=set(counts))):
            print(line)


def _line_of(cell: Entry) -> list[str]:
    row = [str(cell["experiment"]), str(cell["arm"]), f"{cell['slug']}-{cell['id']}", cell["status"]]
    ends = cell["time_to_target_s"], cell["censored_at_s"]
    time_s = time_to_target(*ends, composed=cell["composed"], virtual=cell["virtual"])
    final = cell["final_metric"]
    metric = "-" if final is None else f"{cell['metric'] or 'metric'} {final:.4g}"
    reason = str(cell["reason"] or "").strip().partition("\n")[0]
    return [*row, time_s, metric, reason if len(reason) <= _REASON_LENGTH else f"{reason[: _REASON_LENGTH - 1]}…"]


@dataclass
class _PublishedSet:
    """What the cells of one published experiment come to."""

    folder: Path
    arms: set[str] = field(default_factory=set)
    repeats: set[int] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    num_reached: int = 0
    num_composed: int = 0

    def add(self, cell: Entry) -> None:
        """Count one more."""
        self.arms.add(str(cell["arm"]))
        self.repeats.add(cell.get("repeat") or 0)
        self.statuses[cell["status"]] += 1
        self.num_reached += cell["time_to_target_s"] is not None
        self.num_composed += cell["composed"]

    @property
    def words(self) -> list[str]:
        """The columns of its line, but for the name."""
        counts = (self.statuses.total(), len(self.arms), len(self.repeats), self.num_reached, self.num_composed)
        tally = ", ".join(f"{number} {name}" for name, number in self.statuses.most_common())
        return [*map(str, counts), tally, f"bwbench status {self.folder}"]


def time_to_target(
    reached_s: float | None, censored_at_s: float | None, *, composed: bool = False, virtual: bool = False
) -> str:
    """``12.3 s ‡``, ``> 60.0 s`` where the target was not met within the training limit, ``-`` where there is none.

    What status.json says, so that no curve is read: the first crossing, which is marked. ``composed`` after it where
    the time was not measured whole; ``virtual`` in place of it where the nodes were, whose times say nothing.
    """
    if virtual:
        return "virtual"
    mark = " composed" if composed else ""
    if reached_s is not None:
        return f"{seconds(reached_s)} {FIRST_CROSSING_MARK}{mark}"
    return f"> {seconds(censored_at_s)}{mark}" if censored_at_s is not None else "-"


def _spent_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines, from ``Spent.to_json`` of every experiment and of all together."""
    yield "machine hours (wall time of the last attempt at every run; of 'all', shared runs count once)"
    columns = ["experiment", "hours", *_KINDS.values()]
    table = []
    for row in rows:
        each = [
            f"{row['machine_s_by_kind'][kind] / 3600:.2f} ({row['num_runs'][kind]})" if row["num_runs"][kind] else "-"
            for kind in _KINDS
        ]
        table.append([row["experiment"], f"{row['machine_s'] / 3600:.2f}", *each])
    yield from plain_table(columns, table, right=set(columns[1:]))
    yield ""
    yield "cells; error of composed times against whole runs; error of links, achieved against asked"
    columns = ["experiment", "done", "composed", "whole", "both ways", "error", "at most", "in interval",
               "links", "goodput", "95 %", "worst", "RTT", "95 % ", "worst "]  # fmt: skip
    table = []
    for row in rows:
        off, goodput, rtt = row["composed_error"], row["goodput_error"], row["rtt_error"]
        share = "-" if row["whole_share"] is None else f"{row['whole']} ({100 * row['whole_share']:.0f} %)"
        inside = f"{off['inside']} of {off['with_interval']}" if off["with_interval"] else "-"
        counts = [f"{row['done']} of {row['cells']}", str(row["composed"]), share, str(off["num"])]
        errors = [_percent(off["median"]), _percent(off["worst"]), inside, str(row["links"])]
        links = [_percent(spread[key]) for spread in (goodput, rtt) for key in ("median", "p95", "worst")]
        table.append([row["experiment"], *counts, *errors, *links])
    yield from plain_table(columns, table, right=set(columns[1:]))
    if unknown := sum(row["num_unknown_runs"] for row in rows[:1]):
        yield f"{unknown} runs that cells were composed from are not in the records: their time is not counted"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2g} %"
