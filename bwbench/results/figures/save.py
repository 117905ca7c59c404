"""Writing a figure as PNG and PDF, with the cells it was made of, so that every number can be traced to a record."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from fontTools import subset  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from bwbench.base.errors import RecordError
from bwbench.records import SCHEMA
from bwbench.results.analysis.cells import PLANNED, state_of
from bwbench.results.analysis.results import Results
from bwbench.results.figures.style import look

FORMATS = ("png", "pdf")
PNG_DPI = 200
_OF_LAYOUT = ["GDEF", "GPOS", "GSUB"]  # tables of a font


def save(
    figure: Figure, table: pd.DataFrame, results: Results, name: str, stem: Path, formats: Collection[str] = FORMATS
) -> list[Path]:
    """Write ``stem``.png, .pdf (those of ``formats``) and .json; returns their paths. Equal records give equal bytes.

    The JSON file holds the numbers that the picture shows and the ids of the cells behind them; the ids stand in the
    metadata of the pictures too. Raises RecordError where the folder cannot be written.
    """
    cell_ids = sorted(str(folder.cell.id) for folder in results.done)
    title = f"{name} of {results.experiment}"
    subject = f"bwbench cells: {' '.join(cell_ids)}"
    sidecar = {
        "schema": SCHEMA,
        "figure": name,
        "experiment": results.experiment,
        "group": dict(results.group.key),
        "cells": cell_ids,
        "not_drawn": [
            {"id": folder.cell.id, "arm": folder.cell.arm, "repeat": folder.cell.repeat, "status": state}
            for folder in results.folders
            if (state := state_of(folder)) != "done" and state != PLANNED
        ],
        "notes": results.notes,
        "table": [{str(key): plain(value) for key, value in row.items()} for row in table.to_dict("records")],
    }
    png, pdf, numbers = (stem.with_name(f"{stem.name}.{ending}") for ending in (*FORMATS, "json"))
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        # A date in the file would make every run differ; matplotlib leaves out what is None.
        with look(), _fonts_without_layout():
            if "png" in formats:
                figure.savefig(png, dpi=PNG_DPI, metadata={"Title": title, "Description": subject, "Software": None})
            if "pdf" in formats:
                figure.savefig(pdf, metadata={"Title": title, "Subject": subject, "CreationDate": None})
        numbers.write_text(json.dumps(sidecar, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot write {error.filename or stem}: {error.strerror}") from error
    return [path for path in (png, pdf, numbers) if path is numbers or path.suffix[1:] in formats]


@contextmanager
def _fonts_without_layout() -> Iterator[None]:
    """Embed in PDFs no tables of how to lay text out, which is done by then: cutting them took a sixth of all time."""
    load = subset.load_font

    def load_without_layout(*args: Any, **kwargs: Any) -> Any:
        font = load(*args, **kwargs)
        for tag in _OF_LAYOUT:
            if tag in font:
                del font[tag]
        return font

    subset.load_font = load_without_layout
    try:
        yield
    finally:
        subset.load_font = load


def plain(value: Any) -> Any:
    """A cell of a table as JSON knows it: numpy's numbers as Python's, NaN and infinity as null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
