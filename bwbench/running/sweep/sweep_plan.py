"""From files to the cells of a sweep: assessed, selected, ordered, and frozen before the first one runs.

``Selection`` is what ``--only KEY=VALUE`` and ``--shard I/N`` ask for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import show, unknown_key
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.experiment import Experiment
from bwbench.experiment.config.matrix import CELL_KEYS, Key, lookup, means_the_same, parse_key, refusal_of_key, show_key
from bwbench.experiment.plan.assess import PlannedCell, assess, freeze_plan
from bwbench.experiment.plan.cell import Cell, Plan, build_plan
from bwbench.experiment.plan.composing import ways
from bwbench.methods.roles import needs_no_link
from bwbench.records.files import full_disk_said
from bwbench.records.lock import locked
from bwbench.records.schema import PlanOrder
from bwbench.running.sweep.needed_repeats import Need, in_words, more_repeats, more_timing_runs, needs
from bwbench.running.sweep.stopped_arms import without_stopped_arms

ENDINGS = (".yaml", ".yml")
DEFAULT_SEED = 0
NAMES = ("arm", "experiment", "repeat", "id", "slug")  # of a cell, beside the keys of its configuration
_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")
_MOST_SHOWN = 12  # values of a key in a message


@dataclass(frozen=True)
class Selection:
    """What remains of a plan.

    Attributes:
        wanted: for each key the values that it may have, any of them; all keys have to hold.
        shard: (i, n): of every n cells in running order the i-th, from 1; None takes all.
    """

    wanted: Mapping[Key, tuple[Any, ...]]
    shard: tuple[int, int] | None = None

    @classmethod
    def parse(cls, only: Sequence[str] = (), shard: str | None = None) -> Selection:
        """Read the options; raises ConfigError with all that is wrong about them."""
        problems: list[Problem] = []
        wanted: dict[Key, tuple[Any, ...]] = {}
        for text in only:
            key_text, equals, value_text = text.partition("=")
            key = parse_key(key_text)
            if not equals or not key_text.strip():
                problems.append(Problem(f"--only {text!r}: write it as KEY=VALUE, for example --only arm=ring"))
            elif refusal := _refusal(key):
                problems.append(Problem(f"--only {text}: {refusal}"))
            else:
                wanted[key] = (*wanted.get(key, ()), *map(_value, value_text.split("|")))
        part = _SHARD.fullmatch(shard.strip()) if shard is not None else None
        if shard is not None and not (part and 1 <= int(part[1]) <= int(part[2])):
            problems.append(Problem(f"--shard {shard!r}: write it as I/N, from 1/N to N/N, for example --shard 2/4"))
        if problems:
            raise ConfigError(problems)
        return cls(wanted, (int(part[1]), int(part[2])) if part else None)

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of ``cells``, which stand in running order, that are selected.

        What is asked of a link leaves those of an experiment in that none concerns, where others of it fit: one node
        alone is what all of them are compared with.

        Raises ConfigError where a value of ``--only`` fits no cell; a shard may well be empty.
        """
        kept = list(cells)
        for key, values in self.wanted.items():
            found = [(cell, value_of(cell, key)) for cell in kept]
            fitting = [cell for cell, actual in found if any(means_the_same(actual, value) for value in values)]
            if not fitting:
                asked = "|".join(show(value).strip("'") for value in values)
                raise ConfigError(f"--only {show_key(key)}={asked} leaves no cell; {_takes(key, found)}")
            kept = fitting if key[0] != "link" else _with_linkless(fitting, kept)
        if self.shard is None:
            return kept
        number, count = self.shard
        return kept[number - 1 :: count]


def _with_linkless(fitting: Sequence[Cell], cells: Sequence[Cell]) -> list[Cell]:
    """Those of ``cells`` that fit, and those of the same experiments that no link concerns; in the same order."""
    fit = {(cell.experiment, cell.id) for cell in fitting}
    experiments = {cell.experiment for cell in fitting}
    return [
        cell
        for cell in cells
        if (cell.experiment, cell.id) in fit
        or (cell.experiment in experiments and needs_no_link(cell.role, shaped=cell.config.link.shaped))
    ]


def value_of(cell: Cell, key: Key) -> Any:
    """What a cell has under a dotted key of its configuration, or under one of ``NAMES``; None where it has none."""
    if key[0] in NAMES:
        return getattr(cell, key[0])
    part = getattr(cell.config, key[0])
    if len(key) == 1 and isinstance(part, (str, int, float)):
        return part
    return lookup(cell.config.model_dump(mode="json", by_alias=True, include={key[0]}), key)


