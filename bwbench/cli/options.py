"""Options declared once, as the fields of a dataclass, for every command that takes them."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from bwbench.base.errors import ConfigError
from bwbench.cli.command_help import literal

if TYPE_CHECKING:
    from bwbench.records import CellFolder
    from bwbench.records.own_and_published import Taken
    from bwbench.running.cluster.ray_executor import RayCluster
    from bwbench.running.sweep import SweepPlan


_Command = Callable[..., int]


def option(text: str, *names: str, **more: Any) -> Any:
    """An option: its help, its names where they are not the field's, and what else typer is to know of it.

    One with a value has a ``metavar``, which says what that is.
    """
    return typer.Option(*names, help=literal(text), **more)


def takes_options(
    without: Collection[str] = (), helps: Mapping[str, str] | None = None
) -> Callable[[_Command], _Command]:
    """A command in whose place of each parameter that is a dataclass the user sees the options that are its fields.

    The fields are annotated as typer's parameters are. The command gets the dataclass, filled from what the user said.

    Args:
        without: fields that are no option of this command; they keep their defaults.
        helps: what this command says of a field, where it is not what the others say.
    """

    def decorate(command: _Command) -> _Command:
        signature = inspect.signature(command, eval_str=True)
        shown: list[inspect.Parameter] = []
        names: dict[str, list[str]] = {}  # of the options that each dataclass is filled from
        for parameter in signature.parameters.values():
            kind = parameter.annotation
            if isinstance(kind, type) and is_dataclass(kind):
                expanded = [option for option in _options_of(kind) if option.name not in without]
                names[parameter.name] = [option.name for option in expanded]
                shown += [_saying(option, (helps or {}).get(option.name)) for option in expanded]
            else:
                shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def filled(**given: Any) -> int:
            for name, options in names.items():
                kind = signature.parameters[name].annotation
                given[name] = kind(**{option: given.pop(option) for option in options})
            return command(**given)

        filled.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]  # read by inspect
        filled.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return filled

    return decorate


@functools.cache
def _options_of(kind: type) -> tuple[inspect.Parameter, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    )


def _saying(option: inspect.Parameter, text: str | None) -> inspect.Parameter:
    """The option with another help."""
    if text is None:
        return option
    assert get_origin(option.annotation) is Annotated
    kind, info = get_args(option.annotation)
    assert isinstance(info, ParameterInfo)
    info = copy.copy(info)
    info.help = text
    return option.replace(annotation=Annotated[kind, info])


EXPERIMENTS = Path("experiments")
TUNING_SEED = 1000
MAX_WIDEN = 10

SetValues = Annotated[
    list[str] | None,
    option(
        "Another value for a key, in the words of the file: nodes=8, 'link.bandwidth=2 Mbit/s', optimizer.lr=0.1. "
        "In place of an axis of the matrix a list is the new axis: 'algorithm=[ring, ddp]'; one value ends it. "
        "Repeatable.",
        "--set",
        metavar="KEY=VALUE",
    ),
]
OnlyCells = Annotated[
    list[str] | None,
    option(
        "Only cells that have this value under a key of the file, or as arm, repeat, experiment, id or slug: "
        "arm=ring; one of several: 'arm=ring|ddp'. Keys of the link leave cells in that have none, such as single: "
        "'link.bandwidth=10 Mbit/s'. Repeatable; values of one key are alternatives, several keys hold together.",
        metavar="KEY=VALUE",
    ),
]
Results = Annotated[Path, option("Folder for results.", metavar="DIR")]
ResultsFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
]
WithPublished = Annotated[
    bool,
    option(
        "Take the published sets beside the runs of DIR as well (results/published); taken anyway where DIR holds no "
        "runs.",
        "--published",
    ),
]
_SHOWN_MATCHES = 8


@dataclass(frozen=True)
class SweepOptions:
    """Which cells run, and how: the options of ``sweep``, in the order of its help. Others take some of them."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="Experiment files (YAML), or folders of them.", show_default=False),
    ] = None
    set_: SetValues = None
    results: Results = Path("results")
    retry: Annotated[
        list[str] | None,
        option(
            "Run cells again that ended as failed, timeout, diverged or invalid; several as 'failed|timeout'. "
            "Repeatable.",
            metavar="STATUS",
        ),
    ] = None
    only: OnlyCells = None
    shard: Annotated[
        str | None, option("The I-th of N parts, from 1: one for each machine or array job.", metavar="I/N")
    ] = None
    fail_fast: Annotated[bool, option("Stop after the first cell that is not done.", "--fail-fast")] = False
    notify: Annotated[
        str | None, option("Run this with sh for every cell that is not done, and at the end.", metavar="CMD")
    ] = None
    order_seed: Annotated[int, option("Seed of the order of cells inside a block of repeats.", metavar="N")] = 0
    on: Annotated[
        str | None, option("Run cells on the machines of a Ray cluster: ray, or ray://HOST:PORT.", metavar="WHERE")
    ] = None
    cells_per_machine: Annotated[
        int | None,
        option("With --on: cells at a time on one machine, whose times disturb each other. [1]", metavar="N", min=1),
    ] = None
    mode: Annotated[
        str | None,
        option("Run every cell whole, or compose most of them; in place of the key `mode`.", metavar="full|composed"),
    ] = None
    part: Annotated[
        str | None,
        option(
            "Of composed cells only one kind of runs, and no cell yet: convergence, which a busy machine does not "
            "disturb, or timing, which it does. Cells that run whole belong to timing, virtual nodes to convergence.",
            metavar="convergence|timing",
        ),
    ] = None
    dry_run: Annotated[bool, option("Only show what would run, as `bwbench plan` does.", "--dry-run")] = False

    def planned(self) -> SweepPlan:
        """What is to be done; raises ConfigError for anything that is wrong."""
        from bwbench.base.explain import nearest
        from bwbench.experiment.config.experiment import MODES
        from bwbench.experiment.plan.assess import ENDED_UNDONE
        from bwbench.experiment.plan.composing import PART_KINDS
        from bwbench.running.sweep import Selection, plan_sweep

        if self.mode is not None and self.mode not in MODES:
            raise ConfigError(
                f"--mode {self.mode!r} is no mode.{nearest(self.mode, MODES)} Allowed: {', '.join(MODES)}"
            )
        if self.part is not None and self.part not in PART_KINDS:
            raise ConfigError(
                f"--part {self.part!r} is no kind of runs.{nearest(self.part, PART_KINDS)} Allowed: "
                f"{', '.join(PART_KINDS)}"
            )
        overrides = [*(self.set_ or []), *([f"mode={self.mode}"] if self.mode is not None else [])]
        retry = retried(self.retry, ENDED_UNDONE)
        selection = Selection.parse(self.only or [], self.shard)
        if not self.files and not EXPERIMENTS.is_dir():
            raise ConfigError(
                f"no FILES are named, and there is no folder {EXPERIMENTS} here, whose files are taken then; name "
                "experiment files (*.yaml) or folders of them; `bwbench init` writes a first one"
            )
        sweep = plan_sweep(self.files or [EXPERIMENTS], self.results, overrides, retry, selection, self.order_seed)
        if self.part is None:
            return sweep
        from bwbench.running.sweep.rounds import only_part

        return only_part(sweep, self.part)

    def elsewhere(self) -> RayCluster | None:
        """Where cells run, if not here; raises ConfigError where that cannot be."""
        if self.on is None:
            if self.cells_per_machine is not None:
                raise ConfigError("--cells-per-machine goes with --on; here, cells of several sweeps take turns")
            return None
        from bwbench.running.cluster.ray_executor import RayCluster, ray_address

        return RayCluster(ray_address(self.on), self.cells_per_machine or 1)


