"""A table of what every node sends, receives and loses, drawn anew each second below whatever else is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.base.units import BANDWIDTH
from bwbench.cli.output import new_table, stderr

if TYPE_CHECKING:
    from rich.live import Live

    from bwbench.cli.link.run_verdict import NodeTraffic

_SHOWN_NODES = 8


class RunMeter:
    """Drawn on stderr; does nothing unless ``is_shown``."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._live: Live | None = None

    def draw(self, nodes: Sequence[NodeTraffic]) -> None:
        """Show what the nodes did in the last second."""
        if not self._is_shown:
            return
        from rich.live import Live

        self.hide()
        # Frames, not a share: only a part of what is lost was sent; what finds its sender's queue full was not.
        columns = ("node", "up", "down", "frames lost")
        table = new_table(*columns, right=columns)
        for row in nodes[:_SHOWN_NODES]:
            rates = (BANDWIDTH.show(rate_bps, 3) for rate_bps in (row.sent_bps, row.received_bps))
            table.add_row(str(row.node), *rates, str(row.dropped_frames))
        if len(nodes) > _SHOWN_NODES:
            table.caption = f"and {len(nodes) - _SHOWN_NODES} more nodes"
        self._live = Live(table, console=stderr(), auto_refresh=False, transient=True)
        self._live.start(refresh=True)

    def hide(self) -> None:
        """Take it off the screen, so that something else can be printed. Safe to call at any time."""
        if self._live is not None:
            self._live.stop()
            self._live = None
