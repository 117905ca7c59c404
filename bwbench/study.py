"""The front door in Python: run an experiment or load what is recorded, and look at it as tables and pictures.

What the commands do, by the same functions, with values in place of printed lines. Cells train in processes of their
own, so that torch is not imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import pandas as pd
from matplotlib.figure import Figure

from bwbench.base.errors import ConfigError, RecordError
from bwbench.base.interruption import Interruption, handle
from bwbench.base.registry import FIGURES
from bwbench.cli.carry_out import ShowProgress, run_sweep
from bwbench.cli.comparison_json import ratio_rows
from bwbench.cli.comparison_text import comparison_notes
from bwbench.cli.notebook_progress import NotebookProgress, in_notebook
from bwbench.cli.options import retried, take
from bwbench.cli.output import say_unreadable
from bwbench.cli.sweep_progress import LiveProgress, PlainProgress
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan.assess import ENDED_UNDONE
from bwbench.records import CellFolder, cell_at, readable
from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.cells import DONE, Row, state_of
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.export import export_cells, export_evaluations, export_steps
from bwbench.results.analysis.results import Reader, Results, cells_table, read_cells, regrouped, results_of
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.style import PAGE_IN, look
from bwbench.running.sweep import Selection, SweepPlan, plan_experiments
from bwbench.running.sweep.account import SweepObserver, TimeLeft

PathLike: TypeAlias = str | os.PathLike[str]
SCREEN_DPI = 110
MOST_REASONS = 8  # of cells that are not done; `cells()` has all
_OVERVIEW = ("experiment", "arm", "link", "seed", "status", "time_to_target_s", "samples_to_target", "final_metric")
_SHOWN_ROWS = 60


def run(
    experiment: PathLike | Mapping[str, object],
    *,
    results: PathLike = "results",
    override: Mapping[str, object] | None = None,
    only: Mapping[str, object] | None = None,
    retry: Sequence[str] = (),
    mode: str | None = None,
    fail_fast: bool = False,
    progress: bool = True,
) -> Study:
    """Run all cells of an experiment that are not done yet, and return them with those that were done before.

    A cell that fails raises nothing: its ``status`` and ``reason`` stand in ``Study.cells()``. After an interruption
    (Ctrl-C, or the notebook's stop) the same call goes on.

    Args:
        experiment: a YAML file, or what would stand in one; names of files in a mapping are relative to the working
            directory.
        results: folder for results.
        override: keys of the experiment to set, dotted: ``{"link.bandwidth": "10 Mbit/s"}``. A list replaces an axis.
        only: cells with this value of a key, or one of a list of values: ``{"arm": ["ddp", "ring-fp16"]}``.
        retry: statuses of cells to run again: ``failed``, ``timeout``, ``diverged``, ``invalid``.
        mode: ``full`` or ``composed``, in place of the key of the experiment.
        fail_fast: stop after the first cell that is not done.
        progress: show how far it is: a table in a notebook or on a terminal, else a line an occurrence on stderr.

    Raises:
        ConfigError: the experiment is wrong: every problem, each at its line of the file or its key of the mapping.
        UnfitMachineError: this machine cannot make the links, or the disk is full.
    """
    if not isinstance(experiment, (str, os.PathLike, Mapping)):
        kind = type(experiment).__name__
        raise ConfigError(f"experiment: a {kind} is no experiment; give the name of a YAML file, or a mapping")
    source = experiment if isinstance(experiment, Mapping) else Path(experiment)
    if isinstance(source, Path) and source.is_dir():
        raise ConfigError(f"{source} is a folder; run one of the experiments in it")
    overrides = {**(override or {}), **({} if mode is None else {"mode": mode})}
    selection = Selection.parse([_wanted(key, value) for key, value in (only or {}).items()])
    loaded = load_experiment(source, overrides)
    sweep = plan_experiments([loaded], Path(results), retried(list(retry), ENDED_UNDONE), selection)
    _refuse_hosts_in_loop(sweep)
    with _one_interruption():
        selected, _ = run_sweep(sweep, _progress(shown=progress), fail_fast=fail_fast)
    study = Study(cell_at(item.folder) for item in selected)
    study._say_undone()
    return study


def load(folder: PathLike, *, published: bool = False) -> Study:
    """What is recorded in a results folder, in one experiment in it, or of one cell.

    Cells that cannot be read are left out, and said on stderr.

    Args:
        published: the published sets beside the own runs as well (``--published`` of the commands), which are taken
            anyway where there are no own runs.

    Raises ConfigError where there is no cell.
    """
    return Study(take(Path(folder), published=published).cells())


class Study:
    """Cells of one or several experiments, as tables and pictures. Notes on what these leave out go to stderr.

    Args:
        cells: those that cannot be read are left out, and said.
    """

    def __init__(self, cells: Iterable[CellFolder]) -> None:
        self._cells, refused = readable(cells)
        self._reader = Reader()
        say_unreadable(refused)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        counts = Counter(map(state_of, self._cells))
        experiments = sorted({cell.cell.experiment for cell in self._cells})
        told = ", ".join(f"{number} {status}" for status, number in counts.most_common()) or "none"
        return f"<Study of {', '.join(experiments) or 'nothing'}: {len(self)} cells, {told}>"

    def _repr_html_(self) -> str:
        table = cells_table(self._cells)
        if table.empty:
            return "<p>no cells</p>"
        columns = [name for name in _OVERVIEW if name != "experiment" or table["experiment"].nunique() > 1]
        text: str = table[columns].to_html(index=False, max_rows=_SHOWN_ROWS, na_rep="", float_format="{:.4g}".format)
        return text

    def cells(self) -> pd.DataFrame:
        """One row a cell: who it is, outcome, link asked and achieved, provenance, configuration. SI units.

        The columns are those of ``bwbench export --what cells``.
        """
        return _table(list(export_cells(self._cells)))

    def evaluations(self) -> pd.DataFrame:
        """One row an evaluation of a cell: samples, training clock, and every metric on the validation split."""
        return self._from_events(export_evaluations)

    def steps(self) -> pd.DataFrame:
        """One row a step and rank, with the parts of its time; none of a composed or a published cell."""
        return self._from_events(export_steps)

    def at_target(self, **target: float) -> Study:
        """The same cells, looked at with another target than the recorded one, where their curves allow it.

        Args:
            target: one metric and its value, ``accuracy=0.80``.
        """
        values = [value for value in target.values() if isinstance(value, (int, float)) and math.isfinite(value)]
        if len(target) != 1 or not values:
            raise ConfigError("at_target takes one metric and its value; write it like at_target(accuracy=0.80)")
        return Study(at_target(self._cells, (next(iter(target)), float(values[0]))))

    def compare(self, baseline: str, by: str = "link.bandwidth") -> pd.DataFrame:
        """How many times faster each arm reaches the target than ``baseline``, with 95 % intervals: a row an arm.

        The columns are those of ``bwbench export --what ratios``; docs/statistics.md says what they mean.

        Args:
            by: dotted key of the configuration whose values stand first.
        """
        comparison = compare_cells(self._cells, baseline, by, dashes="")
        _say(comparison_notes(comparison, self._cells))
        return _table(ratio_rows(comparison))

    def plot(self, figure: str, *, at: str | Sequence[str] = (), width_in: float = PAGE_IN) -> Pictures:
        """Pictures of one kind (``bwbench list figures``), one for each group of comparable cells.

        Args:
            at: of figures that stand for one setting each, those of this one only, as in the names that
                ``bwbench plot`` gives its files: ``10Mbps``.

        Raises ConfigError for a name that is none, and where there is nothing to draw.
        """
        if figure not in FIGURES:
            raise ConfigError(f"figure: {FIGURES.unknown(figure)}")
        drawing: AbstractFigure = FIGURES.load(figure)()
        wanted = {"", *([at] if isinstance(at, str) else at)}
        cells, refused = read_cells(self._cells, self._reader)
        say_unreadable(refused)
        groups = regrouped(results_of(cells, self._reader), drawing.compares)
        chosen = [group for group in groups if wanted == {""} or set(group.label.split("_")) <= wanted]
        skipped = [(group, why) for group in chosen if (why := drawing.why_not(group)) is not None]
        left = [group for group in chosen if all(group is not other for other, _ in skipped)]
        pictures = Pictures(Picture.of(drawing, group, width_in) for group in left)
        reasons = [f"{figure} of {_named(group)}: {why}" for group, why in skipped]
        if not pictures:
            reasons = reasons or [f"at: no picture is of {at!r}; there are {', '.join(map(_named, groups)) or 'none'}"]
            raise ConfigError("\n  ".join(["there is nothing to draw", *reasons]))
        _say([f"not drawn: {reason}" for reason in reasons])
        return pictures

    def _from_events(self, rows_of: Callable[[Iterable[CellFolder]], Iterator[Row]]) -> pd.DataFrame:
        rows: list[Row] = []
        refused = []
        for cell in self._cells:
            try:
                rows += rows_of([cell])
            except RecordError as error:
                refused.append(error)
        say_unreadable(refused)
        return _table(rows)

    def _say_undone(self) -> None:
        undone = [cell for cell in self._cells if cell.status is not None and state_of(cell) != DONE]
        lines = [f"{cell.cell.slug}: {state_of(cell)}: {cell.status and cell.status.reason or ''}" for cell in undone]
        more = [f"{len(lines) - MOST_REASONS} more; `cells()` has them all"] if len(lines) > MOST_REASONS else []
        _say(["not done: " + line for line in (*lines[:MOST_REASONS], *more)])


@dataclass(frozen=True, repr=False)
class Picture:
    """One figure of one group of comparable cells, which a notebook shows.

    Attributes:
        name: as ``bwbench plot`` would call its file.
        figure: matplotlib's, to be saved or changed.
        table: the numbers that it shows.
        notes: what must stand beside it; it does so in the figure already.
    """

    name: str
    figure: Figure
    table: pd.DataFrame
    notes: tuple[str, ...]

    @classmethod
    def of(cls, drawing: AbstractFigure, group: Results, width_in: float) -> Picture:
        """The picture of a group; ``why_not`` has returned None."""
        name = "_".join(filter(None, (drawing.name, group.label)))
        return cls(name, drawing.draw(group, width_in), drawing.table(group), tuple(group.notes))

    def __repr__(self) -> str:
        return f"<Picture {self.name}>"

    def save(self, path: PathLike) -> None:
        """Write it as a PNG, PDF or what else the ending says. Raises OSError."""
        with look():
            self.figure.savefig(path, dpi=2 * SCREEN_DPI)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with look():
            self.figure.savefig(content, format="png", dpi=SCREEN_DPI)
        return content.getvalue()


class Pictures(list[Picture]):
    """Several pictures, which a notebook shows one below the other."""

    def _ipython_display_(self) -> None:
        import IPython.display  # who asks for this has it

        notebook: Any = IPython.display
        notebook.display(*self)


class _Silent(SweepObserver):
    """Shows nothing of a sweep."""

    def __init__(self, left: TimeLeft, total: int) -> None:
        pass

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


def _progress(*, shown: bool) -> ShowProgress:
    if not shown:
        return _Silent
    if in_notebook():
        return NotebookProgress
    return LiveProgress if sys.stderr.isatty() else PlainProgress


def _wanted(key: str, value: object) -> str:
    """``KEY=VALUE|VALUE``, as ``--only`` takes it."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return f"{key}={'|'.join(one if isinstance(one, str) else json.dumps(one) for one in values)}"


def _refuse_hosts_in_loop(sweep: SweepPlan) -> None:
    """Raise ConfigError where cells need an event loop of their own, and one runs already, as in a notebook."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        if any(item.cell.config.launcher == "ssh" for item in sweep.todo):
            raise ConfigError(
                "launcher: ssh cannot be driven from a notebook, whose event loop is in the way; write the experiment "
                "to a file and use 'bwbench run FILE' on a terminal. bwbench.load(…) shows its results here"
            )


@contextlib.contextmanager
def _one_interruption() -> Iterator[None]:
    """Take several Ctrl-C in a row for one, as the command does, so that a cell is recorded as interrupted."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    handle((signal.SIGINT,), Interruption())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _table(rows: Sequence[Row]) -> pd.DataFrame:
    """A column in which nothing is known holds NaN, as one in which something is not."""
    table = pd.DataFrame(rows)
    return table.astype({name: float for name in table if table[name].isna().all()})


def _named(group: Results) -> str:
    return f"{group.experiment} ({group.label})" if group.label else group.experiment


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
