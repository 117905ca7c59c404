"""The plan of an experiment: its cells in the order in which they run, with short names for folders and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bwbench import __version__
from bwbench.base.plain_data import Json
from bwbench.experiment.config.cell_config import METHOD_KEYS, CellConfig
from bwbench.experiment.config.dotted_keys import Key
from bwbench.experiment.config.experiment import Experiment, Point
from bwbench.experiment.config.method_names import arm_name, standing_of
from bwbench.experiment.plan.cell import Cell
from bwbench.methods.roles import REFERENCE
from bwbench.records.cell_identity import identity
from bwbench.records.schema import PlanAbout

MAX_SLUG = 100  # with the id and ".part" it fits everywhere, encrypted file systems included (143 bytes)
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # in the name of a file


@dataclass(frozen=True)
class Plan:
    """All cells of an experiment.

    Attributes:
        experiment: what they were made from.
        cells: in running order: all of repeat 0, then all of repeat 1, and so on, so that a slow drift of the machine
            meets every arm alike.
        num_identical: cells that turned out to be the same as another one, and are planned once.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    num_identical: int

    @property
    def about(self) -> PlanAbout:
        """The experiment as ``plan.json`` keeps it."""
        experiment = self.experiment
        return PlanAbout(
            name=experiment.name,
            file=experiment.file.name,
            bwbench_version=__version__,
            repeats=experiment.repeats,
            seed=experiment.seed,
            plugins=tuple(plugin.name for plugin in experiment.plugins),
            varying=tuple(".".join(key) for key in experiment.varying),
            warnings=tuple(experiment.warnings),
            notes=tuple(self.notes),
        )

    @property
    def notes(self) -> list[str]:
        """What was decided for the user, and why."""
        same = f"{self.num_identical} cells are the same as another one and run once"
        return [*self.experiment.notes, *([same] if self.num_identical else [])]


def build_plan(experiment: Experiment) -> Plan:
    """Every point of ``experiment``, repeated; pure, apart from reading the declared versions of plugins."""
    cells: dict[str, Cell] = {}
    arms = [arm_name(point.config) for point in experiment.points]
    for repeat in range(experiment.repeats):
        for point, arm in zip(experiment.points, arms, strict=True):
            seed = point.config.seed + repeat
            config = point.config if repeat == 0 else point.config.model_copy(update={"seed": seed})
            cell_id = identity(config)
            if cell_id not in cells:
                name = slug(point, arm, experiment.varying, seed)
                cells[cell_id] = Cell(cell_id, name, experiment.name, arm, repeat, config)
    total = len(experiment.points) * experiment.repeats
    return Plan(experiment, tuple(cells.values()), total - len(cells))


def slug(point: Point, arm: str, varying: Sequence[Key], seed: int) -> str:
    """``ring-fp16-10Mbit-s0``: the method, the values of the axes that vary, the seed; safe in a file name."""
    parts = [arm]
    values, has_no_link = dict(point.values), standing_of(point.config).role == REFERENCE
    for key in varying:  # the arm's name says the method
        if key[0] in (*METHOD_KEYS, "seed") or (key[0] == "link" and has_no_link):
            continue
        parts.append(_value(key, values[key], point.config))
    text = "-".join(filter(None, map(_safe, parts)))[:MAX_SLUG].rstrip("-._")
    return f"{text}-s{seed}"


def _value(key: Key, value: Json, config: CellConfig) -> str:
    if key == ("link",):
        return config.link.describe().partition(" (")[0].replace(" one way", "")
    speaks_for_itself = key == ("link", "bandwidth") or key[-1] in ("name", "preset") or len(key) == 1
    if speaks_for_itself and isinstance(value, (str, Mapping)):
        return _name(value)
    return f"{key[-1]}{_name(value)}"


def _name(value: Json) -> str:
    """A value in few letters; of a component its name and its options."""
    if isinstance(value, Mapping):
        parts = [name] if isinstance(name := value.get("name"), str) else []
        for key, item in value.items():
            if key != "name":
                inner = _name(item)
                parts.append(f"{key}-{inner}" if isinstance(item, Mapping) else f"{key}{inner}")
        return "-".join(parts)
    if isinstance(value, list):
        return "-".join(map(_name, value))
    return "none" if value is None else str(value)


def _safe(text: str) -> str:
    """The text with a unit closed up (``10Mbit``) and nothing that a shell or a file system minds."""
    text = text.replace("/s", "").replace(" ", "").replace("=", "")
    return UNSAFE.sub("-", text).strip("-._")