def _refusal(key: Key) -> str | None:
    if key[0] in NAMES:
        return None if len(key) == 1 else f"unknown key {show_key(key)!r}: {key[0]!r} has no keys inside"
    if key[0] not in CELL_KEYS:
        return unknown_key(show_key(key), (*NAMES, *CELL_KEYS))
    return refusal_of_key(key)


def _value(text: str) -> Any:
    """As YAML reads it, so that numbers and components are what they would be in a file; else as text."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


def _takes(key: Key, found: Iterable[tuple[Cell, Any]]) -> str:
    values = list(dict.fromkeys(show(value).strip("'") for _, value in found if value is not None))
    if not values:
        return f"no cell has {show_key(key)}"
    more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
    return f"{show_key(key)} takes {', '.join(values[:_MOST_SHOWN])}{more}"


def experiment_files(paths: Sequence[Path]) -> list[Path]:
    """Each file once; of a folder its YAML files, by name, without those in folders inside it.

    Raises ConfigError for a folder that has none, or cannot be read; whether a file is there shows when it is read.
    """
    found: dict[Path, Path] = {}
    problems = []
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except OSError as error:
            problems.append(Problem(f"the folder {path} cannot be read: {error.strerror}"))
            continue
        files = [path] if inside is None else [one for one in inside if one.suffix in ENDINGS and one.is_file()]
        if not files:
            problems.append(
                Problem(f"no experiment files (*.yaml) in the folder {path}; name files, or another folder")
            )
        for file in files:
            found.setdefault(file.resolve(), file)
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def load_experiments(files: Sequence[Path], overrides: Sequence[str] = ()) -> list[Experiment]:
    """All of them, in order. Raises ConfigError with the problems of all files, and where two share a name."""
    experiments: list[Experiment] = []
    problems: list[Problem] = []
    for file in files:
        try:
            experiments.append(load_experiment(file, overrides))
        except ConfigError as error:
            problems += error.problems
    names: dict[str, Path | None] = {}
    for experiment in experiments:
        other = names.setdefault(experiment.name, experiment.file)
        if other is not experiment.file:
            text = f"name: {experiment.name!r} is also the name of {other}; results lie in a folder of that name"
            problems.append(Problem(f"{text}, so rename one", str(experiment.file)))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return experiments


def running_order(cells: Iterable[Cell], seed: int = DEFAULT_SEED) -> list[Cell]:
    """The first repeat of all cells of all experiments, then the second, and so on; each block shuffled by ``seed``.

    A slow drift of the machine then meets every arm and every link alike. Where a cell comes in its block depends on
    the seed and on the cell alone: leaving cells out, or adding some, does not change the order of the others.
    """

    def drawn(cell: Cell) -> str:
        return hashlib.sha256(f"{seed} {cell.experiment} {cell.id}".encode()).hexdigest()

    return sorted(cells, key=lambda cell: (cell.repeat, drawn(cell)))


@dataclass(frozen=True)
class SweepPlan:
    """All that a sweep will do. It is in memory: what happens to the files afterwards changes nothing.

    Attributes:
        plans: one an experiment, in the order of the files.
        planned: every cell of every experiment, in running order.
        selected: those of them that the command is about.
        order_seed: that the order was drawn with.
        selection: that has left ``selected``; None leaves all.
        needs: of the experiments whose repeats go on until ratios are known, by name: what each arm needs.
        part: ``convergence`` or ``timing`` where ``selected`` is what is to be made of that kind and no more
            (``only_part`` in rounds.py); else empty.
    """

    plans: tuple[Plan, ...]
    planned: tuple[PlannedCell, ...]
    selected: tuple[PlannedCell, ...]
    order_seed: int
    results: Path
    selection: Selection | None
    needs: Mapping[str, tuple[Need, ...]]
    part: str = ""

    def grown(self) -> SweepPlan | None:
        """What the pilots that have ended since ask for, as ``selected``; None where they ask for no more.

        That is repeats which were not in this plan, and cells of it that are to be composed from more timing runs.
        """
        if not self.needs or self.part:
            return None
        experiments = [plan.experiment for plan in self.plans]
        found = plan_experiments(experiments, self.results, (), self.selection, self.order_seed)
        known = {_key(item): item.timing_runs for item in self.selected}
        added = tuple(item for item in found.selected if item.timing_runs > known.get(_key(item), 0))
        return replace(found, selected=added) if any(item.runs for item in added) else None

    @property
    def todo(self) -> list[PlannedCell]:
        """The selected cells that will run, in running order."""
        return [item for item in self.selected if item.runs]

    @property
    def foreseen(self) -> list[PlannedCell]:
        """The selected cells, and those that are done, selected or not: what they took says how long others take.

        Of one part all cells: runs that they share and that are done say it as well.
        """
        if self.part:
            return [*self.planned, *(item for item in self.selected if item.part)]
        selected = {_key(item) for item in self.selected}
        return [item for item in self.planned if item.status == "done" or _key(item) in selected]

    @property
    def notes(self) -> list[str]:
        """What the experiments warn of and decided, each once."""
        texts = [text for plan in self.plans for text in (*plan.experiment.warnings, *plan.notes)]
        texts += self.about_repeats
        return list(dict.fromkeys(texts))

    @property
    def about_repeats(self) -> list[str]:
        """How many repeats the arms need where that follows from a pilot, a line an experiment."""
        asked = ((plan.experiment.name, plan.experiment.until) for plan in self.plans)
        return [f"{name}: {in_words(self.needs[name], until)}" for name, until in asked if until is not None]

    @property
    def warnings(self) -> list[str]:
        """What may not have been meant, each once."""
        return list(dict.fromkeys(text for plan in self.plans for text in plan.experiment.warnings))


def plan_sweep(
    paths: Sequence[Path],
    results: Path,
    overrides: Sequence[str] = (),
    retry: Collection[str] = (),
    selection: Selection | None = None,
    order_seed: int = DEFAULT_SEED,
) -> SweepPlan:
    """Read the files and look what is done. Writes nothing.

    Args:
        paths: experiment files, and folders of them.
        retry: those of failed, timeout, diverged, invalid that shall run again.

    Raises:
        ConfigError: with the problems of all files, or where the selection leaves nothing.
    """
    experiments = load_experiments(experiment_files(paths), overrides)
    return plan_experiments(experiments, results, retry, selection, order_seed)


def plan_experiments(
    experiments: Sequence[Experiment],
    results: Path,
    retry: Collection[str] = (),
    selection: Selection | None = None,
    order_seed: int = DEFAULT_SEED,
) -> SweepPlan:
    """As ``plan_sweep``, of experiments that have been read."""
    plans, needed = [], {}
    for experiment in experiments:
        plan = build_plan(experiment)
        if experiment.until is not None:
            found = tuple(needs(experiment.until, _assessed(plan, results, (), None)))
            plan, needed[experiment.name] = build_plan(experiment, more_repeats(found)), found
        plans.append(plan)
    cells = running_order((cell for plan in plans for cell in plan.cells), order_seed)
    assessed = [item for plan in plans for item in _assessed(plan, results, retry, needed.get(plan.experiment.name))]
    items = {_key(item): item for item in without_stopped_arms(assessed)}
    kept = selection.of(cells) if selection is not None else cells
    return SweepPlan(
        plans=tuple(plans),
        planned=tuple(items[cell.experiment, cell.id] for cell in cells),
        selected=tuple(items[cell.experiment, cell.id] for cell in kept),
        order_seed=order_seed,
        results=results,
        selection=selection,
        needs=needed,
    )


def _assessed(plan: Plan, results: Path, retry: Collection[str], found: Sequence[Need] | None) -> list[PlannedCell]:
    """The cells of one experiment, with what is recorded of them and what a pilot has ``found`` that they need."""
    experiment = plan.experiment
    more = None if found is None else more_timing_runs(found, plan)
    return assess(plan.cells, results, retry, ways(experiment, plan.cells), experiment.timing.runs, more)


def freeze_sweep(sweep: SweepPlan) -> None:
    """Write plan.json of every experiment, and cell.json of every cell that has none, selected or not.

    Raises:
        UnfitMachineError: the disk is full or not writable.
        ConfigError: another process has been planning in one of the folders for too long.
    """
    for plan in sweep.plans:
        name = plan.experiment.name
        planned = [item for item in sweep.planned if item.cell.experiment == name]
        order = PlanOrder(
            seed=sweep.order_seed, blocks="repeats", experiments=tuple(p.experiment.name for p in sweep.plans)
        )
        with full_disk_said(sweep.results / name), locked(sweep.results / name):
            for torn in (sweep.results / name).glob(".plan.json.*.part"):  # of a process that was killed
                torn.unlink()
            freeze_plan(planned, sweep.results / name, plan.about, order)


def _key(item: PlannedCell) -> tuple[str, str]:
    return item.cell.experiment, item.cell.id
