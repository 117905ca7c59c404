"""One run at a time on an experiment's folder."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from bwbench.errors import ConfigError


@contextlib.contextmanager
def locked(experiment_folder: Path) -> Iterator[None]:
    """Hold an experiment's folder, made where it is missing; the lock dies with its holder.

    Raises ConfigError where another process holds it, OSError where the disk is full or not writable.
    """
    experiment_folder.mkdir(parents=True, exist_ok=True)
    with (experiment_folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another bwbench is running on {experiment_folder}; wait for it, or choose another --results"
            raise ConfigError(message) from None
        yield
