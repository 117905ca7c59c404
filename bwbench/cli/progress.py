"""Progress of a run: a live table on a terminal, plain lines elsewhere. Both go to stderr."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from bwbench.cli.output import new_table, seconds, stderr
from bwbench.plan.cell import Cell

PLAIN_EVERY_S = 2.0  # a log shall show that a cell gets on, not every evaluation
_STYLES = {"done": "green", "running": "cyan"}


class _Row:
    """What is known of one cell that runs or has run."""

    def __init__(self, cell: Cell, number: int) -> None:
        self.cell, self.number = cell, number
        self.state, self.phase = "running", "opening the link"
        self.metric, self.target = "", ""
        self.clock_s: float | None = None
        self.samples = 0
        self.reason = ""

    def note(self, event: dict[str, Any]) -> None:
        if event.get("event") == "eval":
            self.phase = "training" if event.get("split") == "validation" else "testing"
            self.samples, self.clock_s = int(event.get("samples", 0)), event.get("clock_s")
            target = self.cell.config.target
            name = target.metric if target else "accuracy"
            value = (event.get("mean") or {}).get(name)
            if event.get("split") == "validation" and value is not None:
                self.metric = f"{name} {value:.3f}"


class PlainProgress:
    """One line an occurrence, for logs and pipes."""

    def __init__(self) -> None:
        self._console = stderr()
        self._rows: dict[str, _Row] = {}
        self._total = 0
        self._said_s = 0.0

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def cell_started(self, cell: Cell, number: int, total: int) -> None:
        """Say which cell begins on which link."""
        self._total = total
        self._rows[cell.id] = _Row(cell, number)
        self._say(cell, f"starts: {cell.config.nodes} node(s), {cell.config.link.describe()}")

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Keep quiet: phases last a second or two."""
        self._rows[cell.id].phase = phase

    def cell_event(self, cell: Cell, rank: int, event: dict[str, Any]) -> None:
        """Say how far it is, now and then, as rank 0 reports it."""
        row = self._rows[cell.id]
        if rank != 0 or event.get("event") != "eval" or event.get("split") != "validation":
            return
        row.note(event)
        if time.monotonic() - self._said_s > PLAIN_EVERY_S:
            self._said_s = time.monotonic()
            self._say(cell, f"{row.metric} after {row.samples} samples, {seconds(row.clock_s)} of training")

    def cell_finished(self, cell: Cell, status: dict[str, Any]) -> None:
        """Say how the cell ended."""
        self._say(cell, f"{status['status']}: {_outcome(status)}")

    def _say(self, cell: Cell, text: str) -> None:
        row = self._rows[cell.id]
        self._console.print(f"[{row.number}/{self._total}] {cell.slug}: {text}")


class LiveProgress:
    """A table of finished and running cells that is drawn anew while they run."""

    def __init__(self, predicted_s: dict[str, float]) -> None:
        self._console = stderr()
        self._predicted_s = predicted_s
        self._rows: dict[str, _Row] = {}
        self._total = 0
        self._started = time.monotonic()
        self._cell_started = self._started
        self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self._render)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def cell_started(self, cell: Cell, number: int, total: int) -> None:
        """Add a row."""
        self._total, self._cell_started = total, time.monotonic()
        self._rows[cell.id] = _Row(cell, number)

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Show the phase in the cell's row."""
        self._rows[cell.id].phase = phase

    def cell_event(self, cell: Cell, rank: int, event: dict[str, Any]) -> None:
        """Show the newest accuracy."""
        if rank == 0:
            self._rows[cell.id].note(event)

    def cell_finished(self, cell: Cell, status: dict[str, Any]) -> None:
        """Show how the cell ended."""
        row = self._rows[cell.id]
        row.state, row.reason, row.clock_s = status["status"], _outcome(status), status.get("training_clock_s")

    def _render(self) -> RenderableType:
        table = new_table("cell", "link", "state", "accuracy", "training", "", right=("training",))
        for row in self._rows.values():
            state = Text(row.state, style=_STYLES.get(row.state, "red"))
            note = row.reason if row.state != "running" else f"{row.phase} ({self._share(row)})"
            link = row.cell.config.link.describe().partition(" (")[0]
            table.add_row(row.cell.slug, link, state, row.metric, seconds(row.clock_s), note.splitlines()[0][:100])
        left = self._left_s()
        line = f"cell {len(self._rows)} of {self._total}, {seconds(time.monotonic() - self._started)} so far"
        return Group(table, Text(line + (f", at most about {seconds(left)} left" if left else ""), style="dim"))

    def _share(self, row: _Row) -> str:
        limit = row.cell.config.limit.samples
        return f"{row.samples} of at most {limit} samples"

    def _left_s(self) -> float:
        waiting = [s for cell_id, s in self._predicted_s.items() if cell_id not in self._rows]
        running = [self._predicted_s.get(r.cell.id, 0.0) for r in self._rows.values() if r.state == "running"]
        spent_s = time.monotonic() - self._cell_started
        return sum(waiting) + sum(max(0.0, predicted_s - spent_s) for predicted_s in running)


def _outcome(status: dict[str, Any]) -> str:
    """The end of a cell in words."""
    if status["status"] not in ("done", "diverged"):
        return str(status["reason"])
    if status.get("time_to_target_s") is not None:
        return f"target reached after {seconds(status['time_to_target_s'])} of training"
    if status.get("censored_at_s") is not None:
        return f"target not reached within {seconds(status['censored_at_s'])} of training"
    return str(status["reason"])
