"""``bwbench show``: everything that was recorded of one cell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError

_SHOWN_MATCHES = 8


def show(
    cell: Annotated[
        str,
        typer.Argument(metavar="CELL", help="Its folder, its id or the start of it, or its slug.", show_default=False),
    ],
    results: Annotated[Path, typer.Option(help="Where to look for an id or a slug.")] = Path("results"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Show one cell: its configuration, the link it asked for and got, where its time went, bytes, and its log."""
    from bwbench.cli.cell_text import cell_text, shown

    record = shown(find_cell(cell, results))
    if json:
        from bwbench.cli.output import print_json

        print_json(record.to_json())
    else:
        for line in cell_text(record):
            print(line)
    return EXIT_OK


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
