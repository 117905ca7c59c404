"""Finished trainings, one line each, so that a stopped benchmark goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Records:
    """Finished trainings by cell id, one line each in a file, so that a stopped benchmark goes on where it was."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file.is_file() else []
        self.by_id: dict[str, dict[str, Any]] = {row["id"]: row for row in map(json.loads, lines)}

    def add(self, row: dict[str, Any]) -> None:
        """Keep a training."""
        self.by_id[row["id"]] = row
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")
