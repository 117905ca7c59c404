"""``bwbench data``: download data sets, and say where they lie."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bwbench.base.errors import ConfigError

app = typer.Typer(help="Data sets: download them, say where they lie.", no_args_is_help=True)


@app.command("path")
def path() -> None:
    """Print the data folder: BWBENCH_DATA, else the user's cache."""
    from bwbench.training.datasets.folder import data_folder

    typer.echo(data_folder())


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Data sets, or 'all'.")],
) -> None:
    """Download data sets from their official addresses into the data folder, checked and resumable.

    What is there already with the right checksum is not downloaded again.
    """
    from bwbench.base import registry
    from bwbench.cli.download_display import open_display
    from bwbench.training.datasets.fetch import fetch as fetch_files
    from bwbench.training.datasets.folder import data_folder

    if "all" in names:
        names = [entry.name for entry in registry.DATASETS if registry.DATASETS.load(entry.name).files]
    if unknown := [name for name in names if name not in registry.DATASETS]:
        raise ConfigError("\n".join(registry.DATASETS.unknown(name) for name in unknown))
    folder = data_folder()
    for name in dict.fromkeys(names):
        files = registry.DATASETS.load(name).files
        if not files:
            typer.echo(f"{name}: nothing to download", err=True)
            continue
        with open_display(name, sys.stderr) as report:
            brought = fetch_files(files, folder, report)
        said = f"{len(brought)} file{'s' * (len(brought) != 1)} downloaded to" if brought else "already in"
        typer.echo(f"{name}: {said} {folder}", err=True)
