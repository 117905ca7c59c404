"""Commands about this machine: ``doctor`` what it can do, ``clean`` what is left over on it, ``data`` its data sets."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE, CellTakenError, ConfigError
from bwbench.cli.option_classes import option
from bwbench.cli.output import new_table, print_json, stderr, stdout

if TYPE_CHECKING:
    from bwbench.training.datasets.fetch import DownloadProgress, ReportProgress

data = typer.Typer(help="Data sets: download them, say where they lie.", no_args_is_help=True)


def doctor(*, json: Annotated[bool, option("Print JSON instead of a table.", "--json")] = False) -> int:
    """Look at this machine: rights, namespaces, netem or relay, cores, what the relay can carry here, leftovers.

    Exit status 3 where experiments cannot run.
    """
    from bwbench.network.probe.machine import examine_machine

    findings = examine_machine()
    if json:
        print_json({"findings": [vars(finding) for finding in findings]})
    else:
        table = new_table("check", "verdict", "finding")
        for finding in findings:
            table.add_row(finding.check, finding.verdict, finding.text)
        stdout().print(table)
    return EXIT_UNFIT_MACHINE if any(finding.verdict == "unfit" for finding in findings) else EXIT_OK


def clean(
    results: Annotated[Path | None, typer.Argument(help="Also drop unfinished attempts below this folder.")] = None,
    *,
    dry_run: Annotated[bool, option("Only say what would be removed.", "--dry-run")] = False,
) -> None:
    """Remove leftovers: processes of bwbench whose parent is gone, partial files, attempts that never finished.

    Finished cells, running ones and checkpoints are never touched. Namespaces and qdiscs need no cleaning: they vanish
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


@data.command("path")
def data_path() -> None:
    """Print the data folder: BWBENCH_DATA, else the user's cache."""
    from bwbench.training.datasets.folder import data_folder

    typer.echo(data_folder())


@data.command("fetch")
def data_fetch(names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Data sets, or 'all'.")]) -> None:
    """Download data sets from their official addresses into the data folder, checked and resumable.

    What is there already with the right checksum is not downloaded again.
    """
    from bwbench.base.registry import DATASETS  # entry points: importlib.metadata takes 10 ms
    from bwbench.training.datasets.fetch import fetch as fetch_files
    from bwbench.training.datasets.folder import data_folder

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
        yield _line_for_each_file(dataset, stream)
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


def _line_for_each_file(dataset: str, stream: TextIO) -> ReportProgress:
    announced: set[str] = set()

    def show(progress: DownloadProgress) -> None:
        if progress.file.relative_path in announced:
            return
        announced.add(progress.file.relative_path)
        size = f"{progress.total_bytes / 1e6:.1f} MB" if progress.total_bytes is not None else "size unknown"
        print(f"{dataset}: downloading {progress.file.url} ({size})", file=stream, flush=True)

    return show
