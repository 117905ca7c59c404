"""What there is: ``list`` what an experiment file may name, ``doctor`` what this machine can do, ``clean`` what is left
over on it, ``data`` its data sets."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE, CellTakenError, ConfigError
from bwbench.cli.command_help import Command, CommandGroup
from bwbench.cli.options import option
from bwbench.cli.output import new_table, print_json, size, stderr, stdout

if TYPE_CHECKING:
    from bwbench.base.registry import Entry, Registry
    from bwbench.experiment.plan.sending import NamedTraffic
    from bwbench.network.probe.machine import MachineFinding
    from bwbench.training.datasets.fetch import DownloadProgress, ReportProgress


NUM_PARAMETERS, NUM_NODES = 1_000_000, 4


def list_(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="algorithms, collectives, compressions, models, datasets, optimizers, weight_averages, partitions or "
            "figures.",
            show_default=False,
        ),
    ],
    json_: Annotated[bool, option("Print JSON, with every option and its default.", "--json")] = False,
    parameters: Annotated[
        int | None,
        option(
            f"Size of the model for the bytes: a square matrix and a vector of the rest. [{NUM_PARAMETERS:,}]",
            metavar="N",
            min=1,
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[
        int | None, option(f"Nodes that bytes are told for. [{NUM_NODES}]", metavar="N", min=2, show_default=False)
    ] = None,
) -> int:
    """List the names that an experiment file may use, built-in ones and those of installed plugins.

    Algorithms come with the payload that the busiest node sends in one step, by their default options.
    """
    from bwbench.base.explain import nearest
    from bwbench.base.registry import REGISTRIES  # entry points: importlib.metadata takes 10 ms

    if kind not in REGISTRIES:
        raise ConfigError(f"list {kind!r}: no such kind.{nearest(kind, REGISTRIES)} Known: {', '.join(REGISTRIES)}")
    of_algorithms = kind == "algorithms"
    if not of_algorithms and (parameters is not None or nodes is not None):
        raise ConfigError(f"list {kind}: --parameters and --nodes are about what algorithms send; leave them out")
    registry = REGISTRIES[kind]
    if of_algorithms:
        _list_algorithms(registry, parameters or NUM_PARAMETERS, nodes or NUM_NODES, as_json=json_)
    elif json_:
        print_json([_content(entry, registry) for entry in registry])
    else:
        table = new_table("name", "summary")
        for entry in registry:
            table.add_row(entry.name, entry.summary)
        stdout().print(table)
    return EXIT_OK


def _list_algorithms(registry: Registry, num_parameters: int, num_nodes: int, *, as_json: bool) -> None:
    """Presets, then the algorithms that are none, each with what it sends."""
    from bwbench.experiment.config.method_names import PRESETS

    others = [entry for entry in registry if entry.name not in PRESETS]
    about = {preset.name: preset.summary for preset in PRESETS.values()} | {one.name: one.summary for one in others}
    if as_json:
        axes = ("algorithm", "collective", "compression")
        contents: list[dict[str, object]] = [
            {"name": one.name, "summary": one.summary, "preset": dict(zip(axes, one.axes, strict=True))}
            for one in PRESETS.values()
        ]
        contents += [_content(entry, registry) for entry in others]
        targets: dict[str | None, str] = {entry.name: entry.target for entry in registry}
        for content, sent in zip(contents, _all_sent(about, num_parameters, num_nodes), strict=True):
            content |= {
                "algorithm": (algorithm := getattr(sent, "algorithm", None)),
                "class": targets.get(algorithm),
                **{name: getattr(sent, name, None) for name in ("collective", "codec", "payload_bytes_per_rank")},
                "num_parameters": num_parameters,
                "num_nodes": getattr(sent, "num_nodes", num_nodes),
            }
        print_json(contents)
        return
    bytes_column = f"sent a step ({num_parameters:,} parameters, {num_nodes} nodes)"
    table = new_table("name", bytes_column, "algorithm x collective x codec", "summary", right=(bytes_column,))
    for (name, summary), sent in zip(about.items(), _all_sent(about, num_parameters, num_nodes), strict=True):
        point = (sent.algorithm, sent.collective, sent.codec) if sent else ("", "", "")
        payload = size(sent.payload_bytes_per_rank if sent else None)
        table.add_row(name, payload, " x ".join(part or "?" for part in point), summary)
    stdout().print(table)


def _content(entry: Entry, registry: Registry) -> dict[str, object]:
    """A name with all that is said of it as JSON."""
    content: dict[str, object] = {"name": entry.name, "summary": entry.summary}
    if entry.provider != "bwbench":
        content["provider"] = entry.provider
    if registry.kind == "figure":  # figures take no options, and importing them is slow
        return content
    from bwbench.base.component import options_of

    try:
        found = options_of(registry.load(entry.name).Config)
    except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
        stderr().print(f"{registry.kind} {entry.name!r} cannot be loaded: {type(error).__name__}: {error}")
        return content | {"options": None}
    fields = ("name", "default", "required", "meaning")
    return content | {"options": [{field: getattr(option, field) for field in fields} for option in found]}


def _all_sent(names: Iterable[str], num_parameters: int, num_nodes: int) -> Iterator[NamedTraffic | None]:
    """What each sends by its default options; None where a broken package does not tell."""
    from bwbench.experiment.plan.sending import named_traffic

    for name in names:
        try:
            yield named_traffic(name, num_parameters, num_nodes)
        except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
            stderr().print(f"{name!r} cannot be asked what it sends: {type(error).__name__}: {error}")
            yield None


data = typer.Typer(cls=CommandGroup, help="Data sets: download them, say where they lie.", no_args_is_help=True)


def doctor(*, json: Annotated[bool, option("Print JSON instead of a table.", "--json")] = False) -> int:
    """Look at this machine: rights, namespaces, netem or relay, cores, what the relay carries here, leftovers, codecs.

    Exit status 3 where experiments cannot run.
    """
    from bwbench.network.probe.machine import examine_machine

    findings = [*examine_machine(), _codecs()]
    if json:
        print_json({"findings": [vars(finding) for finding in findings]})
    else:
        table = new_table("check", "verdict", "finding")
        for finding in findings:
            table.add_row(finding.check, finding.verdict, finding.text)
        stdout().print(table)
    return EXIT_UNFIT_MACHINE if any(finding.verdict == "unfit" for finding in findings) else EXIT_OK


def _codecs() -> MachineFinding:
    """Whether codecs run compiled."""
    from bwbench.methods.native import find
    from bwbench.network.probe.machine import MachineFinding

    library, words = find()
    if library is None:
        text = f"in Python, to the same bits and more slowly: {words}"
        return MachineFinding("codecs", "limited", text)
    return MachineFinding(
        "codecs", "ok", f"fp16, threshold, top-k and dgc are {words}; so are int8 and sign where torch adds up alike"
    )


def clean(
    results: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Also drop unfinished attempts below this folder.")
    ] = None,
    *,
    dry_run: Annotated[bool, option("Only say what would be removed.", "--dry-run")] = False,
) -> None:
    """Remove leftovers: processes of bwbench whose owner has ended, partial files, attempts that never finished.

    Finished cells, running ones and checkpoints are never touched, nor is work of yours that uses bwbench, or that you,
    torchrun or Slurm have started. Namespaces and qdiscs need no cleaning: they vanish
    with their processes.
    """
    from bwbench.network.probe.machine import end_leftovers, find_leftovers
    from bwbench.records import iter_cells
    from bwbench.records.lock import claim_of, claimed

    if results is not None and not results.is_dir():
        raise ConfigError(f"{results} is no folder; name a result folder, or nothing to clean the machine alone")
    leftovers = find_leftovers()
    for leftover in leftovers:
        print(f"process {leftover.pid}: {' '.join(leftover.info['cmdline'])}")
    removed = len(leftovers)
    if leftovers and not dry_run:
        end_leftovers(leftovers)
    for folder in iter_cells(results) if results is not None else ():
        if folder.is_packed or claim_of(folder.path) is not None:
            continue
        if folder.problem is not None:  # what belongs to it cannot be told
            print(f"left alone: {folder.problem}", file=sys.stderr)
            continue
        try:
            with contextlib.nullcontext() if dry_run else claimed(folder.path):
                for path in _left_in(folder.path):
                    print(path)
                    removed += 1
                    if not dry_run:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        except CellTakenError:  # a process has just begun to run it
            continue
    verb = "would be removed" if dry_run else "removed"
    stderr().print(f"{removed} leftover(s) {verb}" if removed else "nothing left over")


def _left_in(cell: Path) -> list[Path]:
    """What nobody needs of a cell that is not running."""
    from bwbench.records import CellFolder
    from bwbench.records.checkpoint import has_checkpoint

    folder = CellFolder(cell)
    found = list(cell.glob(".*.part"))
    if folder.status is None:
        return [*found, *(attempt for attempt in folder.attempts if not has_checkpoint(attempt))]
    return [*found, *folder.attempts[:-1]] if folder.status.status == "done" else found


@data.command("path", cls=Command)
def data_path() -> None:
    """Print the data folder: BWBENCH_DATA, else the user's cache."""
    from bwbench.training.datasets.dataset import data_folder

    typer.echo(data_folder())


