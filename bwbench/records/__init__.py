"""Append-only facts of a trial, as plain files; every field of them stands in ``records.schema``."""

from bwbench.records.files import (
    EventWriter,
    dump_line,
    read_events,
    read_json,
    read_last_events,
    read_record,
    write_json_atomic,
    write_record,
)
from bwbench.records.schema.record import SCHEMA
from bwbench.records.store import CellFolder, cell_at, iter_cells, readable

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
    "read_record",
    "readable",
    "write_json_atomic",
    "write_record",
]
