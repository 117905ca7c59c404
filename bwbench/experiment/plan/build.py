"""The plan of an experiment: its cells in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

from bwbench import __version__
from bwbench.experiment.config.arms import arm_name
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.cell_identity import identity
from bwbench.experiment.plan.slug import slug
from bwbench.records.schema import PlanAbout


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
