"""Searches as entries of a table, and the table as YAML that people read and commit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.plain_data import JsonObject
from bwbench.experiment.config.tune_block import given_options, with_options
from bwbench.experiment.config.tuned_table import (
    Made,
    Row,
    TableFile,
    TunedEntry,
    read_table,
    row_of,
    setting_of,
    without_rate,
)
from bwbench.records.environment import capture_environment
from bwbench.records.files import write_bytes_atomic
from bwbench.records.schema import Environment
from bwbench.results.analysis.caveats import commit_of, host_of
from bwbench.running.tuning.search import Search, SearchProgress
from bwbench.running.tuning.trainings import BestRate

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
_NOT_TEXT = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")  # to one YAML parser or another
_HEAD = """\
# Learning rates, found by 'bwbench tune': as many trainings for every arm, one search for arms that compute the same
# mean, on an unshaped link and on seeds that no report contains, by samples to the target on the validation split. What
# has no 'seeds' was decided by one seed, perhaps by luck. An experiment uses them with
#     optimizer: {tuned: FILE}
# Changed by hand it no longer says what was found; run 'bwbench tune' again instead.
"""


def entry_of(search: Search, found: SearchProgress) -> TunedEntry:
    """What a search has come to: a rate, or why there is none."""
    config, best = search.config, found.state.best
    sound = best is not None and not best.on_edge
    # Every option, so that defaults of a later version change nothing.
    options = {key: value for key, value in without_rate(config.optimizer).items() if key != "name"}
    return TunedEntry(
        arm=search.arm,
        arms=search.arms,
        **setting_of(config),
        optimizer={config.optimizer.name: options},
        lr=best.rate if best is not None and sound else None,
        problem=None if sound else _problem(search, found),
        seeds=_seeds_of(found),
        fitted=best is not None and sound and best.fitted,
        samples_to_target=round(best.samples) if best is not None and best.samples is not None else None,
        loss=best.loss if best is not None else None,
        on_edge=best is not None and best.on_edge,
        every_samples=config.evaluate.every_samples,
        limit_samples=config.limit.samples,
        grid=search.grid,
        options=search.options,
        chosen=_chosen(search, best) if best is not None and sound else {},
        trials=found.trials,
        made=_made(found.environments),
    )


def read_rows(path: Path, seed: int, plugins: tuple[str, ...]) -> tuple[Row, ...]:
    """What a table holds already; nothing where there is no such file.

    Raises ConfigError where the file is something else, or was made with another seed: one table has one.
    """
    if not path.exists():
        return ()
    try:
        table = read_table(path, plugins)
    except ConfigError as error:
        hint = f"the table would be written to {path}: move that file away, or choose another --output"
        raise ConfigError([*error.problems, Problem(hint)]) from None
    if table.content.seed != seed:
        text = f"{path} was tuned with seed {table.content.seed}, and a table has one seed"
        raise ConfigError(f"{text}; write --seed {table.content.seed}, or choose another --output")
    return table.rows


def settled(old: Sequence[Row], new: TunedEntry) -> TunedEntry:
    """The new entry, or the old one where nothing was trained for it; ``made`` tells of all trials, old ones too."""
    before = next((row.entry for row in old if row.key == row_of(new).key), None)
    if before is None:
        return new
    joined = {"arms": tuple(dict.fromkeys((*before.arms, *new.arms)))}
    if before.model_dump(exclude={"made", "arms"}) == new.model_dump(exclude={"made", "arms"}):
        return before.model_copy(update=joined)
    if {trial.id for trial in before.trials}.isdisjoint(trial.id for trial in new.trials):
        return new
    new = new.model_copy(update=joined)
    both = (before.made, new.made)
    made = Made(
        date=max(one.date for one in both),
        commit=_joined(one.commit or "" for one in both) or None,
        bwbench=_joined(one.bwbench for one in both),
        host=_joined(one.host for one in both),
    )
    return new.model_copy(update={"made": made})


def merged(old: Sequence[Row], new: Sequence[TunedEntry]) -> list[TunedEntry]:
    """The new entries, each in the place of an old one of the same search; then the others.

    An old entry of a search that did not end this time stays as it was. Those of one seed go where a search by several
    has found a rate for them.
    """
    fresh = {row_of(entry).key: entry for entry in new}
    found = {row.learns for entry in new if entry.lr is not None for row in [row_of(entry)]}
    pairs = [(row.entry, fresh.pop(row.key, row.entry)) for row in old if not (row.one_seed and row.learns in found)]
    return [*(before if after.lr is None and before.lr is not None else after for before, after in pairs),
            *fresh.values()]  # fmt: skip


def write_table(path: Path, experiment: str, seed: int, entries: Sequence[TunedEntry]) -> None:
    """Write the table by rename. Raises OSError where the disk is full or not writable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = as_yaml(TableFile(experiment=experiment, seed=seed, entries=tuple(entries)))
    write_bytes_atomic(path, text.encode())


