"""The album of many cells, drawn by as many processes as there are cores: what is read is read once, before them.

A picture is written as PNG and PDF, with the cells that it was made of: every number can be traced to a record.

Who wants no more pictures, by Ctrl-C for one, closes the generator. What is under way is finished then, so that no
picture is there by half, and no process is left.
"""

from __future__ import annotations

import gc
import io
import math
import mmap
import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import pandas as pd
from fontTools import subset  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.errors import RecordError
from bwbench.base.interruption import ENDING
from bwbench.base.registry import FIGURES
from bwbench.records import SCHEMA
from bwbench.records.files import leads_out, write_bytes_atomic, write_json_atomic
from bwbench.results.analysis.cells import PLANNED, state_of
from bwbench.results.analysis.results import Results
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.choice import Picture
from bwbench.results.figures.style import PAGE_IN, look

FORMATS = ("png", "pdf")
PNG_DPI = 200
_OF_LAYOUT = ["GDEF", "GPOS", "GSUB"]  # tables of a font
MANY_CELLS = 30  # with fewer a second process saves little: a picture takes half a second


@dataclass(frozen=True)
class Drawn:
    """What came of it.

    Attributes:
        paths: files written, pictures and their tables.
        skipped: one line for each group of cells to which a figure does not apply: which, and why.
        notes: what stands under the pictures, once each.
    """

    paths: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def draw_pictures(
    pictures: Sequence[Picture],
    out: Path,
    width_in: float = PAGE_IN,
    formats: Sequence[str] = FORMATS,
    *,
    folders: bool = False,
    jobs: int | None = None,
) -> Generator[Drawn, None, None]:
    """Draw them into ``out``; yields what came of each as soon as it and those before it are drawn, in their order.

    To be closed, where somebody does not want all of them.

    Args:
        formats: of pictures, as in FORMATS.
        folders: a folder for each experiment even where there is only one.
        jobs: processes; by default the cores that this one may use, or one where there are few cells.
    """
    several = folders or len({picture.experiment for picture in pictures}) > 1
    parts = [
        partial(draw_picture, picture, _below(out, picture.experiment if several else ""), width_in, formats)
        for picture in pictures
    ]
    cells = {folder.path for picture in pictures for group in picture.candidates for folder in group.folders}
    jobs = jobs or (len(os.sched_getaffinity(0)) if len(cells) >= MANY_CELLS else 1)
    if min(jobs, len(parts)) < 2:
        yield from (part() for part in parts)
        return
    global _parts
    _parts, _no_more[0] = parts, False
    gc.freeze()  # what was read stays: no process looks through it for garbage
    # An executor and not a Pool, which waits for ever for what a killed process was to draw.
    pool = ProcessPoolExecutor(
        min(jobs, len(parts)), multiprocessing.get_context("fork"), _leave_signals_to, initargs=(os.getpid(),)
    )
    try:
        with _without_signals():  # until each process has said what it does with them
            coming = [pool.submit(_draw_number, number) for number in range(len(parts))]
        for drawn in coming:
            yield drawn.result()
    except BrokenProcessPool:
        raise RecordError(
            "a process that drew figures was killed, by lack of memory perhaps; run the same command again"
        ) from None
    finally:
        _no_more[0] = True  # nothing is cancelled: an executor whose processes end then as well would trip over it
        pool.shutdown()
        gc.unfreeze()
        _parts = ()


_parts: Sequence[Callable[[], Drawn]] = ()  # for the processes that are forked, which get a number alone
# Of the same memory in all of them: whether what has not begun is not wanted any more. Without a lock, which a process
# that is ended might hold.
_no_more = mmap.mmap(-1, 1)
_is_drawing = False  # of one of these processes


def _draw_number(number: int) -> Drawn:
    global _is_drawing
    if _no_more[0]:
        return Drawn()
    gc.disable()  # subsetting a font makes so many objects that looking for garbage took a sixth of all time
    _is_drawing = True
    try:
        return _parts[number]()
    except SystemExit:  # of ``_end``; the executor would take it for what came of this picture
        os._exit(1)
    finally:
        _is_drawing = False
        gc.collect(0)  # where all is that came since the last picture


@contextmanager
def _without_signals() -> Iterator[None]:
    """Those that end a command wait, here and in what is forked here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_signals_to(parent_pid: int) -> None:
    """In a process that draws. Ctrl-C, which a terminal sends to all, is for the parent: it ends what it has begun."""
    die_with_parent(parent_pid)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)  # by which an executor ends the others where one process was killed
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End this process; in the midst of a picture by way of whoever has to remove a file that is half written."""
    if _is_drawing:
        raise SystemExit
    os._exit(1)


def draw_picture(picture: Picture, folder: Path, width_in: float, formats: Sequence[str]) -> Drawn:
    """Draw one picture into ``folder``: of the first of its candidates that the figure applies to."""
    figure: AbstractFigure = FIGURES.load(picture.figure)()
    drawn = Drawn()
    for group in picture.candidates:
        if (why_not := figure.why_not(group)) is not None:
            label = f" ({group.label})" if group.label else ""
            drawn.skipped.append(f"{figure.name} of {group.experiment}{label}: {why_not}")
            continue
        stem = folder / "_".join(filter(None, (figure.name, group.label)))
        return Drawn(save(figure.draw(group, width_in), figure.table(group), group, figure.name, stem, formats),
                     [], list(dict.fromkeys(group.notes)))  # fmt: skip
    return drawn


def _below(out: Path, name: str) -> Path:
    """The folder of this name in ``out``, made where it is missing. Raises RecordError where it cannot be.

    Both may lie in somebody else's records: a link that leads out is refused, so that nothing is written elsewhere.
    """
    folder = out / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"cannot write {error.filename or folder}: {error.strerror}; name another folder with --out"
        ) from error
    if leads_out(folder, out):
        raise RecordError(
            f"{folder} leads out of {out}, where nothing is drawn; remove that link, or name another --out"
        )
    return folder


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
        rendered = {}  # all of it before anything is written: an interruption leaves no picture without its numbers
        # A date in the file would make every run differ; matplotlib leaves out what is None.
        with look(), _fonts_without_layout():
            if "png" in formats:
                about = {"Title": title, "Description": subject, "Software": None}
                rendered[png] = _rendered(partial(figure.savefig, format="png", dpi=PNG_DPI, metadata=about))
            if "pdf" in formats:
                about = {"Title": title, "Subject": subject, "CreationDate": None}
                rendered[pdf] = _rendered(partial(figure.savefig, format="pdf", metadata=about))
        for path, content in rendered.items():
            # By rename: what lies there, a link perhaps, is replaced and not written through.
            write_bytes_atomic(path, content, sync=False)
        write_json_atomic(numbers, sidecar, sync=False)
    except OSError as error:
        raise RecordError(
            f"cannot write {error.filename or stem}: {error.strerror}; name another folder with --out"
        ) from error
    return [path for path in (png, pdf, numbers) if path is numbers or path.suffix[1:] in formats]


def _rendered(draw: Callable[[BinaryIO], object]) -> memoryview:
    content = io.BytesIO()
    draw(content)
    return content.getbuffer()


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
