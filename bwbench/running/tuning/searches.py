"""The searches that an experiment needs: one for each arm on each workload, and the cells of its trials."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bwbench.base.errors import ConfigError
from bwbench.base.plain_data import canonical
from bwbench.base.registry import OPTIMIZERS
from bwbench.experiment.config.arms import arm_name
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.tuned import with_rate
from bwbench.experiment.config.tuned_table import Row, Trial, setting_of
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.cell_identity import identity
from bwbench.experiment.plan.slug import MAX_LENGTH
from bwbench.network.link import UNSHAPED
from bwbench.running.tuning.search import START, widened

FOLDER = ".tuning"  # below the results: shared by all experiments, and skipped by what lists them
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Search:
    """The search for one arm on one workload.

    Attributes:
        arm: display name of the method.
        config: of a trial, but for its learning rate: an unshaped link, full speed, the seed of the tuning.
        grid: learning rates to choose from.
        notes: what the experiment has several values of, and the search one.
        known: trials that a table holds, by the id of their cell: they count where their records are not here.
    """

    arm: str
    config: CellConfig
    grid: tuple[float, ...]
    notes: tuple[str, ...] = ()
    known: Mapping[str, Trial] = field(default_factory=dict)

    def cell(self, lr: float) -> Cell:
        """The trial of one learning rate: an ordinary cell."""
        config = self.config.model_copy(update={"optimizer": with_rate(self.config.optimizer, lr)})
        parts = (self.arm, config.model.name, config.dataset.source.name, f"n{config.nodes}", f"lr{lr:g}")
        name = "-".join(_UNSAFE.sub("-", part).strip("-._") for part in parts)[:MAX_LENGTH].rstrip("-._")
        return Cell(identity(config), f"{name}-s{config.seed}", FOLDER, self.arm, 0, config)

    @property
    def words(self) -> str:
        """Arm and workload for messages."""
        config = self.config
        return f"{self.arm} ({config.model.name} on {config.dataset.source.name}, {config.nodes} node(s))"


def searches_of(experiment: Experiment, seed: int, widen: int = 0, rows: Sequence[Row] = ()) -> list[Search]:
    """Every search once, in the order of the experiment; what differs in the link alone shares one.

    Args:
        seed: of all trials; not one that the experiment reports.
        widen: powers of two that are added to both ends of every grid.
        rows: of the table; a trial in it is not trained again on another machine.

    Raises:
        ConfigError: the seed is one of the experiment's.
    """
    _refuse_reported(experiment, seed)
    found: dict[tuple[Any, ...], list[CellConfig]] = {}
    for point in experiment.points:
        config = _trial_config(point.config, seed)
        options = config.optimizer.options.model_dump_json(exclude={"lr"})
        key = (canonical(setting_of(config)), config.optimizer.name, options)
        found.setdefault(key, []).append(config)
    known = {trial.id: trial for row in rows for trial in row.entry.trials}
    return [replace(_search(configs, widen), known=known) for configs in found.values()]


def widening(rows: Sequence[Row]) -> int:
    """By how many powers of two the grids of a table have been widened: it stays so, for all arms alike."""
    found = [0]
    for row in rows:
        usual = getattr(OPTIMIZERS.load(row.optimizer.name), "rates", ())
        found.append((len(row.entry.grid) - len(usual)) // 2)
    return max(found)


def _search(configs: Sequence[CellConfig], widen: int) -> Search:
    """The one search for cells that share a rate; it trains like the first of them."""
    first = configs[0]
    search = Search(arm_name(first), first, _grid(first, widen))
    notes = []
    for key, value in (
        ("evaluate.every", lambda config: f"{config.evaluate.every_samples:g} samples"),
        ("limit.samples", lambda config: str(config.limit.samples)),
    ):
        values = list(dict.fromkeys(map(value, configs)))
        if len(values) > 1:
            text = f"{key} has the values {', '.join(values)}, and cells that differ in it share one search"
            notes.append(f"{search.words}: {text}: it takes {values[0]}")
    return replace(search, notes=tuple(notes))


def _trial_config(config: CellConfig, seed: int) -> CellConfig:
    return config.model_copy(
        update={
            "link": UNSHAPED,
            "launcher": "local",
            "compute": config.compute.model_copy(update={"step_time_s": None}),
            "limit": config.limit.model_copy(update={"time_s": None}),  # samples count, on whatever machine
            "stop": "limit" if config.target is None else "target",
            "seed": seed,
        }
    )


def _grid(config: CellConfig, widen: int) -> tuple[float, ...]:
    name = config.optimizer.name
    grid: Sequence[float] = getattr(OPTIMIZERS.load(name), "rates", ())
    if len(grid) < START or list(grid) != sorted(set(grid)) or grid[0] <= 0:
        raise ConfigError(f"optimizer {name!r} has no grid of learning rates: 'rates' takes {START} or more, rising")
    if "lr" not in type(config.optimizer.options).model_fields:
        raise ConfigError(f"optimizer {name!r} has no option 'lr', so there is nothing to tune")
    return widened(grid, widen)


def _refuse_reported(experiment: Experiment, seed: int) -> None:
    reported = sorted(
        {point.config.seed + repeat for point in experiment.points for repeat in range(experiment.repeats)}
    )
    if seed in reported:
        shown = ", ".join(map(str, reported[:5])) + (", …" if len(reported) > 5 else "")
        text = f"--seed {seed} is one of the seeds that {experiment.file} reports ({shown})"
        raise ConfigError(f"{text}; rates chosen by it would be flattered, so choose another")
