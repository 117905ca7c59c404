"""``bwbench show``: everything that was recorded of one cell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    record = cell_record(find_cell(cell, results))
    if json:
        from bwbench.cli.output import print_json

        print_json(record)
    else:
        from bwbench.cli.cell_text import cell_text

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


def cell_record(path: Path) -> dict[str, Any]:
    """All that is known of the cell in ``path``: the files' contents, and what the event files add up to."""
    from dataclasses import asdict

    from bwbench.records import cell_at
    from bwbench.results.analysis.cells import state_of
    from bwbench.results.analysis.clocks import Clocks
    from bwbench.results.analysis.composed_error import composed_error
    from bwbench.results.analysis.ledger import summarise_ledger
    from bwbench.results.analysis.trial import curve_of

    folder = cell_at(path)
    digest = folder.digest
    events = {rank: folder.events(rank) for rank in folder.ranks} if digest is None else {}
    ledger = summarise_ledger(events, Clocks.of_link(folder.link))
    error = composed_error(folder)
    ends = {rank: next((e for e in reversed(found) if e.get("event") == "end"), None) for rank, found in events.items()}
    state = state_of(folder)
    return {
        "folder": str(path),
        "state": state,
        "cell": folder.cell,
        "status": folder.status,
        "attempts": folder.num_attempts,
        "link": folder.link,
        "environment": folder.environment,
        "composed": folder.composed,
        "composed_error": asdict(error) | {"error": error.error} if error else None,
        "ledger": (asdict(ledger) if ledger else None) if digest is None else digest.get("ledger"),
        "evaluations": curve_of(events) if digest is None else digest.get("curve") or [],
        "ends": ends,
        "logs": {} if state == "done" else folder.log_tails(),
    }
