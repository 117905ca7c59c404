"""``bwbench show``: everything that was recorded of one cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.base.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from bwbench.records import CellFolder
    from bwbench.records.schema import CurvePoint, End, LedgerSummary
    from bwbench.results.analysis.composed_error import ComposedError

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
    record = shown(find_cell(cell, results))
    if json:
        from bwbench.cli.output import print_json

        print_json(record.to_json())
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


@dataclass(frozen=True)
class Shown:
    """All that is known of one cell: its records, and what the event files add up to.

    Attributes:
        ledger, curve, ends: by events, or by what stands for them; ``ends`` by rank, None of a rank that did not end.
        logs: the last lines by file, where the cell is not done.
    """

    folder: CellFolder
    state: str
    ledger: LedgerSummary | None
    curve: Sequence[CurvePoint]
    ends: dict[int, End | None]
    composed_error: ComposedError | None
    logs: dict[str, list[str]]

    def to_json(self) -> dict[str, Any]:
        """The files as they stand, fields that this version ignores included, and the rest."""
        folder, error = self.folder, self.composed_error
        whole = folder.raw("composed.json") if folder.composed is not None else None
        composed = whole if isinstance(whole, dict) else {}
        return {
            "folder": str(folder.path),
            "state": self.state,
            "cell": folder.raw("cell.json"),
            "status": folder.raw("status.json"),
            "attempts": folder.num_attempts,
            "link": composed.get("link") if composed else folder.raw("link.json"),
            "environment": composed.get("environment") if composed else folder.raw("environment.json"),
            "composed": composed or None,
            "composed_error": {**vars(error), "error": error.error} if error else None,
            "ledger": self.ledger.to_json() if self.ledger is not None else None,
            "evaluations": [point.to_json() for point in self.curve],
            "ends": {rank: end.to_json() if end is not None else None for rank, end in self.ends.items()},
            "logs": self.logs,
        }


def shown(path: Path) -> Shown:
    """The cell in ``path``. Raises RecordError where one of its records cannot be read."""
    from bwbench.records import cell_at
    from bwbench.records.schema import End
    from bwbench.results.analysis.cells import state_of
    from bwbench.results.analysis.clocks import Clocks
    from bwbench.results.analysis.composed_error import composed_error
    from bwbench.results.analysis.ledger import summarise_ledger
    from bwbench.results.analysis.trial import curve_of

    folder = cell_at(path)
    if folder.problem is not None:
        raise folder.problem
    digest, state = folder.digest, state_of(folder)
    events = {rank: folder.events(rank) for rank in folder.ranks} if digest is None else {}
    return Shown(
        folder=folder,
        state=state,
        ledger=summarise_ledger(events, Clocks.of_link(folder.link)) if digest is None else digest.ledger,
        curve=curve_of(events) if digest is None else digest.curve,
        ends={rank: next((e for e in reversed(found) if isinstance(e, End)), None) for rank, found in events.items()},
        composed_error=composed_error(folder),
        logs={} if state == "done" else folder.log_tails(),
    )
