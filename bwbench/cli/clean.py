"""``bwbench clean``: what is left over, on the machine and in a result folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer


def clean(
    results: Annotated[Path | None, typer.Argument(help="Also drop unfinished attempts below this folder.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove leftovers: processes of bwbench whose parent is gone, partial files, attempts that never finished.

    Finished cells are never touched. Namespaces and qdiscs need no cleaning: they vanish with their processes.
    """
    from bwbench.cli.output import stderr
    from bwbench.errors import ConfigError
    from bwbench.network.leftovers import end_leftovers, find_leftovers
    from bwbench.records import iter_cells
    from bwbench.records.checkpoint import has_checkpoint

    if results is not None and not results.is_dir():
        raise ConfigError(f"{results} is no folder; name a result folder, or nothing to clean the machine alone")
    leftovers = find_leftovers()
    for leftover in leftovers:
        print(f"process {leftover.pid}: {leftover.command}")
    removed = len(leftovers)
    if leftovers and not dry_run:
        end_leftovers(leftovers)
    for folder in iter_cells(results) if results is not None else ():
        paths = list(folder.path.glob(".*.part"))
        if folder.status is None:
            paths += [attempt for attempt in folder.attempts if not has_checkpoint(attempt)]
        elif folder.status.get("status") == "done":
            paths += folder.attempts[:-1]
        for path in paths:
            print(path)
            removed += 1
            if not dry_run:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    verb = "would be removed" if dry_run else "removed"
    stderr().print(f"{removed} leftover(s) {verb}" if removed else "nothing left over")
