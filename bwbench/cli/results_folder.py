"""The folder of results that a command is given: whether it holds any, which cell is meant, what cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import ConfigError, RecordError

ResultsFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
]
_SHOWN_UNREADABLE = 8
_SHOWN_MATCHES = 8


def check_folder(folder: Path) -> None:
    """Raise ConfigError where ``folder`` holds no cell."""
    from bwbench.records import iter_cells

    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name a results folder or one experiment in it")
    if next(iter_cells(folder), None) is None:
        hint = "name a results folder or one experiment in it, or make one with `bwbench run FILE`"
        raise ConfigError(f"{folder} holds no records: no <experiment>/<cell>/cell.json in it; {hint}")


def find_cell(name: str, results: Path) -> Path:
    """Folder of the cell that ``name`` means: a path, or an id (or its start) or slug below ``results``.

    Raises ConfigError where there is none, or more than one.
    """
    path = Path(name)
    if path.name == "cell.json" and path.is_file():
        return path.parent
    if (path / "cell.json").is_file():
        return path

    from bwbench.records import cell_at, iter_cells

    if (found := cell_at(path)).is_packed:
        return found.path
    if not results.is_dir():
        raise ConfigError(f"{name!r} is no cell's folder, and there is no folder {results}; name one with --results")
    folders = [folder.path for folder in iter_cells(results)]
    parts = [(folder, *folder.name.rpartition("-")[::2]) for folder in folders]  # <slug>-<id>
    exact = [folder for folder, slug, cell_id in parts if name in (cell_id, slug, folder.name)]
    near = exact or [folder for folder, slug, cell_id in parts if cell_id.startswith(name) or slug.startswith(name)]
    if not near:
        raise ConfigError(f"no cell {name!r} below {results}; `bwbench status {results}` lists all {len(folders)}")
    if len(near) > 1:
        listed = "\n  ".join(str(folder) for folder in near[:_SHOWN_MATCHES])
        more = f"\n  and {len(near) - _SHOWN_MATCHES} more" if len(near) > _SHOWN_MATCHES else ""
        raise ConfigError(f"{name!r} means {len(near)} cells; name one by its id or folder:\n  {listed}{more}")
    return near[0]


def say_unreadable(refused: Sequence[RecordError]) -> None:
    """Notes on stderr: which cells cannot be read and are left out, each with its reason, and how many there are."""
    for error in refused[:_SHOWN_UNREADABLE]:
        print(f"note: left out: {error}", file=sys.stderr)
    if len(refused) > _SHOWN_UNREADABLE:
        more = len(refused) - _SHOWN_UNREADABLE
        print(f"note: left out: {more} more; `bwbench status` names them all", file=sys.stderr)
    if refused:
        words = "1 cell is" if len(refused) == 1 else f"{len(refused)} cells are"
        print(f"note: {words} unreadable", file=sys.stderr)
