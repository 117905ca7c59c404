"""Calling ``bwbench link verify`` without the program around it."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from bwbench.cli.link.link_commands import app


def verify(*flags: str, **options: str) -> Result:
    """Run the command; errors meant for the user are raised as they are."""
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = CliRunner().invoke(app, ["verify", *words, *flags], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result
