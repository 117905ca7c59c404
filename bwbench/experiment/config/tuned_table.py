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
from bwbench.experiment.config.cell_config import METHOD_KEYS, CellConfig, parse_dataset
from bwbench.experiment.config.component_parsing import parse_chain, parse_component
from bwbench.experiment.config.matrix import COMPONENT_KEYS

SCHEMA = 1
MAX_BYTES = 4 * 1024 * 1024  # some thousand entries
MAX_PROBLEMS = 5  # shown of one file
WORKLOAD = ("model", "dataset", "nodes", "batch_size", "accumulate", "target")

Setting = JsonObject  # what a rate belongs to: METHOD_KEYS and WORKLOAD, components with every option


class _TablePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RateTrial(_TablePart):
    """One training of the search.

    Attributes:
        lr: learning rate, as the optimizer states it.
        status: how the training ended.
        samples_to_target: over all nodes; None where the target was not reached.
        loss: of the last evaluation on the validation split; None where there was none that is finite.
        id: of the cell, whose records lie below ``<results>/.tuning``.
    """

    lr: float = Field(gt=0)
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
    """What the search of one arm on one workload came to.

    Attributes:
        arm: display name of the method; algorithm, collective and compression say it in full.
        optimizer: what was tuned, without a rate.
        lr: the chosen rate; None where the search found none, and ``problem`` says why.
        on_edge: whether the chosen rate is the first or the last of the grid, so that a better one may lie beyond.
        every_samples, limit_samples: between evaluations, and until a trial gave up.
        grid: the rates that the search could choose from.
        trials: those that it tried.
    """

    arm: str
    algorithm: JsonValue
    collective: JsonValue
    compression: JsonValue
    model: JsonValue
    dataset: JsonValue
    nodes: int
    batch_size: int
    accumulate: int
    target: JsonValue
    optimizer: dict[str, dict[str, JsonValue]] = Field(min_length=1, max_length=1)
    lr: float | None = Field(None, gt=0)
    problem: str | None = None
    on_edge: bool = False
    every_samples: float
    limit_samples: int
    grid: tuple[float, ...] = Field(min_length=3)
    trials: tuple[RateTrial, ...]
    made: Made

    @property
    def workload(self) -> str:
        """Model and data set in words."""
        return f"{named(self.model)} on {named(self.dataset)}"

    @property
    def chosen(self) -> RateTrial | None:
        """The trial of the chosen rate."""
        return next((trial for trial in self.trials if trial.lr == self.lr), None)


class TableFile(_TablePart):
    """The whole file. ``seed`` was used for tuning alone, and is in no report."""

    schema_: Literal[1] = Field(1, alias="schema")
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
        """The same for entries of the same search: arm, workload, and what was tuned."""
        return canonical({**self.setting, "optimizer": without_rate(self.optimizer)})


@dataclass(frozen=True)
class TunedTable:
    """A file of tuned rates, ready for looking up."""

    content: TableFile
    rows: tuple[Row, ...]
    _by_setting: dict[str, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            self._by_setting.setdefault(canonical(row.setting), []).append(row)

    def find(self, setting: Setting) -> list[Row]:
        """The rows of exactly this arm and workload; more than one where optimizers were compared."""
        return self._by_setting.get(canonical(setting), [])


def setting_of(config: CellConfig) -> Setting:
    """What a tuned rate belongs to, as an entry has it, out of a cell's configuration."""
    return {
        "algorithm": config.algorithm.to_json(),
        "collective": config.collective.to_json(),
        "compression": [codec.to_json() for codec in config.compression],
        "model": config.model.to_json(),
        "dataset": config.dataset.to_json(),
        "nodes": config.nodes,
        "batch_size": config.batch_size,
        "accumulate": config.accumulate,
        "target": {config.target.metric: config.target.value} if config.target else None,
    }


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
        raise ConfigError(f"{path} cannot be read") from None
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
    if schema != SCHEMA:
        text = f"schema {schema!r} is not the one that this version of bwbench reads ({SCHEMA}); update bwbench"
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
        if key in ("algorithm", "collective", "model"):
            return parse_component(value, COMPONENT_KEYS[key]).to_json()
    return value


def _first(problems: list[Problem]) -> tuple[Problem, ...]:
    """A few of them: a file that a program has written is wrong in all entries, or in one."""
    more = len(problems) - MAX_PROBLEMS
    said = [Problem(f"and {more} more problems", problems[0].file)] if more > 0 else []
    return (*problems[:MAX_PROBLEMS], *said)
