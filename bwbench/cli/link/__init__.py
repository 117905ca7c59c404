"""``bwbench link``: the link layer by itself."""

from __future__ import annotations

import typer

from bwbench.cli.link import measure, real_interface, run_in_nodes, shown_link

app = typer.Typer(help="The link layer by itself: ask for a link, measure what it does.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


app.command()(measure.verify)
app.command(help=run_in_nodes.HELP, context_settings={"allow_interspersed_args": False})(run_in_nodes.run)
app.command()(shown_link.presets)
app.command()(shown_link.show)
app.command()(measure.record)
app.command(help=real_interface.APPLY_HELP)(real_interface.apply)
app.command()(real_interface.clear)
