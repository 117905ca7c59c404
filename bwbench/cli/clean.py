"""``bwbench clean``: what is left over, on the machine and in a result folder."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer


def clean(
    results: Annotated[Path | None, typer.Argument(help="Also drop unfinished attempts below this folder.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove leftovers: processes of bwbench whose parent is gone, partial files, attempts that never finished.

    Finished cells, running ones and checkpoints are never touched. Namespaces and qdiscs need no cleaning: they vanish
    with their processes.
    """
    from bwbench.base.errors import CellTakenError, ConfigError
    from bwbench.cli.output import stderr
    from bwbench.network.probe.machine import end_leftovers, find_leftovers
    from bwbench.records import iter_cells
    from bwbench.records.lock import claim_of, claimed

    if results is not None and not results.is_dir():
        raise ConfigError(f"{results} is no folder; name a result folder, or nothing to clean the machine alone")
    leftovers = find_leftovers()
    for leftover in leftovers:
        print(f"process {leftover.pid}: {leftover.command}")
    removed = len(leftovers)
    if leftovers and not dry_run:
        end_leftovers(leftovers)
    for folder in iter_cells(results) if results is not None else ():
        if folder.is_packed or claim_of(folder.path) is not None:
            continue
        if folder.problem is not None:  # what belongs to it cannot be told
            print(f"left alone: {folder.problem}", file=sys.stderr)
            continue
        try:
            with contextlib.nullcontext() if dry_run else claimed(folder.path):
                for path in _left_in(folder.path):
                    print(path)
                    removed += 1
                    if not dry_run:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        except CellTakenError:  # a process has just begun to run it
            continue
    verb = "would be removed" if dry_run else "removed"
    stderr().print(f"{removed} leftover(s) {verb}" if removed else "nothing left over")


def _left_in(cell: Path) -> list[Path]:
    """What nobody needs of a cell that is not running."""
    from bwbench.records import CellFolder
    from bwbench.records.checkpoint import has_checkpoint

    folder = CellFolder(cell)
    found = list(cell.glob(".*.part"))
    if folder.status is None:
        return [*found, *(attempt for attempt in folder.attempts if not has_checkpoint(attempt))]
    return [*found, *folder.attempts[:-1]] if folder.status.status == "done" else found
