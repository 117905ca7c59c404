"""How a download shows itself: a bar on a terminal, a line a file elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from bwbench.training.datasets.fetch import DownloadProgress, ReportProgress


@contextmanager
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
