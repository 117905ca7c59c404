"""The table of tuned learning rates, as ``bwbench tune`` writes it: its form, reading it, finding a cell's row."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain, show
from bwbench.base.plain_data import Json, JsonObject, canonical, whole_floats_as_int
from bwbench.base.registry import OPTIMIZERS
from bwbench.base.yaml_document import parse_yaml, read_text_file
from bwbench.experiment.config.cell_config import METHOD_KEYS, CellConfig, TargetConfig, parse_dataset
from bwbench.experiment.config.component_parsing import parse_chain, parse_component
from bwbench.experiment.config.matrix import COMPONENT_KEYS
from bwbench.experiment.config.tune_block import Options, as_searched
from bwbench.experiment.kin import kin_key

SCHEMA = 2
READABLE = (1, 2)  # 1 was of one seed, with a search for each arm
MAX_BYTES = 4 * 1024 * 1024  # some thousand entries
MAX_PROBLEMS = 5  # shown of one file
WORKLOAD = ("model", "dataset", "nodes", "batch_size", "accumulate", "target", "weight_average")

Setting = JsonObject  # what a rate belongs to: METHOD_KEYS and WORKLOAD, components with every option


class _TablePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RateTrial(_TablePart):
    """One training of the search.

    Attributes:
        lr: learning rate, as the optimizer states it.
        options: of the method, where they are not those of the entry.
        seed: None in a table of one seed, which says it at its top.
        status: how the training ended.
        samples_to_target: over all nodes; None where the target was not reached. In a table of one seed up to the
            first evaluation that met it.
        loss: mean of the last three evaluations on the validation split, in a table of one seed the last one's; None
            where there was none that is finite.
        id: of the cell, whose records lie below ``<results>/.tuning``.
    """

    lr: float = Field(gt=0)
    options: dict[str, JsonValue] = {}
    seed: int | None = None
    status: str
    samples_to_target: int | None = None
    loss: float | None = None
    id: str


class Made(_TablePart):
    """When the last trial ran, where and by which version; ``commit`` ends in ``+`` where the tree had changes.

    Several, with commas between, where the trials of a search ran on unlike hosts or versions.
    """

    date: str
    commit: str | None = None
    bwbench: str
    host: str


class TunedEntry(_TablePart):
    """What the search of one arm, or of arms that learn alike, came to on one workload.

    Attributes:
        arm: display name of the method that trained; algorithm, collective and compression say it in full.
        arms: that share the search because they are kin, as far as experiments have named them; empty in a table of
            one seed, whose searches were of one arm each.
        weight_average: by whose metrics the rate was judged; None where by those of the weights themselves.
        optimizer: what was tuned, without a rate.
        lr: the chosen rate; None where the search found none, and ``problem`` says why.
        seeds: that decided; 1 in a table of one seed.
        fitted: ``lr`` comes from a parabola through several rates, and need not be one of them.
        samples_to_target, loss: expected at ``lr``; None where no rate reaches the target, and where one does.
        on_edge: whether the best rate is the first or the last of the grid, so that a better one may lie beyond: no
            result, except in a table of one seed.
        every_samples, limit_samples: between evaluations, and until a trial gave up.
        grid: the rates that the search could choose from.
        options: of the method that were tuned beside the rate, with the values tried; chosen: what they were found to
            be, and what the entry's method says where they are left out: its defaults.
        trials: all trainings, in the order in which they were asked for.
    """

    arm: str
    arms: tuple[str, ...] = ()
    algorithm: JsonValue
    collective: JsonValue
    compression: JsonValue
    model: JsonValue
    dataset: JsonValue
    nodes: int
    batch_size: int
    accumulate: int
    target: JsonValue
    weight_average: JsonValue = None
    optimizer: dict[str, dict[str, JsonValue]] = Field(min_length=1, max_length=1)
    lr: float | None = Field(None, gt=0)
    problem: str | None = None
    seeds: int = Field(1, ge=1)
    fitted: bool = False
    samples_to_target: int | None = None
    loss: float | None = None
    on_edge: bool = False
    every_samples: float
    limit_samples: int
    grid: tuple[float, ...] = Field(min_length=3)
    options: dict[str, list[JsonValue]] = {}
    chosen: dict[str, JsonValue] = {}
    trials: tuple[RateTrial, ...]
    made: Made

    @property
    def workload(self) -> str:
        """Model and data set in words."""
        return f"{named(self.model)} on {named(self.dataset)}"

    @property
    def expected(self) -> tuple[int | None, float | None]:
        """Samples to the target and loss at the chosen rate, as far as they are known."""
        if self.seeds > 1:
            return self.samples_to_target, self.loss
        chosen = next((trial for trial in self.trials if trial.lr == self.lr), None)
        return (None, None) if chosen is None else (chosen.samples_to_target, chosen.loss)


class TableFile(_TablePart):
    """The whole file. ``seed`` was used for tuning alone, the first one of several; none of them is in a report."""

    schema_: Literal[1, 2] = Field(2, alias="schema")
    experiment: str
    seed: int
    entries: tuple[TunedEntry, ...]


@dataclass(frozen=True)
class Row:
    """An entry with what it is compared by, and its optimizer: with the chosen rate, or any where there is none."""

    entry: TunedEntry
    setting: Setting
    optimizer: Component

    @property
    def key(self) -> str:
        """The same for entries of the same search: arm or kin, workload, and what was tuned."""
        if self.one_seed:
            return canonical({**self.setting, "optimizer": without_rate(self.optimizer)})
        return _key(self.learns, self.optimizer)

    @property
    def one_seed(self) -> bool:
        """Whether one training at each rate decided, of this arm alone: it may be a lucky one."""
        return self.entry.seeds == 1

    @property
    def learns(self) -> str:
        """The same for settings that share a search: kin on one workload, up to the same target."""
        return learning_of(self.setting, self.entry.options)

    def as_trained(self, config: CellConfig) -> CellConfig:
        """A cell of this row's kin by the method that trained for it, so that the trainings of the row are its own.

        Others would come to another rate by chance, under which experiments that use the row would train anew.
        """
        method: dict[str, object] = {"compression": parse_chain(self.setting["compression"])}
        for key in ("algorithm", "collective"):
            method[key] = parse_component(self.setting[key], COMPONENT_KEYS[key])
        return config.model_copy(update=method)


@dataclass(frozen=True)
class TunedTable:
    """A file of tuned rates, ready for looking up."""

    content: TableFile
    rows: tuple[Row, ...]
    _by_setting: dict[str, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            key = canonical(row.setting) if row.one_seed else row.learns
            self._by_setting.setdefault(key, []).append(row)

    def find(self, setting: Setting, options: Options) -> list[Row]:
        """The rows of this arm or its kin on this workload; more than one where optimizers were compared.

        Rows of one seed are of exactly this arm, and count where no others are there.

        Args:
            options: of the method that are tuned beside the rate, with the values that are tried.
        """
        found = self._by_setting.get(learning_of(setting, options))
        return found or ([] if options else self._by_setting.get(canonical(setting), []))


def learning_of(setting: Setting, options: Options) -> str:
    """The same for settings whose replicas learn alike, whatever the optimizer, and which aim at the same target."""
    tuned = {name: sorted(map(canonical, values)) for name, values in options.items()}
    return canonical([kin_key(setting), setting["target"], tuned])


def search_key(config: CellConfig, options: Options) -> str:
    """``Row.key`` of what several seeds decide for a cell: its kin, workload, target, and what is tuned."""
    return _key(learning_of(setting_of(config), options), config.optimizer)


def _key(learns: str, optimizer: Component) -> str:
    return canonical([learns, without_rate(optimizer)])


def middle_target(config: CellConfig) -> TargetConfig | None:
    """The target that a rate is chosen by: of several of the first one's metric the middle one, of two the harder."""
    alike = [one for one in config.all_targets if config.target is not None and one.metric == config.target.metric]
    return alike[len(alike) // 2] if alike else None


def setting_of(config: CellConfig) -> Setting:
    """What a tuned rate belongs to, as an entry has it, out of a cell's configuration."""
    return {
        "algorithm": as_searched(config).algorithm.to_json(),
        "collective": config.collective.to_json(),
        "compression": [codec.to_json() for codec in config.compression],
        "model": config.model.to_json(),
        "dataset": config.dataset.to_json(),
        "nodes": config.nodes,
        "batch_size": config.batch_size,
        "accumulate": config.accumulate,
        "target": {target.metric: target.value} if (target := middle_target(config)) is not None else None,
        "weight_average": config.weight_average.to_json() if scores_average(config) else None,
    }


def scores_average(config: CellConfig) -> bool:
    """Whether a rate is judged by an average of the weights, so that another one may be best."""
    return getattr(config.weight_average.options, "counts", "trained") == "averaged"


def read_table(path: Path, plugins: tuple[str, ...] = ()) -> TunedTable:
    """The table in ``path``; read once as long as the file stays the same.

    Args:
        plugins: of the experiment, loaded already: their components may stand in the table.

    Raises:
        ConfigError: the file is missing, or not such a table.
    """
    try:
        state = path.stat()
    except (OSError, ValueError):
        read_text_file(path, MAX_BYTES)  # says what is wrong
        raise ConfigError(f"{path} has gone while it was read; try again") from None
    found = _read(path, state.st_mtime_ns, state.st_size, plugins)
    if isinstance(found, TunedTable):
        return found
    raise ConfigError(list(found))


@functools.lru_cache(maxsize=16)
def _read(path: Path, mtime_ns: int, size: int, plugins: tuple[str, ...]) -> TunedTable | tuple[Problem, ...]:
    shown = min(str(path), os.path.relpath(path), key=len)
    try:
        document = parse_yaml(read_text_file(path, MAX_BYTES), shown, MAX_BYTES)
    except ConfigError as error:
        return tuple(error.problems)
    if document.problems:
        return tuple(document.problems)
    schema = document.data.get("schema") if isinstance(document.data, Mapping) else None
    if schema is None:
        return (Problem("not a table of tuned learning rates, as 'bwbench tune' writes it", shown),)
    if schema not in READABLE:
        known = " and ".join(map(str, READABLE))
        text = f"schema {schema!r} is none that this version of bwbench reads ({known}); update bwbench"
        return (document.problem(text, ("schema",)),)
    try:
        content = TableFile.model_validate_json(json.dumps(whole_floats_as_int(document.data)), strict=True)
    except ValidationError as error:
        found = explain(error, TableFile)
        return _first([document.problem(f"{'.'.join(map(str, loc)) or 'table'}: {text}", loc) for loc, text in found])
    problems: list[Problem] = []
    rows: list[Row] = []
    for number, entry in enumerate(content.entries):
        try:
            rows.append(row_of(entry))
        except (ValidationError, ConfigError) as error:
            text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            problems.append(document.problem(f"optimizer: {text}", ("entries", number, "optimizer")))
    return _first(problems) or TunedTable(content, tuple(rows))


def row_of(entry: TunedEntry) -> Row:
    """The entry with all defaults filled in; parts that nobody here knows stay as they are, and match nothing.

    Raises ValidationError or ConfigError where the optimizer is none.
    """
    (name, options), rate = next(iter(entry.optimizer.items())), {} if entry.lr is None else {"lr": entry.lr}
    optimizer = parse_component({name: {**options, **rate}}, OPTIMIZERS)
    setting = {key: _filled(key, getattr(entry, key)) for key in (*METHOD_KEYS, *WORKLOAD)}
    return Row(entry, setting, optimizer)


def named(value: Json) -> str:
    """A part of an entry by its name alone; as it is written where it has none."""
    return str(value["name"]) if isinstance(value, dict) and "name" in value else show(value)


def without_rate(optimizer: Component) -> JsonObject:
    """All of an optimizer but its learning rate: name and options."""
    return {key: value for key, value in optimizer.to_json().items() if key != "lr"}


def _filled(key: str, value: Json) -> Json:
    with contextlib.suppress(ValidationError, ConfigError):  # of a plugin that is not loaded here
        if key == "compression":
            return [codec.to_json() for codec in parse_chain(value)]
        if key == "dataset":
            return parse_dataset(value).to_json()
        if key in ("algorithm", "collective", "model") or (key == "weight_average" and value is not None):
            return parse_component(value, COMPONENT_KEYS[key]).to_json()
    return value


def _first(problems: list[Problem]) -> tuple[Problem, ...]:
    """A few of them: a file that a program has written is wrong in all entries, or in one."""
    more = len(problems) - MAX_PROBLEMS
    said = [Problem(f"and {more} more problems", problems[0].file)] if more > 0 else []
    return (*problems[:MAX_PROBLEMS], *said)