@dataclass(frozen=True)
class TuneOptions:
    """How learning rates are searched: the options of ``tune``, in the order of its help."""

    set_: Annotated[
        list[str] | None,
        option(
            "Another value for a key, in the words of the file: nodes=8, 'limit.samples=5000'. Repeatable.",
            "--set",
            metavar="KEY=VALUE",
        ),
    ] = None
    results: Annotated[Path, option("Folder for results; trainings lie in .tuning in it.", metavar="DIR")] = Path(
        "results"
    )
    output: Annotated[
        Path | None,
        option(
            "Table to write; by default the one that FILE names, or experiments/tuning/NAME.yaml.",
            "--output",
            "-o",
            metavar="YAML",
        ),
    ] = None
    seed: Annotated[
        int, option("First of the seeds of all trainings; none that is reported.", metavar="N", min=0, max=2**32 - 1)
    ] = TUNING_SEED
    widen: Annotated[
        int,
        option(
            "Powers of two to add at both ends of every grid, before it grows by itself.",
            metavar="N",
            min=0,
            max=MAX_WIDEN,
        ),
    ] = 0
    retry: Annotated[
        list[str] | None,
        option("Run trainings again that ended as failed, timeout or invalid. Repeatable.", metavar="STATUS"),
    ] = None
    dry_run: Annotated[bool, option("Only show what would run, and for how long.", "--dry-run")] = False
    json_: Annotated[bool, option("Print JSON.", "--json")] = False


