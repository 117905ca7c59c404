"""What a folder of records means to who names it: the own runs in it, and the published sets beside them when asked.

A results folder holds what was run there, and below ``published/`` what others read. Commands take the first, and say
in one line that they leave out the second; where there is nothing else they take that, and say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import PackedRecordsError, RecordError
from bwbench.records.packed import PACKED, PUBLISHED, published_beside
from bwbench.records.store import CellFolder, iter_cells, published_sets


@dataclass(frozen=True)
class Taken:
    """The cells that a command takes of a folder.

    Attributes:
        folder: as it was named: a results folder, an experiment, or a cell.
        published: whether the published sets beside its own runs are taken as well.
        sets: the folders of these sets, taken or not.
        note: one line about them, where they were not asked for, or are not there; else empty.
    """

    folder: Path
    published: bool
    sets: tuple[Path, ...]
    note: str

    def cells(self) -> Iterator[CellFolder]:
        """Every cell, sorted by experiment and name. Raises as ``iter_cells``."""
        return iter_cells(self.folder, published=self.published)


def taken(folder: Path, *, published: bool = False) -> Taken:
    """What is taken of ``folder``, which need not exist where it is an experiment that is published.

    Args:
        published: whether the published sets were asked for.
    """
    names = published_sets(folder)
    beside = published_beside(folder)
    of_one = os.path.isfile(beside / PACKED)
    sets = (beside,) if of_one else tuple(folder / PUBLISHED / name for name in names)
    if not names:
        return Taken(folder, False, (), f"--published: no published sets lie beside {folder}" if published else "")
    if published:
        return Taken(folder, True, sets, "")
    listed = ", ".join(names)
    if _holds_own(folder):
        return Taken(folder, False, sets, f"published sets left out: {listed}; --published takes them")
    if of_one:
        note = f"{folder}: no runs of your own, so the published set is taken: {beside}"
    else:
        note = f"{folder}: no runs of your own, so the published sets are taken: {listed}"
    return Taken(folder, True, sets, note)


def _holds_own(folder: Path) -> bool:
    """Whether there is a cell that is not in one of the sets, readable or not."""
    try:
        return next(iter_cells(folder), None) is not None
    except PackedRecordsError:
        return True
    except RecordError:
        return False
