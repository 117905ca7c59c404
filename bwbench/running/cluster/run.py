"""A sweep whose cells run on the machines of a cluster."""

from __future__ import annotations

import contextlib
import fcntl
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bwbench.records.disk import full_disk_said
from bwbench.running.cluster.loop import ClusterLoop
from bwbench.running.cluster.machines import representatives
from bwbench.running.cluster.ray_address import ray_address
from bwbench.running.cluster.ray_pool import ray_pool
from bwbench.running.sweep import SweepPlan
from bwbench.running.sweep.loop import Account

_MARKER = ".seen-from-"


@dataclass(frozen=True)
class Elsewhere:
    """Where cells run if not on this machine.

    Attributes:
        address: of a Ray cluster, as Ray takes it.
        cells_per_machine: at the same time.
    """

    address: str
    cells_per_machine: int = 1

    @classmethod
    def parse(cls, on: str, cells_per_machine: int) -> Elsewhere:
        """Read ``--on``; raises ConfigError where that is no place, or Ray is not installed."""
        return cls(ray_address(on), cells_per_machine)

    def run_sweep(self, sweep: SweepPlan, predicted_s: Mapping[str, float], account: Account) -> None:
        """Run every cell of a frozen sweep that has to; returns once all are settled.

        Raises:
            UnfitMachineError: no cluster answers, no machine of it can run what is left, or the disk is full.
            KeyboardInterrupt: handed on after the running cells were ended.
        """
        todo = sweep.todo
        if not todo:
            return
        cells = representatives(item.cell for item in todo)
        with _marked(sweep.results) as (marker, token), ray_pool(self.address, marker, token, cells) as pool:
            ClusterLoop(pool, account, predicted_s, self.cells_per_machine).work_through(todo)


@contextlib.contextmanager
def _marked(results: Path) -> Iterator[tuple[str, str]]:
    """A file in the results folder, and what is in it: a machine that can read it sees this folder.

    Markers of sweeps that were killed are removed; the lock tells them from those in use.
    """
    token = secrets.token_hex(16)
    marker = results.absolute() / f"{_MARKER}{token}"
    with full_disk_said(results):
        results.mkdir(parents=True, exist_ok=True)
        for old in results.glob(f"{_MARKER}*"):
            with contextlib.suppress(OSError), old.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                old.unlink()
        with marker.open("x", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(token)
            file.flush()
            try:
                yield str(marker), token
            finally:
                marker.unlink(missing_ok=True)
