"""The console that tables and progress are drawn on."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from bwbench.cli.clean_text import clean


class CleanConsole(Console):
    """Colours and moves are this program's own; in the texts between them nothing commands the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich renders it, its texts cleaned."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else clean(text), style, control)