@data.command("fetch", cls=Command)
def data_fetch(names: Annotated[list[str], typer.Argument(metavar="NAMES", help="Data sets, or 'all'.")]) -> None:
    """Download data sets from their official addresses into the data folder, checked and resumable.

    What is there already with the right checksum is not downloaded again.
    """
    from bwbench.base.registry import DATASETS  # entry points: importlib.metadata takes 10 ms
    from bwbench.training.datasets.dataset import data_folder
    from bwbench.training.datasets.fetch import fetch as fetch_files

    if "all" in names:
        names = [entry.name for entry in DATASETS if DATASETS.load(entry.name).files]
    if unknown := [name for name in names if name not in DATASETS]:
        raise ConfigError("\n".join(DATASETS.unknown(name) for name in unknown))
    folder = data_folder()
    for name in dict.fromkeys(names):
        files = DATASETS.load(name).files
        if not files:
            typer.echo(f"{name}: nothing to download", err=True)
            continue
        with open_display(name, sys.stderr) as report:
            brought = fetch_files(files, folder, report)
        said = f"{len(brought)} file{'s' * (len(brought) != 1)} downloaded to" if brought else "already in"
        typer.echo(f"{name}: {said} {folder}", err=True)


@contextlib.contextmanager
def open_display(dataset: str, stream: TextIO) -> Iterator[ReportProgress]:
    """A function that shows each progress it is given on ``stream``, until the context ends."""
    if not stream.isatty():
        announced: set[str] = set()

        def announce(progress: DownloadProgress) -> None:
            if progress.file.relative_path in announced:
                return
            announced.add(progress.file.relative_path)
            size = f"{progress.total_bytes / 1e6:.1f} MB" if progress.total_bytes is not None else "size unknown"
            print(f"{dataset}: downloading {progress.file.url} ({size})", file=stream, flush=True)

        yield announce
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(file=stream)) as bar:
        tasks: dict[str, TaskID] = {}

        def show(progress: DownloadProgress) -> None:
            path = progress.file.relative_path
            if path not in tasks:
                tasks[path] = bar.add_task(path, total=progress.total_bytes)
            bar.update(tasks[path], completed=progress.received_bytes, total=progress.total_bytes)

        yield show
