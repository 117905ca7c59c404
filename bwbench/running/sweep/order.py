"""The order in which cells run: block by block, shuffled inside a block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from bwbench.experiment.plan.cell import Cell

DEFAULT_SEED = 0


def running_order(cells: Iterable[Cell], seed: int = DEFAULT_SEED) -> list[Cell]:
    """The first repeat of all cells of all experiments, then the second, and so on; each block shuffled by ``seed``.

    A slow drift of the machine then meets every arm and every link alike. Where a cell comes in its block depends on
    the seed and on the cell alone: leaving cells out, or adding some, does not change the order of the others.
    """
    return sorted(cells, key=lambda cell: (cell.repeat, _draw(cell, seed)))


def _draw(cell: Cell, seed: int) -> str:
    return hashlib.sha256(f"{seed} {cell.experiment} {cell.id}".encode()).hexdigest()
