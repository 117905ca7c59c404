"""Append-only facts of a trial, as plain files."""

from bwbench.records.files import (
    SCHEMA,
    EventWriter,
    dump_line,
    read_events,
    read_json,
    read_last_events,
    write_json_atomic,
)
from bwbench.records.store import CellFolder, cell_at, iter_cells

__all__ = [
    "SCHEMA",
    "CellFolder",
    "EventWriter",
    "cell_at",
    "dump_line",
    "iter_cells",
    "read_events",
    "read_json",
    "read_last_events",
    "write_json_atomic",
]
