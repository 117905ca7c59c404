"""What is published of one cell: its files without the events of its ranks, and what tables need of those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from bwbench.records import CellFolder
from bwbench.records.packed_cell import PackedFiles, columns_of
from bwbench.results.analysis.clocks import Clocks
from bwbench.results.analysis.ledger import summarise_ledger
from bwbench.results.analysis.scale import gradient_bytes_of
from bwbench.results.analysis.trial import curve_of

_LOG_CHARACTERS = 4000  # of one log's end: enough for a traceback, too little to fill a repository
_OF_THE_LINK_RUN = ("link", "environment")  # of composed.json; a cell that ran whole has its own


def entry_of(cell: CellFolder) -> dict[str, Any]:
    """The content of a cell that has ended. Raises RecordError where its cell.json is broken."""
    if isinstance(cell.files, PackedFiles):
        return cell.files.content
    status = cell.status or {}
    entry: dict[str, Any] = {"cell.json": cell.cell, "status.json": status}
    if (composed := cell.composed_content) is not None:
        entry["composed.json"] = _composed(composed, cell)
    if cell.composed is None:
        entry |= {"link.json": _slim(cell.link, cell), "environment.json": cell.environment}
        entry |= {"attempts": cell.num_attempts, "digest": _digest(cell), "logs": _logs(cell)}
    return {key: _without_folders(value) for key, value in entry.items()}


def _without_folders(value: Any) -> Any:
    """Files of traces by their names alone: where they lay says nothing elsewhere; checksums tell them apart."""
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    plain = {key: _without_folders(item) for key, item in value.items()}
    if isinstance(plain.get("file"), str) and "sha256" in plain:
        plain["file"] = PurePath(plain["file"]).name
    return plain


def _composed(content: Mapping[str, Any], cell: CellFolder) -> dict[str, Any]:
    kept = {**content, "curve": columns_of(content.get("curve"))}
    if cell.composed is not None:
        return {**kept, "link": _slim(content.get("link"), cell)}
    return {key: value for key, value in kept.items() if key not in _OF_THE_LINK_RUN}


def _digest(cell: CellFolder) -> dict[str, Any]:
    """As composed.json holds it for a composed cell."""
    events = {rank: cell.events(rank) for rank in cell.ranks}
    ledger = summarise_ledger(events, Clocks.of_link(cell.link))
    curve = columns_of(curve_of(events))
    return {
        "curve": curve,
        "ledger": asdict(ledger) if ledger is not None else None,
        "gradient_bytes": gradient_bytes_of(cell),
    }


def _logs(cell: CellFolder) -> dict[str, list[str]]:
    """Of a cell that is done the end of rank 0's log; of another one what ``bwbench show`` shows."""
    tails = cell.log_tails()
    if (cell.status or {}).get("status") == "done":
        tails = {name: lines for name, lines in tails.items() if name == "rank0.log"}
    return {name: "\n".join(lines)[-_LOG_CHARACTERS:].splitlines() for name, lines in tails.items()}


def _slim(link: Mapping[str, Any] | None, cell: CellFolder) -> dict[str, Any] | None:
    """link.json without what stands in the configuration, and without distributions and rejected measurements that no
    table reads."""
    if link is None:
        return None
    slim = {key: _without_bulk(value) for key, value in link.items()}
    if slim.get("requested") == cell.cell["config"].get("link"):
        del slim["requested"]
    return slim


def _without_bulk(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    bulky = ("lateness_histogram", "histogram", "rejected")
    return {key: _without_bulk(item) for key, item in value.items() if key not in bulky}
