"""Progress of a sweep: a live table on a terminal, plain lines elsewhere. Both go to stderr."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from bwbench.cli.output import MUCH_LESS, new_table, seconds, stderr
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.records.schema import Evaluation, Event, Status
from bwbench.running.sweep.account import TimeLeft

PLAIN_EVERY_S = 2.0  # a log shall show that a cell gets on, not every evaluation
MOST_SKIPPED_SAID = 5  # one by one; of the others the number
ROWS = 20  # of the live table: the newest; `bwbench status` has all
_STYLES = {"done": "green", "running": "cyan", "skipped": "dim"}


class _Row:
    """What is known of one cell that runs or has run."""

    def __init__(self, cell: Cell, number: int) -> None:
        self.cell, self.number = cell, number
        self.state, self.phase = "running", "opening the link"
        self.metric = ""
        self.clock_s: float | None = None
        self.samples = 0
        self.reason = ""

    def note(self, event: Event) -> None:
        if isinstance(event, Evaluation):
            self.phase = "training"
            self.samples, self.clock_s = event.samples, event.clock_s
            target = self.cell.config.target
            name = target.metric if target else "accuracy"
            value = event.mean.get(name)
            if event.split == "validation" and value is not None:
                self.metric = f"{name} {value:.3f}"

    def finish(self, status: Status) -> None:
        self.state, self.reason = status.status, outcome_in_words(status, virtual=self.cell.config.compute.virtual)
        self.clock_s = status.training_clock_s


def _key(cell: Cell) -> tuple[str, str]:
    return cell.experiment, cell.id


class _Shown:
    """What both ways to show a sweep keep.

    Args:
        left: knows how long the cells will take; is told of those that begin and end.
        total: number of cells that are to run.
    """

    def __init__(self, left: TimeLeft, total: int) -> None:
        self._left, self._total = left, total
        self._rows: dict[tuple[str, str], _Row] = {}

    def _left_in_words(self) -> str:
        """``, about 12 min left``; at most as long as predicted before anything has been measured, and while a cell may
        be at its target long before its limit."""
        if (left_s := self._left.left_s()) < 1:
            return ""
        sooner = self._left.may_end_sooner
        about = "about" if self._left.is_measured and not sooner else "at most about"
        return f", {about} {seconds(left_s)} left{f', {MUCH_LESS}' if sooner else ''}"


class PlainProgress(_Shown):
    """One line an occurrence, for logs and pipes."""

    def __init__(self, left: TimeLeft, total: int) -> None:
        super().__init__(left, total)
        self._console = stderr()
        self._said_s = 0.0
        self._skipped = 0

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._skipped > MOST_SKIPPED_SAID:
            self._console.print(f"{self._skipped} cells were skipped; `bwbench plan` says why for each")

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """Say which cell begins on which link; ``number`` is 0 of a run that cells are composed from."""
        self._total = total
        self._rows[_key(item.cell)] = _Row(item.cell, number)
        self._left.start(item)
        config = item.cell.config
        self._say(item.cell, f"starts: {config.nodes} node(s), {config.link.describe()}{self._left_in_words()}")

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Keep quiet, unless others are waited for: phases last a second or two."""
        if phase.startswith("waiting"):
            self._say(cell, phase)

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        """Say how far it is, now and then, as rank 0 reports it."""
        row = self._rows[_key(cell)]
        if rank != 0 or not isinstance(event, Evaluation) or event.split != "validation":
            return
        row.note(event)
        if time.monotonic() - self._said_s > PLAIN_EVERY_S:
            self._said_s = time.monotonic()
            self._say(cell, f"{row.metric} after {row.samples} samples, {seconds(row.clock_s)} of training".strip())

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """Say how the cell ended."""
        self._left.finish(item, status)
        words = outcome_in_words(status, virtual=item.cell.config.compute.virtual)
        self._say(item.cell, f"{status.status}: {words}")
        del self._rows[_key(item.cell)]

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        """Say that another process was quicker."""
        self._left.drop(item)
        self._console.print(f"{item.cell.slug}: {status.status} meanwhile, by another process")

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        """Say why it does not run."""
        self._left.drop(item)
        self._skipped += 1
        if self._skipped <= MOST_SKIPPED_SAID:
            self._console.print(f"{item.cell.slug}: {why if why.startswith('skipped') else f'skipped: {why}'}")

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        """Say what is waited for."""
        for item in items:
            self._left.drop(item)
        names = ", ".join(item.cell.slug for item in items[:3]) + (" …" if len(items) > 3 else "")
        self._console.print(f"waiting for {len(items)} cell(s) that other processes run: {names}")

    def note(self, text: str) -> None:
        """Say it."""
        self._console.print(f"note: {text}")

    def _say(self, cell: Cell, text: str) -> None:
        row = self._rows[_key(cell)]
        number = f"[{row.number}/{self._total}]" if row.number else "[part]"
        self._console.print(f"{number} {cell.slug}: {text}")