def retried(retry: Sequence[str] | None, allowed: Sequence[str], hints: Mapping[str, str] | None = None) -> list[str]:
    """The statuses after --retry; raises ConfigError for anything that is none, with the hint of that word."""
    wanted = [name for group in retry or [] for name in group.split("|")]
    for name in wanted:
        if name not in allowed:
            hint = (hints or {}).get(name, "")
            raise ConfigError(f"--retry {name!r} is no status that can be retried; allowed: {', '.join(allowed)}{hint}")
    return wanted


def take(folder: Path, *, published: bool = False) -> Taken:
    """The cells that ``folder`` means. What that is, where published sets are near, is said in one line on stderr.

    Args:
        published: whether these were asked for.

    Raises ConfigError where there is no cell.
    """
    from bwbench.records.own_and_published import taken

    hint = "name a results folder or one experiment in it, or make one with `bwbench run FILE`"
    found = taken(folder, published=published)
    if not folder.is_dir() and not found.published:
        raise ConfigError(f"{folder} is a file; {hint}" if folder.exists() else f"there is no folder {folder}; {hint}")
    if next(found.cells(), None) is None:
        raise ConfigError(f"{folder} holds no records: no <experiment>/<cell>/cell.json in it; {hint}")
    if found.note:
        print(f"note: {found.note}", file=sys.stderr)
    return found


def find_cell(name: str, results: Path) -> Path:
    """Folder of the cell that ``name`` means: a path, whose id may be left out, or an id (or its start) or slug below
    ``results``.

    An own run of that name stands before published ones. Raises ConfigError where there is none, or more than one.
    """
    path = Path(name)
    if path.name == "cell.json" and os.path.lexists(path):  # whatever it is: that is said when it is read
        return path.parent
    if os.path.lexists(path / "cell.json"):
        return path

    from bwbench.records import cell_at, iter_cells

    if (found := cell_at(path)).is_packed:
        return found.path
    if path.parent != Path() and path.parent.is_dir():  # a slug in a folder that was named, without its id
        results, name = path.parent, path.name
    if not results.is_dir():
        raise ConfigError(f"{name!r} is no cell's folder, and there is no folder {results}; name one with --results")
    near = _called(name, iter_cells(results))
    what = "cells"
    if not near and (near := _called(name, iter_cells(results, published=True))):
        what = "published cells"
    if not near and next(iter_cells(results, published=True), None) is None:
        raise ConfigError(f"no cell {name!r} below {results}, which holds none at all; name a folder with --results")
    if not near:
        raise ConfigError(f"no cell {name!r} below {results}; `bwbench status {results}` lists what is there")
    if len(near) > 1:
        listed = "\n  ".join(_listed(near))
        raise ConfigError(f"{name!r} means {len(near)} {what}; name one by its id or folder:\n  {listed}")
    return near[0]


def _listed(folders: Sequence[Path]) -> list[str]:
    """A line a cell; of many a line an experiment, with the first of its cells."""
    if len(folders) <= _SHOWN_MATCHES:
        return list(map(str, folders))
    names: dict[Path, list[str]] = {}
    for folder in folders:
        names.setdefault(folder.parent, []).append(folder.name)
    lines = [f"{experiment}: {len(cells)}, {cells[0]} and so on" for experiment, cells in names.items()]
    more = len(lines) - _SHOWN_MATCHES
    return lines if more <= 0 else [*lines[:_SHOWN_MATCHES], f"and {more} more experiments"]


def _called(name: str, cells: Iterable[CellFolder]) -> list[Path]:
    """Folders of the cells of this id, slug or name; where there is none, of those whose id or slug begins so."""
    parts = [(cell.path, *cell.path.name.rpartition("-")[::2]) for cell in cells]  # <slug>-<id>
    exact = [folder for folder, slug, cell_id in parts if name in (cell_id, slug, folder.name)]
    return exact or [folder for folder, slug, cell_id in parts if cell_id.startswith(name) or slug.startswith(name)]
