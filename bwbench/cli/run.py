"""``bwbench run``: the cells of one experiment file that are missing; a sweep of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bwbench.cli.sweep import DryRun, FailFast, Mode, Notify, Only, Results, Retry, Set


def run(
    file: Annotated[Path, typer.Argument(help="Experiment file (YAML).", show_default=False)],
    set_: Set = None,
    results: Results = Path("results"),
    retry: Retry = None,
    only: Only = None,
    fail_fast: FailFast = False,
    notify: Notify = None,
    mode: Mode = None,
    dry_run: DryRun = False,
) -> int:
    """Run an experiment: every cell of its matrix that is not done yet.

    Run the same command again after an interruption: only what is missing runs. Exit status 0 when every cell is done,
    1 when some failed, 2 for a mistake in the file, 3 when this machine cannot make the links or the disk is full.
    """
    from bwbench.base.errors import ConfigError
    from bwbench.cli.sweep import sweep

    if file.is_dir():
        raise ConfigError(f"{file} is a folder; `bwbench sweep {file}` runs all experiments in it")
    return sweep([file], set_, results, retry, only, None, fail_fast, notify, 0, mode=mode, dry_run=dry_run)
