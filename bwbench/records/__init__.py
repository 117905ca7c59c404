"""Append-only facts of a trial, as plain files; every field of them stands in ``records.schema``."""

from bwbench.records.files import EventWriter as EventWriter
from bwbench.records.files import dump_line as dump_line
from bwbench.records.files import read_events as read_events
from bwbench.records.files import read_json as read_json
from bwbench.records.files import read_last_events as read_last_events
from bwbench.records.files import read_record as read_record
from bwbench.records.files import write_json_atomic as write_json_atomic
from bwbench.records.files import write_record as write_record
from bwbench.records.schema.record import SCHEMA as SCHEMA
from bwbench.records.store import CellFolder as CellFolder
from bwbench.records.store import cell_at as cell_at
from bwbench.records.store import iter_cells as iter_cells
from bwbench.records.store import readable as readable
from bwbench.records.store import uncollected as uncollected
