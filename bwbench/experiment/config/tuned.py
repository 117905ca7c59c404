"""``optimizer: {tuned: FILE}``: each cell gets the optimizer that the table has for its arm and its workload."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.explain import Location, show, unknown_key
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import ALGORITHMS, COMPRESSIONS, OPTIMIZERS
from bwbench.experiment.config.cell_config import METHOD_KEYS, CellConfig
from bwbench.experiment.config.combinations import Finding
from bwbench.experiment.config.component_parsing import parse_component, split_spelling
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.config.tune_block import TuneBlock, tuned_options
from bwbench.experiment.config.tuned_table import (
    Row,
    Setting,
    TunedTable,
    learning_of,
    named,
    read_table,
    setting_of,
    without_rate,
)

USUAL = {"sgd": {"momentum": 0.9}}  # what is tuned where an experiment names only the table
_LOC: Location = ("optimizer", "tuned")
_FORM = "write {tuned: FILE}, or {tuned: {file: FILE, optimizer: {sgd: {momentum: 0.9}}}}"


@dataclass(frozen=True)
class Reference:
    """A table that an experiment names.

    Attributes:
        file: as it was written.
        optimizer: what is to be tuned, as it was written; None leaves that to the table.
    """

    file: str
    optimizer: Json = None


@dataclass(frozen=True)
class Choice:
    """The optimizer for a cell and the options of its method that were tuned, or what is wrong; what is to be said."""

    optimizer: Component | None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class TunedRates:
    """Where the rates of one experiment come from.

    Attributes:
        experiment: its file, for messages.
        folder: that names of tables are relative to.
        repeats: of each cell, whose seeds must not be the one of the search.
        searching: the rates are about to be found, so that the table need not be there.
        tune: options that are tuned together with the rate.
    """

    experiment: str
    folder: Path
    repeats: int = 1
    searching: bool = False
    tune: TuneBlock = TuneBlock()

    def path(self, reference: Reference) -> Path:
        """Where the table lies."""
        return _absolute(Path.cwd() / self.folder, reference.file)

    def choose(self, reference: Reference, config: CellConfig) -> Choice:
        """The optimizer of one cell.

        Args:
            config: of the cell, complete but for its optimizer: what the experiment says of it, or any.
        """
        if self.searching:
            return Choice(_suited(config, config.optimizer if reference.optimizer is not None else None))
        path = self.path(reference)
        command = f"'bwbench tune {self.experiment}'"
        if not path.exists():
            return _refused(f"{reference.file}: no such file (looked for {path}); {command} makes it")
        try:
            table = read_table(path, config.plugins)
        except ConfigError as error:
            texts = [f"optimizer.tuned: {problem}" for problem in error.problems]
            return Choice(None, tuple(Finding(_LOC, text) for text in texts))
        options = tuned_options(self.tune, config)
        rows = table.find(setting_of(config), options)
        if not rows:
            setting, several = setting_of(config), [row for row in table.rows if not row.one_seed]
            others = [row for row in several if row.learns == learning_of(setting, row.entry.options)]
            if others:
                has, wants = (show(found) if found else "nothing" for found in (others[0].entry.options, options))
                text = f"{reference.file} has arm {others[0].entry.arm!r} with {has} tuned beside the rate, not {wants}"
                return _refused(f"{text}; {command} adds it")
            return _refused(f"{_lacking(table, config, reference.file)}; {command} adds it")
        asked = _suited(config, config.optimizer if reference.optimizer is not None else None)
        same = [row for row in rows if without_rate(row.optimizer) == without_rate(asked)]
        has = ", ".join(show(_short(row.optimizer)) for row in rows)
        if reference.optimizer is not None and not same:
            text = f"{reference.file} has {has} for arm {rows[0].entry.arm!r}, and not {show(_short(asked))}"
            return _refused(f"{text}; {command} adds it")
        rows = same or rows  # of several that a bare table has it is the one that a search would tune
        if len(rows) > 1:
            text = f"{reference.file} has several optimizers for arm {rows[0].entry.arm!r} ({has}); say which"
            return _refused(f"{text}: {{tuned: {{file: {reference.file}, optimizer: …}}}}, without lr")
        return self._chosen(rows[0], table, config, reference.file, command)

    def _chosen(self, row: Row, table: TunedTable, config: CellConfig, file: str, command: str) -> Choice:
        entry, seed = row.entry, table.content.seed
        if entry.lr is None:
            text = f"the search for arm {entry.arm!r} in {file} found no rate: {entry.problem or 'it did not end'}"
            return _refused(f"{text}; {command} {'looks again' if entry.on_edge else 'goes on with it'}")
        tuned_with = {seed, *(trial.seed for trial in entry.trials if trial.seed is not None)}
        if taken := sorted(tuned_with & set(range(config.seed, config.seed + self.repeats))):
            text = f"seed {taken[0]} is one that {file} was tuned with, and tells nothing new; choose other seeds"
            return Choice(None, (Finding(("seed",), text),))
        notes = [f"learning rates from {file}"]
        where = f"arm {entry.arm!r} ({config.model.name} on {config.dataset.source.name}, {entry.nodes} node(s))"
        if row.one_seed:
            notes.append(
                f"{file} has rates that one seed decided, perhaps by luck; {command} searches anew, by several"
            )
        if entry.on_edge:
            grid = f"{entry.grid[0]:g} to {entry.grid[-1]:g}"
            text = f"{where}: the tuned learning rate {entry.lr:g} lies on the edge of the grid, {grid}: no result; "
            notes.append(f"{text}{command} goes on beyond it")
        if entry.target is not None and entry.expected[0] is None:
            notes.append(f"{where}: no learning rate reached the target while tuning; {entry.lr:g} had the lowest loss")
        return Choice(row.optimizer, (), tuple(notes), entry.chosen)


@functools.lru_cache(maxsize=256)
def _absolute(folder: Path, file: str) -> Path:
    return (folder / os.path.expanduser(file)).resolve()


def is_tuned(value: object) -> bool:
    """Whether what stands under ``optimizer`` names a table, rightly or wrongly."""
    return value == "tuned" or (isinstance(value, Mapping) and ("tuned" in value or value.get("name") == "tuned"))


def read_reference(value: Json) -> tuple[Reference | None, list[Finding]]:
    """The table named by what stands under ``optimizer``, or what is wrong with it."""
    try:
        spelling = split_spelling(value, "optimizer")
    except ValidationError:
        return None, [Finding(_LOC, f"optimizer: {show(value)}: 'tuned' stands alone; {_FORM}")]
    if isinstance(value, Mapping) and isinstance(table := value.get("tuned"), str):
        return Reference(table), []
    findings = [
        Finding((*_LOC, key), f"optimizer.tuned: {unknown_key(key, ('file', 'optimizer'))} W{_FORM[1:]}")
        for key in spelling.options
        if key not in ("file", "optimizer")
    ]
    if findings:
        return None, findings
    file, optimizer = spelling.options.get("file"), spelling.options.get("optimizer")
    if not isinstance(file, str) or not file:
        given = value["tuned"] if isinstance(value, Mapping) and "tuned" in value else file
        text = f"{show(given)} names no file" if given is not None else "the file is missing"
        findings.append(Finding(_LOC, f"optimizer.tuned: {text}; {_FORM}"))
        return None, findings
    try:
        rate = split_spelling(optimizer, "optimizer").options.get("lr") if optimizer is not None else None
    except ValidationError:
        rate = None  # validation says what is wrong
    if rate is not None:
        findings.append(Finding(_LOC, f"optimizer.tuned.optimizer: lr is what the table says; leave out {show(rate)}"))
    return Reference(file, optimizer), findings


def _suited(config: CellConfig, optimizer: Component | None = None) -> Component:
    """The optimizer to tune for an arm: the one given, but where the arm's own rules ask for another.

    An algorithm that belongs to some optimizers gets the first of these, whose rate decays as that of the one given;
    with a codec that keeps a momentum of its own there is none in the optimizer.

    Args:
        optimizer: None stands for SGD with a momentum of 0.9.
    """
    found = parse_component(USUAL, OPTIMIZERS) if optimizer is None else optimizer
    known = ALGORITHMS.load(config.algorithm.name).optimizers
    if known and found.name not in known:
        decay = {key: value for key, value in found.to_json().items() if key.startswith("decay")}
        return parse_component({known[0]: decay}, OPTIMIZERS)
    refused = any(COMPRESSIONS.load(codec.name).accepts_optimizer(found.options) for codec in config.compression)
    if refused and getattr(found.options, "momentum", None):
        return Component(found.name, found.options.model_copy(update={"momentum": 0.0, "nesterov": False}))
    return found


def with_rate(optimizer: Component, lr: float) -> Component:
    """The same optimizer with another learning rate."""
    return Component(optimizer.name, optimizer.options.model_copy(update={"lr": lr}))


def _short(optimizer: Component) -> JsonObject:
    options = optimizer.options.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {optimizer.name: {key: value for key, value in options.items() if key != "lr"}}


def _refused(text: str) -> Choice:
    return Choice(None, (Finding(_LOC, f"optimizer.tuned: {text}"),))


def _lacking(table: TunedTable, config: CellConfig, file: str) -> str:
    """What the table has in place of the row that a cell needs."""
    wanted, arm = setting_of(config), arm_name(config)
    same_arm = [row for row in table.rows if all(row.setting[key] == wanted[key] for key in METHOD_KEYS)]
    if not same_arm:
        named = [row for row in table.rows if row.entry.arm == arm]
        if named:
            return f"{file} has arm {arm!r} with other settings: {_differences(named, wanted)}"
        has = ", ".join(dict.fromkeys(row.entry.arm for row in table.rows)) or "none"
        return f"{file} has no learning rate for arm {arm!r}; it has: {has}"
    return f"{file} has arm {arm!r}, but {_differences(same_arm, wanted)}"


def _differences(rows: Sequence[Row], wanted: Setting) -> str:
    """How the nearest of some rows differs from what is wanted."""
    nearest = min(rows, key=lambda row: sum(row.setting[key] != wanted[key] for key in wanted))
    found: list[str] = []
    for key, wants in wanted.items():
        has = nearest.setting[key]
        if isinstance(has, dict) and isinstance(wants, dict) and has.get("name") == wants.get("name"):
            inside = [name for name in {**has, **wants} if has.get(name) != wants.get(name)]
            found += [f"{key}.{name} {show(has.get(name))} and not {show(wants.get(name))}" for name in inside]
        elif has != wants:
            found.append(f"{key} {named(has)} and not {named(wants)}")
    return f"tuned for {', '.join(found)}"