class LiveProgress(_Shown):
    """A table of the newest finished cells and the running one that is drawn anew while they run."""

    def __init__(self, left: TimeLeft, total: int) -> None:
        super().__init__(left, total)
        self._counts: Counter[str] = Counter()
        self._started_s = time.monotonic()
        self._note = ""
        self._live = Live(console=stderr(), refresh_per_second=4, get_renderable=self._render)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """Add a row."""
        self._total, self._note = total, ""
        self._left.start(item)
        rows = {**self._rows, _key(item.cell): _Row(item.cell, number)}
        ended = [key for key, row in rows.items() if row.state != "running"]
        dropped = set(ended[: max(0, len(rows) - ROWS)])
        self._rows = {key: row for key, row in rows.items() if key not in dropped}

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Show the phase in the cell's row."""
        self._rows[_key(cell)].phase = phase

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        """Show the newest accuracy."""
        if rank == 0:
            self._rows[_key(cell)].note(event)

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """Show how the cell ended."""
        self._rows[_key(item.cell)].finish(status)
        self._left.finish(item, status)
        self._counts[f"{item.part} runs {status.status}" if item.part else status.status] += 1

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        """Count it."""
        self._left.drop(item)
        self._rows.pop(_key(item.cell), None)
        self._counts[f"{status.status} elsewhere"] += 1

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        """Count it, and show why."""
        self._left.drop(item)
        self._counts["skipped"] += 1
        self._note = why

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        """Show what is waited for."""
        for item in items:
            self._left.drop(item)
        self._note = f"waiting for {len(items)} cell(s) that other processes run"

    def note(self, text: str) -> None:
        """Leave it above the table."""
        self._live.console.print(f"note: {text}")

    def _render(self) -> RenderableType:
        table = new_table("cell", "link", "state", "accuracy", "training", "", right=("training",))
        for row in list(self._rows.values()):
            state = Text(row.state, style=_STYLES.get(row.state, "red"))
            share = f"{row.samples} of at most {row.cell.config.limit.samples} samples"
            note = row.reason if row.state != "running" else f"{row.phase} ({share})"
            link = row.cell.config.link.in_brief
            table.add_row(row.cell.slug, link, state, row.metric, seconds(row.clock_s), note.partition("\n")[0][:100])
        counts = ", ".join(f"{number} {name}" for name, number in self._counts.items())
        line = f"{counts or 'none finished'} of {self._total}, {seconds(time.monotonic() - self._started_s)} so far"
        lines = [Text(line + self._left_in_words(), style="dim")]
        return Group(table, *lines, *([Text(self._note[:200], style="yellow")] if self._note else []))


def outcome_in_words(status: Status, *, virtual: bool = False) -> str:
    """The end of a cell in words; in samples where its nodes are virtual, whose times say nothing."""
    mark = ", composed" if status.composed is not None else ""
    if status.status in ("done", "diverged") and status.time_to_target_s is not None:
        reached = (
            f"{status.samples_to_target} samples" if virtual else f"{seconds(status.time_to_target_s)} of training"
        )
        return f"target reached after {reached}{mark}"
    if status.status in ("done", "diverged") and status.censored_at_s is not None:
        limit = f"{status.samples} samples" if virtual else f"{seconds(status.censored_at_s)} of training"
        return f"target not reached within {limit}{mark}"
    return str(status.reason)
