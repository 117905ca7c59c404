"""``bwbench plot`` at work: reads, chooses, draws; a path on stdout as it is written, and how far it is on stderr."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError
from bwbench.cli.clean_text import uncleaned
from bwbench.cli.output import say_unreadable, seconds
from bwbench.records import CellFolder, uncollected
from bwbench.records.own_and_published import Taken
from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.results import Reader, read_cells, results_of
from bwbench.results.figures.album import draw_pictures
from bwbench.results.figures.choice import Picture, first_figures, pictures_of

_READ_AT_ONCE = 50  # cells, after which the line is written anew


@dataclass(frozen=True)
class Wanted:
    """Which pictures somebody asks for.

    Attributes:
        figures: names of figures; empty for those that answer first.
        at: settings, as in the names of files; empty for one that stands for all.
        everything: every figure at every setting.
    """

    figures: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    everything: bool = False

    @property
    def is_first_look(self) -> bool:
        """Whether nothing in particular is asked for."""
        return not (self.figures or self.at or self.everything)


class _ProgressLine:
    """The last line of the terminal, written over and over; where stderr is no terminal there is none."""

    def __init__(self) -> None:
        self._file = uncleaned(sys.stderr)
        self._wanted = self._file.isatty()
        self._length = 0

    def show(self, text: str) -> None:
        if self._wanted:
            self._file.write(f"\r{text.ljust(self._length)}\r")
            self._file.flush()
            self._length = len(text)

    def clear(self) -> None:
        self.show("")
        self._length = 0

    close = clear

    def counted(self, cells: Iterator[CellFolder]) -> Iterator[CellFolder]:
        """The same cells, their number shown as they come."""
        for number, cell in enumerate(cells):
            if number % _READ_AT_ONCE == 0:
                self.show(f"reading records: {number} cells" if number else "reading records")
            yield cell


def draw(
    taken: Taken,
    out: Path,
    wanted: Wanted,
    target: tuple[str, float] | None,
    *,
    width_in: float,
    formats: Sequence[str],
    folders: bool,
    verbose: bool,
) -> None:
    """Draw what is wanted of the cells that are taken, into ``out``, and print each file as it is written.

    Args:
        target: metric and value to look at in place of the recorded target.
        width_in, formats, folders: as ``figures.album.draw_pictures`` takes them.
        verbose: say of each picture that is not drawn why, and what stands under the others.

    Raises ConfigError where nothing can be drawn.
    """
    began_s, line = time.monotonic(), _ProgressLine()
    again = f"bwbench plot {shlex.quote(str(taken.folder))}"  # the demo draws too, and has no options
    reader = Reader()
    with uncollected():
        cells, refused = read_cells(line.counted(taken.cells()), reader)
        line.clear()
        say_unreadable(refused)
        pictures = _chosen(at_target(cells, target), reader, wanted)
    num_drawn, num_files, num_not_drawn = 0, 0, 0
    notes: dict[str, None] = {}
    skipped: list[str] = []
    with closing(draw_pictures(pictures, out, width_in, formats, folders=folders)) as coming, closing(line):
        for number, drawn in enumerate(coming):
            line.clear()
            for path in drawn.paths:
                print(path, flush=True)
            num_files += len(drawn.paths)
            num_drawn, num_not_drawn = num_drawn + bool(drawn.paths), num_not_drawn + (not drawn.paths)
            looked_at = f"{number + 1} of {len(pictures)} looked at"  # not all of them apply
            line.show(f"{num_drawn} pictures, {looked_at}, {seconds(time.monotonic() - began_s)}")
            notes |= dict.fromkeys(drawn.notes)
            skipped += drawn.skipped
    if not num_files:
        others = [f"`{again} --all` tries all other figures"] if wanted.is_first_look else []
        raise ConfigError("\n  ".join([f"{taken.folder}: there is nothing to draw", *skipped, *others]))
    if verbose:
        _note(notes)
    if verbose or wanted.figures:  # who names a figure is told why it is not there
        _note(f"not drawn: {one}" for one in skipped)
    elif num_not_drawn or notes:
        why = f"why {num_not_drawn} pictures do not apply, and {len(notes)} remarks that stand under the others"
        _note([f"`{again}{' --all' if wanted.everything else ''} -v` says {why}"])
    if wanted.is_first_look:
        _note([f"these answer first, each at one setting; `{again} --all` draws every figure at every setting"])
    took = seconds(time.monotonic() - began_s)
    print(f"{num_drawn} pictures of {len(cells)} cells, {num_files} files, in {took}", file=sys.stderr)


def _chosen(cells: Sequence[CellFolder], reader: Reader, wanted: Wanted) -> list[Picture]:
    names: Sequence[str] | None = wanted.figures or (None if wanted.everything else first_figures())
    return pictures_of(results_of(cells, reader), names, wanted.at, all_settings=not wanted.is_first_look)


def _note(lines: Iterable[str]) -> None:
    for text in lines:
        print(f"note: {text}", file=sys.stderr)
