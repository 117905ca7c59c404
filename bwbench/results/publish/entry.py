"""What is published of one cell: its files without the events of its ranks, and what tables need of those."""

from __future__ import annotations

from pathlib import PurePath

from bwbench.records import CellFolder
from bwbench.records.packed import PackedFiles, columns_of
from bwbench.records.schema import Digest, Json, JsonObject
from bwbench.results.analysis.clocks import Clocks
from bwbench.results.analysis.ledger import summarise_ledger
from bwbench.results.analysis.scale import gradient_bytes_of
from bwbench.results.analysis.trial import curve_of

_LOG_CHARACTERS = 4000  # of one log's end: enough for a traceback, too little to fill a repository
_OF_THE_LINK_RUN = ("link", "environment")  # of composed.json; a cell that ran whole has its own


def entry_of(cell: CellFolder) -> JsonObject:
    """The content of a cell that has ended: its files as they stand, fields that this version ignores included.

    Raises RecordError where one of its records cannot be read.
    """
    if cell.problem is not None:
        raise cell.problem
    if isinstance(cell.files, PackedFiles):
        return cell.files.content
    entry: JsonObject = {"cell.json": cell.raw("cell.json"), "status.json": cell.raw("status.json")}
    if isinstance(composed := cell.raw("composed.json"), dict):
        entry["composed.json"] = _composed(composed, cell)
    if cell.composed is None:
        entry |= {"link.json": _slim(cell.raw("link.json"), cell), "environment.json": cell.raw("environment.json")}
        entry |= {"attempts": cell.num_attempts, "digest": _digest(cell), "logs": _logs(cell)}
    return {key: _without_folders(value) for key, value in entry.items()}


def _without_folders(value: Json) -> Json:
    """Files of traces by their names alone: where they lay says nothing elsewhere; checksums tell them apart."""
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _without_folders(item) for key, item in value.items()}
    if isinstance(file := plain.get("file"), str) and "sha256" in plain:
        plain["file"] = PurePath(file).name
    return plain


def _composed(content: JsonObject, cell: CellFolder) -> JsonObject:
    kept = {**content, "curve": columns_of(content.get("curve"))}
    if cell.composed is not None:
        return {**kept, "link": _slim(content.get("link"), cell)}
    return {key: value for key, value in kept.items() if key not in _OF_THE_LINK_RUN}


def _digest(cell: CellFolder) -> JsonObject:
    """As composed.json holds it for a composed cell."""
    events = {rank: cell.events(rank) for rank in cell.ranks}
    ledger = summarise_ledger(events, Clocks.of_link(cell.link))
    curve = curve_of(events)
    digest = Digest(curve=tuple(curve), ledger=ledger, gradient_bytes=gradient_bytes_of(cell)).to_json()
    return {**digest, "curve": columns_of([point.to_json() for point in curve])}


def _logs(cell: CellFolder) -> JsonObject:
    """Of a cell that is done the end of rank 0's log; of another one what ``bwbench show`` shows."""
    tails = cell.log_tails()
    if cell.status is not None and cell.status.status == "done":
        tails = {name: lines for name, lines in tails.items() if name == "rank0.log"}
    return {name: [*"\n".join(lines)[-_LOG_CHARACTERS:].splitlines()] for name, lines in tails.items()}


def _slim(link: Json, cell: CellFolder) -> Json:
    """link.json without what stands in the configuration, and without distributions and rejected measurements that no
    table reads."""
    if not isinstance(link, dict):
        return None
    slim = {key: _without_bulk(value) for key, value in link.items()}
    if slim.get("requested") == cell.cell.config.get("link"):
        del slim["requested"]
    return slim


def _without_bulk(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    bulky = ("lateness_histogram", "histogram", "rejected")
    return {key: _without_bulk(item) for key, item in value.items() if key not in bulky}
