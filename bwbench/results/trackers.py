"""Cells as runs of programs that track trainings, TensorBoard and MLflow: each written by its own library, an extra.

The axis of every curve is samples, which arms with other batches share. A point also has a wall clock: the start of the
training plus its training clock, so that "relative" time in these programs is the time that bwbench compares.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from bwbench.base.errors import ConfigError, RecordError
from bwbench.records import CellFolder
from bwbench.records.lock import claim_of
from bwbench.records.schema import OUTCOMES, Event, Start, Step
from bwbench.results.analysis.cell_arrival import kept_curve
from bwbench.results.analysis.cells import DONE, PLANNED, RUNNING, UNFINISHED
from bwbench.results.analysis.export import export_cells

ParamValue: TypeAlias = str | float | bool
_CONFIG = "config."
_TAGS = ("experiment", "arm", "status", "reason", "composed", "host", "commit", "bwbench", "torch")
_OWN_TAG = "bwbench.id"
MLFLOW_FILE = "mlflow.db"
# In the words of ``mlflow.entities.RunStatus``; of a cell that runs a run is left as it is made: RUNNING.
_MLFLOW_STATUS = {DONE: "FINISHED", "interrupted": "KILLED", UNFINISHED: "KILLED"}
# MLflow's own limits.
_MOST_METRICS, _MOST_PARAMS, _LONGEST_TEXT = 1000, 100, 500


@dataclass(frozen=True)
class TrackedPoint:
    """A value, where it stands on both axes: samples over all nodes, and the training clock in seconds."""

    samples: int
    clock_s: float
    value: float


@dataclass(frozen=True)
class TrackedRun:
    """One cell in the words of trackers.

    Attributes:
        cell_id, name: of the cell; its name is that of its folder.
        status: as ``status.json`` has it; without one ``running`` where a process holds the cell, else ``unfinished``.
        began_unix_s: when training began; 0 where that was not recorded.
        params: the configuration, by dotted keys; varied: those in which the cells differ, and their arm.
        tags: what else is known in words.
        outcomes: what the cell came to, in SI units.
        curves: ``validation/accuracy``, ``train/loss`` and their like.
    """

    cell_id: str
    name: str
    experiment: str
    status: str
    began_unix_s: float
    params: Mapping[str, ParamValue]
    varied: Mapping[str, ParamValue]
    tags: Mapping[str, str]
    outcomes: Mapping[str, float]
    curves: Mapping[str, Sequence[TrackedPoint]]


def tracked_runs(cells: Sequence[CellFolder], refused: list[RecordError]) -> Iterator[TrackedRun]:
    """Every cell that has begun as a run; of those whose events cannot be read the reason goes to ``refused``."""
    rows = list(export_cells(cells))
    varying = {key for key in dict.fromkeys(key for row in rows for key in row if key.startswith(_CONFIG))
               if len({row.get(key) for row in rows}) > 1}  # fmt: skip
    for cell, row in zip(cells, rows, strict=True):
        if row["status"] == PLANNED:
            continue
        if row["status"] == UNFINISHED and claim_of(cell.path) is not None:
            row |= {"status": RUNNING}
        try:
            curves = dict(_curves(cell))
            began_unix_s = _began_unix_s(cell)
        except RecordError as error:
            refused.append(error)
            continue
        params = {key.removeprefix(_CONFIG): _param_value(value) for key, value in row.items()
                  if key.startswith(_CONFIG) and value is not None}  # fmt: skip
        varied = {key: value for key, value in params.items() if f"{_CONFIG}{key}" in varying}
        yield TrackedRun(
            cell_id=str(row["id"]),
            name=f"{row['slug']}-{row['id']}",
            experiment=str(row["experiment"]),
            status=str(row["status"]),
            began_unix_s=began_unix_s,
            params=params,
            varied={"arm": str(row["arm"]), **varied},
            tags={name: str(row[name]) for name in _TAGS if row[name] is not None},
            outcomes={name: float(value) for name in OUTCOMES
                      if isinstance(value := row[name], (int, float)) and not isinstance(value, bool)},
            curves=curves,
        )  # fmt: skip


def _param_value(value: object) -> ParamValue:
    return value if isinstance(value, (bool, int, float)) else str(value)


def _began_unix_s(cell: CellFolder) -> float:
    first = next(iter(cell.events().get(0, [])), None) if cell.digest is None else None
    if isinstance(first, Start) and first.time_unix_s is not None:
        return first.time_unix_s
    environment = cell.environment
    return 0.0 if environment is None or environment.time_unix_s is None else environment.time_unix_s


def _curves(cell: CellFolder) -> Iterator[tuple[str, list[TrackedPoint]]]:
    found: dict[str, list[TrackedPoint]] = {}
    for point in kept_curve(cell):
        for split, metrics in (("validation", point.metrics), ("test", point.test)):
            for name, value in metrics.items():
                if value is not None:
                    found.setdefault(f"{split}/{name}", []).append(TrackedPoint(point.samples, point.clock_s, value))
    if cell.digest is None:
        for name, at in _of_steps(cell.events()):
            found.setdefault(name, []).append(at)
    yield from found.items()


def _of_steps(events: Mapping[int, Sequence[Event]]) -> Iterator[tuple[str, TrackedPoint]]:
    """Of each step the mean loss of its ranks, the rate, the duration of the longest, and the bytes of all."""
    steps: dict[int, list[Step]] = {}
    for of_rank in events.values():
        for event in of_rank:
            if isinstance(event, Step):
                steps.setdefault(event.step, []).append(event)
    for step in sorted(steps):
        ranks = steps[step]
        samples, clock_s = ranks[0].samples, max(one.clock_s for one in ranks)
        losses = [one.loss for one in ranks if one.loss is not None]
        sent = [one.payload_bytes for one in ranks if one.payload_bytes is not None]
        values = {
            "train/loss": fmean(losses) if losses else None,
            "train/lr": ranks[0].lr,
            "train/step_s": max(one.duration_s for one in ranks),
            "train/payload_bytes": float(sum(sent)) if sent else None,
        }
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                yield name, TrackedPoint(samples, clock_s, value)


def write_tensorboard(runs: Iterable[TrackedRun], out: Path) -> int:
    """A folder ``EXPERIMENT/CELL`` of event files a run; its HPARAMS page has what varies, its TEXT page all settings.

    A run that was exported there before is replaced. Returns how many were written.

    Raises ConfigError where tensorboardX is not installed, OSError where the folder cannot be written.
    """
    try:
        from tensorboardX import SummaryWriter  # an extra
        from tensorboardX.summary import hparams  # likewise
    except ImportError as error:
        raise _missing("tensorboard", error) from None
    number = 0
    for run in runs:
        folder = out / run.experiment / run.name
        folder.mkdir(parents=True, exist_ok=True)
        for earlier in folder.glob("events.out.tfevents.*"):
            earlier.unlink()
        with SummaryWriter(str(folder)) as writer:
            outcomes = {f"outcome/{name}": value for name, value in run.outcomes.items()}
            for summary in hparams(dict(run.varied), outcomes):
                writer.file_writer.add_summary(summary, walltime=run.began_unix_s)
            writer.add_text("cell", _markdown({**run.tags, **run.params}), walltime=run.began_unix_s)
            end_s = max((points[-1].clock_s for points in run.curves.values()), default=0.0)
            for name, value in outcomes.items():
                writer.add_scalar(name, value, 0, walltime=run.began_unix_s + end_s)
            for name, points in run.curves.items():
                for at in points:
                    writer.add_scalar(name, at.value, at.samples, walltime=run.began_unix_s + at.clock_s)
        number += 1
    return number


def _markdown(settings: Mapping[str, ParamValue]) -> str:
    """A table of two columns; of a value the text alone, on one line."""
    lines = (f"| {key} | {' '.join(str(value).split()).replace('|', '&#124;')} |" for key, value in settings.items())
    return "\n".join(["| key | value |", "|---|---|", *lines])


def write_mlflow(runs: Iterable[TrackedRun], out: Path) -> int:
    """A database in ``out``, since MLflow gives its store of files up: an experiment for each of ours, a run a cell.

    A run that was exported there before is deleted, as MLflow deletes. Returns how many were written.

    Raises ConfigError where mlflow is not installed, OSError where the folder cannot be written, RecordError where
    MLflow refuses what is there already.
    """
    try:
        import alembic  # noqa: F401  # mlflow-skinny is without it, and says so late
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException  # an extra, as above
        from sqlalchemy.exc import SQLAlchemyError  # of mlflow's database
    except ImportError as error:
        raise _missing("mlflow", error) from None
    out.mkdir(parents=True, exist_ok=True)
    (out / MLFLOW_FILE).touch()  # mlflow would try for minutes where nothing can be written
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of every table that it makes
    number = 0
    try:
        client = MlflowClient(tracking_uri=f"sqlite:///{out.resolve() / MLFLOW_FILE}")
        for run in runs:
            _write_run(client, run, (out.resolve() / "artifacts" / run.experiment).as_uri())
            number += 1
    except (MlflowException, SQLAlchemyError) as error:
        why = str(error).strip().partition("\n")[0]
        raise RecordError(f"{out / MLFLOW_FILE}: mlflow cannot write its database: {why}; name another --out") from None
    return number


def _write_run(client: Any, run: TrackedRun, artifacts: str) -> None:
    """One run, in place of an earlier one of the same cell.

    Args:
        artifacts: where MLflow would put files of the experiment, else a folder where the command was started.
    """
    from mlflow.entities import Metric, Param  # an extra

    known = client.get_experiment_by_name(run.experiment)
    experiment = known.experiment_id if known is not None else client.create_experiment(run.experiment, artifacts)
    for earlier in client.search_runs([experiment], f"tags.`{_OWN_TAG}` = '{run.cell_id}'"):
        client.delete_run(earlier.info.run_id)
    began_ms = round(1000 * run.began_unix_s)
    tags = {_OWN_TAG: run.cell_id, **{name: value[:_LONGEST_TEXT] for name, value in run.tags.items()}}
    run_id = client.create_run(experiment, began_ms, tags, run.name).info.run_id
    metrics = [Metric(f"outcome/{name}", value, began_ms, 0) for name, value in run.outcomes.items()]
    for name, points in run.curves.items():
        metrics += [Metric(name, at.value, began_ms + round(1000 * at.clock_s), at.samples) for at in points]
    params = [Param(key, str(value)[:_LONGEST_TEXT]) for key, value in run.params.items()]
    for some in _in_parts(params, _MOST_PARAMS):
        client.log_batch(run_id, params=some)
    for some in _in_parts(metrics, _MOST_METRICS):
        client.log_batch(run_id, metrics=some)
    if run.status != RUNNING:
        end_ms = max((metric.timestamp for metric in metrics), default=began_ms)
        client.set_terminated(run_id, _MLFLOW_STATUS.get(run.status, "FAILED"), end_ms)


def _in_parts(values: Sequence[Any], most: int) -> Iterator[list[Any]]:
    left = iter(values)
    while part := list(islice(left, most)):
        yield part


def _missing(extra: str, error: ImportError) -> ConfigError:
    return ConfigError(f"--to {extra} needs {error.name}; 'pip install \"bwbench[{extra}]\"' brings it")


TRACKERS: Mapping[str, Callable[[Iterable[TrackedRun], Path], int]] = {
    "tensorboard": write_tensorboard,
    "mlflow": write_mlflow,
}
# What opens a folder of theirs.
VIEWERS = {
    "tensorboard": "tensorboard --logdir {folder}",
    "mlflow": f"mlflow ui --backend-store-uri sqlite:///{{folder}}/{MLFLOW_FILE}",
}