def as_yaml(table: TableFile) -> str:
    """The text of the file: an entry a paragraph, a trial a line."""
    lines = [f"schema: {table.schema_}", f"experiment: {_flow(table.experiment)}", f"seed: {table.seed}"]
    lines.append("entries:" if table.entries else "entries: []")
    for entry in table.entries:
        content = entry.model_dump(mode="json")
        if entry.weight_average is None:  # as tables are that were made before there was any
            del content["weight_average"]
        trials = [_told(trial) for trial in content.pop("trials")]
        lines.append("")
        for number, (key, value) in enumerate(content.items()):
            lines.append(f"{'  ' if number else '- '}{key}: {_flow(value)}")
        lines.append("  trials:" if trials else "  trials: []")
        lines += [f"    - {_flow(trial)}" for trial in trials]
    return _HEAD + "\n".join(lines) + "\n"


def _told(trial: JsonObject) -> JsonObject:
    """A trial without what is usual."""
    return {key: value for key, value in trial.items() if (key, value) not in (("seed", None), ("options", {}))}


def shown(entry: TunedEntry) -> JsonObject:
    """An entry as ``--json`` prints it."""
    samples, loss = entry.expected
    return {
        **entry.model_dump(mode="json", exclude={"trials"}),
        "samples_to_target": samples,
        "loss": loss,
        "after": after(entry),
        "trials": [trial.model_dump(mode="json") for trial in entry.trials],
    }


def _chosen(search: Search, best: BestRate) -> JsonObject:
    """What the tuned options were found to be, those that stayed as the experiment gives them included."""
    return given_options(with_options(search.config, search.variants[best.variant]), tuple(search.options))


def _seeds_of(found: SearchProgress) -> int:
    """Seeds that decided; two at least, so that a search that did not end is not taken for one of one seed."""
    return max(2, len({trial.seed for trial in found.trials}))


def given(entry: TunedEntry) -> JsonObject:
    """What the experiment gave of the options that were tuned."""
    codecs = entry.compression if isinstance(entry.compression, list) else [entry.compression]
    parts = [part for part in (entry.algorithm, entry.collective, *codecs) if isinstance(part, dict)]
    return {name: value for part in parts for name, value in part.items() if name in entry.options}


def after(entry: TunedEntry) -> list[JsonObject]:
    """How few samples the best of the first so many trainings needed, where that has changed, and what was found.

    One training is a lucky one more easily than a mean: numbers before the last say what more of them were good for.
    """
    found: list[JsonObject] = []
    best: int | None = None
    for number, trial in enumerate(entry.trials, 1):
        samples = trial.samples_to_target if trial.status == "done" else None
        if samples is not None and (best is None or samples < best):
            best = samples
            found.append({"trainings": number, "samples_to_target": samples, "lr": trial.lr, "options": trial.options})
    if entry.lr is not None:
        whole: JsonObject = {"lr": entry.lr, "options": entry.chosen}
        found.append({"trainings": len(entry.trials), "samples_to_target": entry.expected[0], **whole})
    return found


def _problem(search: Search, found: SearchProgress) -> str:
    if found.failed:
        statuses = "|".join(sorted({trial.status for trial in found.failed}))
        rates = ", ".join(f"{trial.lr:g} ({trial.status}, cell {trial.id})" for trial in found.failed)
        return f"trials ended badly at {rates}; --retry {statuses} runs them again"
    if found.state.missing:
        return f"{len(found.state.missing)} training(s) have not run"
    if found.state.best is not None:
        grid = f"{search.grid[0]:g} to {search.grid[-1]:g}"
        return f"the best rate, {found.state.best.rate:g}, lies on the edge of the grid, {grid}; --widen 2 looks beyond"
    return "the training diverges at every rate that was tried"


def _made(environments: Sequence[Environment]) -> Made:
    """When and by what the trials ran, whenever the table is written; several where they were unlike."""
    found = environments or [capture_environment()]
    last_s = max(environment.time_unix_s or 0.0 for environment in found)
    return Made(
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last_s)),
        commit=_joined(map(commit_of, found)) or None,
        bwbench=_joined(environment.bwbench or "" for environment in found),
        host=_joined(map(host_of, found)),
    )


def _joined(values: Iterable[str]) -> str:
    """All different ones; a value may be such a list itself."""
    return ", ".join(sorted({one for value in values for one in value.split(", ") if one}))


def _flow(value: object) -> str:
    """A value on one line of YAML. Text is quoted wherever any parser could take it for something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)
