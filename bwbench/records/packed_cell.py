"""One published cell: what its folder holds apart from the events of its ranks, as one value of JSON.

Its keys are the names of files (``cell.json``, ``status.json``, ``composed.json``; of the last attempt ``link.json``
and ``environment.json``), ``attempts`` (their number), ``digest`` (what tables need of the events) and ``logs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from bwbench.base.errors import PackedRecordsError
from bwbench.records.cell_files import AbstractCellFiles
from bwbench.records.shared_parts import restored

_COLUMNS = "columns"


class PackedFiles(AbstractCellFiles):
    """A line of a published file in the place of a folder. Decoded when asked for; its values are not to be changed.

    Args:
        line: JSON of the cell, as ``shared_parts.share`` left it; ``parts`` is what that took out.
        where: file and cell, for messages.
    """

    def __init__(self, line: bytes, parts: Sequence[Any], where: str) -> None:
        self._line, self._parts, self._where = line, parts, where

    @cached_property
    def content(self) -> dict[str, Any]:
        """The cell as it was packed. Raises PackedRecordsError where the line is broken."""
        try:
            content = restored(self._line, self._parts)
        except ValueError as error:
            raise PackedRecordsError(f"{self._where}: broken ({error}); get the file anew, or publish again") from None
        if not isinstance(content, dict):
            raise PackedRecordsError(f"{self._where}: is no cell; get the file anew, or publish again")
        return content

    def read(self, name: str) -> Any | None:
        """Content of a file of the cell, as its folder had it."""
        content = self.content.get(name)
        if name != "composed.json" or not isinstance(content, dict):
            return content
        return {**content, "curve": points_of(content.get("curve")), "link": self._whole(content.get("link"))}

    def has(self, name: str) -> bool:
        """Whether the cell had such a file."""
        return self.content.get(name) is not None

    def read_of_attempt(self, number: int | None, name: str) -> Any | None:
        """Of the attempt that status.json speaks of, the only one that is kept."""
        content = self.content.get(name)
        return self._whole(content) if name == "link.json" else content

    def attempts(self) -> list[Path]:
        """None: there are no folders."""
        return []

    def num_attempts(self) -> int:
        """How many there were."""
        return int(self.content.get("attempts") or 0)

    def digest(self) -> Mapping[str, Any] | None:
        """Made when the cell was packed; empty where it has recorded nothing."""
        digest = self.content.get("digest") or {}
        return {**digest, "curve": points_of(digest.get("curve"))}

    def log_tails(self, reason: str) -> dict[str, list[str]]:
        """Those that were kept."""
        return {str(name): list(lines) for name, lines in (self.content.get("logs") or {}).items()}

    def _whole(self, link: Any) -> Any:
        """What was asked of the link stands in the configuration already; it is kept once."""
        if not isinstance(link, dict) or "requested" in link:
            return link
        asked = (self.content["cell.json"].get("config") or {}).get("link")
        return {"schema": link.get("schema"), "requested": asked, **link}


def columns_of(points: Sequence[Mapping[str, Any]] | None) -> Any:
    """A curve by columns: those that do not depend on the link are the same for many cells, and are then kept once."""
    if not points or any(list(point) != list(points[0]) for point in points):
        return points
    return {_COLUMNS: {key: [point[key] for point in points] for key in points[0]}}


def points_of(curve: Any) -> list[dict[str, Any]]:
    """The points of a curve again."""
    if not isinstance(curve, dict):
        return [dict(point) for point in curve or []]
    columns = curve.get(_COLUMNS) or {}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
