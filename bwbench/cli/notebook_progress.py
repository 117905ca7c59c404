"""Progress of a sweep in a notebook: the live table of a terminal as one output, which is replaced while cells run.

IPython's own updates are enough for that: rich's live display would need ipywidgets.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from bwbench.cli.clean_console import CleanConsole
from bwbench.cli.output import stderr
from bwbench.cli.sweep_progress import LiveProgress
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.records.schema import Event, Status
from bwbench.running.sweep.account import TimeLeft

EVALUATIONS_EVERY_S = 0.5  # a page that is drawn anew takes processor time that cells run on
_WIDTH = 130  # columns; a notebook scrolls what is wider
_HTML = '<pre style="line-height: normal; white-space: pre; overflow-x: auto">{code}</pre>'


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this program; asks nothing that is not loaded already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class NotebookProgress(LiveProgress):
    """The table of ``LiveProgress``, drawn anew when something happens, and not by a clock."""

    def __init__(self, left: TimeLeft, total: int) -> None:
        super().__init__(left, total)
        self._output: Any = None
        self._drawn_s = -math.inf

    def __enter__(self) -> NotebookProgress:
        if self._total:
            self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        if self._output is not None:
            self._draw()

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """Add a row."""
        super().cell_started(item, number, total)
        self._draw()

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Show the phase in the cell's row."""
        super().cell_phase(cell, phase)
        self._draw()

    def cell_event(self, cell: Cell, rank: int, event: Event) -> None:
        """Show the newest accuracy, now and then."""
        super().cell_event(cell, rank, event)
        if time.monotonic() - self._drawn_s > EVALUATIONS_EVERY_S:
            self._draw()

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """Show how the cell ended."""
        super().cell_finished(item, status)
        self._draw()

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        """Count it."""
        super().cell_elsewhere(item, status)
        self._draw()

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        """Count it, and show why."""
        super().cell_skipped(item, why)
        self._draw()

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        """Say what is waited for."""
        super().waiting(items)
        self._draw()

    def note(self, text: str) -> None:
        """Leave it beside the table."""
        stderr().print(f"note: {text}")

    def _draw(self) -> None:
        import IPython.display  # nobody else needs it

        notebook: Any = IPython.display
        shown = _as_mime(self._render())
        self._drawn_s = time.monotonic()
        if self._output is None:
            self._output = notebook.display(shown, raw=True, display_id=True)
        else:
            self._output.update(shown, raw=True)


def _as_mime(table: RenderableType) -> dict[str, str]:
    """What a terminal would show, as HTML and as text."""
    console = CleanConsole(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False, highlight=False)
    console.print(table)
    return {
        "text/html": console.export_html(inline_styles=True, code_format=_HTML, clear=False),
        "text/plain": console.export_text(),
    }
