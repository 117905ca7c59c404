"""``bwbench link``: the link layer by itself. One file a command."""

from __future__ import annotations

import typer

from bwbench.cli.link import apply, clear, presets, record, run, show, verify

app = typer.Typer(help="The link layer by itself: ask for a link, measure what it does.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


app.command()(verify.verify)
app.command(help=run.HELP, context_settings={"allow_interspersed_args": False})(run.run)
app.command()(presets.presets)
app.command()(show.show)
app.command()(record.record)
app.command(help=apply.HELP)(apply.apply)
app.command()(clear.clear)
