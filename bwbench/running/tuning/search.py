"""Searches for learning rates: which rates one tries, which searches an experiment needs, the cells of their trials.

A search tries the middle three of a grid, then goes outwards while the best is outermost. Nobody gets more tries than
another: what is tried follows from the costs alone, and every arm has the same grid. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bwbench.base.errors import ConfigError
from bwbench.base.plain_data import canonical
from bwbench.base.registry import OPTIMIZERS
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.config.tuned import with_rate
from bwbench.experiment.config.tuned_table import RateTrial, Row, setting_of
from bwbench.experiment.plan.build import MAX_SLUG, UNSAFE
from bwbench.experiment.plan.cell import Cell
from bwbench.network.link import UNSHAPED
from bwbench.records.cell_identity import identity

START = 3  # rates that are tried in any case
FOLDER = ".tuning"  # below the results: shared by all experiments, and skipped by what lists them


@dataclass(frozen=True)
class State:
    """How far a search is.

    Attributes:
        tried: the rates that are needed so far, rising; those without a cost yet included.
        missing: those without a cost; empty once the search has ended.
        best: the rate of least cost, of equal ones the lowest; None until the search has ended.
    """

    tried: tuple[float, ...]
    missing: tuple[float, ...]
    best: float | None


def search_grid(grid: Sequence[float], cost: Callable[[float], Any]) -> State:
    """Follow the search as far as costs are known.

    Args:
        grid: learning rates, rising, ``START`` or more.
        cost: of a rate, anything that can be compared; None where it is not known yet. A function that finds it out
            makes this the whole search.
    """
    first = (len(grid) - START) // 2
    tried = list(grid[first : first + START])
    while True:
        costs = {rate: cost(rate) for rate in tried}
        missing = tuple(rate for rate in tried if costs[rate] is None)
        if missing:
            return State(tuple(tried), missing, None)
        best = min(tried, key=lambda rate: costs[rate])
        position = list(grid).index(best)
        around = [grid[index] for index in (position - 1, position + 1) if 0 <= index < len(grid)]
        new = [rate for rate in around if rate not in costs]
        if not new:
            return State(tuple(tried), (), best)
        tried = sorted([*tried, *new])


def widened(grid: Sequence[float], steps: int) -> tuple[float, ...]:
    """The grid with ``steps`` more powers of two at both ends."""
    below = [grid[0] / 2.0**power for power in range(steps, 0, -1)]
    return (*below, *grid, *(grid[-1] * 2.0**power for power in range(1, steps + 1)))


def on_edge(grid: Sequence[float], rate: float) -> bool:
    """Whether a better rate may lie beyond the grid."""
    return rate in (grid[0], grid[-1])


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
    known: Mapping[str, RateTrial] = field(default_factory=dict)

    def cell(self, lr: float) -> Cell:
        """The trial of one learning rate: an ordinary cell."""
        config = self.config.model_copy(update={"optimizer": with_rate(self.config.optimizer, lr)})
        parts = (self.arm, config.model.name, config.dataset.source.name, f"n{config.nodes}", f"lr{lr:g}")
        name = "-".join(UNSAFE.sub("-", part).strip("-._") for part in parts)[:MAX_SLUG].rstrip("-._")
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
    found: dict[tuple[str, ...], list[CellConfig]] = {}
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
