"""``bwbench link``: the link layer by itself. Its commands are loaded when one is asked for: they have most options."""

from __future__ import annotations

from typing import Any

import typer

from bwbench.cli.command_help import CommandGroup

LINK_HELP = "The link layer by itself: ask for a link, measure what it does."


class LinkGroup(CommandGroup):
    """The commands of ``link_commands.py``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order in which they are declared."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none."""
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if not self.commands:
            from bwbench.cli.link.link_commands import app  # a fifth of the time of `bwbench --help`

            group: Any = typer.main.get_command(app)
            self.commands = group.commands
