"""Rows: one figure each, beside what was asked. Kept in a file as they come, printed as a table."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_SCALES = {"bit/s": (1e6, "Mbit/s"), "s": (1e-3, "ms"), "B": (1e3, "kB")}


def row(
    what: str,
    setting: str,
    backend: str,
    unit: str,
    asked: float,
    measured: float,
    tolerance: float | None = None,
    *,
    absolute: bool = False,
    ok: bool | None = None,
    **more: Any,
) -> Row:
    """One figure.

    Args:
        what: the measurement.
        setting: at what, such as ``10 Mbit/s``.
        unit: of ``asked`` and ``measured``: ``bit/s``, ``s``, ``B`` or ``1``.
        tolerance: largest error that is well; None asks for nothing.
        absolute: the error is a difference in ``unit``; else it is relative to ``asked``.
        ok: decides instead of the tolerance.
        more: what else should be known of it.
    """
    error = measured - asked if absolute else measured / asked - 1
    if ok is None and tolerance is not None:
        ok = abs(error) <= tolerance
    return {
        "what": what, "setting": setting, "backend": backend, "unit": unit, "asked": asked, "measured": measured,
        "error": error, "error_unit": unit if absolute else "relative", "tolerance": tolerance, "ok": ok, **more,
    }  # fmt: skip


def not_measured(what: str, setting: str, backend: str, reason: str, ok: bool | None) -> Row:
    """A figure that could not be had: ``ok`` is None where something is missing here, False where it went wrong."""
    return {"what": what, "setting": setting, "backend": backend, "ok": ok, "reason": reason}


def line(entry: Row) -> str:
    """A row for the reader."""
    head = f"{entry['what']:10} {entry['setting']:42} {entry['backend']:9}"
    if "measured" not in entry:
        return f"{head} {'not here' if entry['ok'] is None else 'FAILED'}: {entry['reason']}"
    asked, measured = (_number(entry[key], entry["unit"]) for key in ("asked", "measured"))
    kind = "" if entry["error_unit"] == "relative" else entry["unit"]
    error, tolerance = (_error(entry[key], kind) for key in ("error", "tolerance"))
    verdict = {True: "ok", False: "OUTSIDE", None: ""}[entry["ok"]]
    limit = f"of ±{tolerance}" if entry["tolerance"] is not None else ""
    return f"{head} asked {asked:>14}  measured {measured:>14}  {error:>10} {limit:12} {verdict}"


def _number(value: float, unit: str) -> str:
    scale, name = _SCALES.get(unit, (1.0, "" if unit == "1" else unit))
    return f"{value / scale:.5g} {name}".rstrip()


def _error(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if not unit:
        return f"{100 * value:.3g} %"
    scale, name = _SCALES.get(unit, (1.0, "" if unit == "1" else unit))
    return f"{value / scale:.3g} {name}".rstrip()


class Store:
    """The rows so far, in memory and, where there is a path, in a file that is whole at any time."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self._path = path
        self.rows: list[Row] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if resume and path.exists():
                self.rows = json.loads(path.read_text())["rows"]

    def has(self, case: str, backend: str) -> bool:
        """Whether this case has been measured; one that failed has not."""
        found = [entry for entry in self.rows if entry["case"] == case and entry["asked_backend"] == backend]
        return bool(found) and all("measured" in entry for entry in found)

    def replace(self, case: str, backend: str, rows: Sequence[Row]) -> None:
        """Put the rows of a case in the place of those that it had."""
        self.rows = [entry for entry in self.rows if entry["case"] != case or entry["asked_backend"] != backend]
        self.rows += [{**entry, "case": case, "asked_backend": backend} for entry in rows]
        self.write()

    def write(self) -> None:
        """Write the file, by rename."""
        if self._path is None:
            return
        part = self._path.with_name(self._path.name + ".part")
        part.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n")
        os.replace(part, self._path)
