"""A validated experiment: what the user asked for, resolved into the points of its matrix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.experiment.config.cell import CellConfig
from bwbench.experiment.config.dotted import Key
from bwbench.experiment.config.mode import Mode, WholeConfig


@dataclass(frozen=True)
class Point:
    """One point of the matrix.

    Attributes:
        config: complete; its seed is that of the first repeat.
        values: what the matrix gave to which key, as written, in the order of the axes.
    """

    config: CellConfig
    values: tuple[tuple[Key, Any], ...]


@dataclass(frozen=True)
class Experiment:
    """Everything that an experiment file says, checked.

    Attributes:
        name: of the folder below results/.
        file: where it was read from.
        points: in the order of the file, the last axis of the matrix fastest, without the excluded ones.
        repeats: trainings of each point; repeat r has the point's seed + r.
        seed: of the first repeat.
        plugins: absolute paths, imported.
        varying: keys that have more than one value in the matrix.
        warnings: settings without effect, and what may not have been meant.
        notes: what was decided for the user, and why.
        tables: files that learning rates come from, absolute.
        mode: ``composed`` puts times to accuracy together from parts, where ``full`` runs every cell whole.
        whole: which cells run whole in a composed sweep.
    """

    name: str
    file: Path
    points: tuple[Point, ...]
    repeats: int
    seed: int
    plugins: tuple[Path, ...]
    varying: tuple[Key, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Path, ...] = ()
    mode: Mode = "full"
    whole: WholeConfig = WholeConfig()
