"""The trainings behind a time to accuracy: to the target at full speed, a few steps on a link, or whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bwbench.experiment.config.experiment import why_not_composed
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import Parts, parts_of
from bwbench.methods.phases import timing_steps
from bwbench.records import CellFolder, read_events
from bwbench.records.cell_identity import identity
from bwbench.records.schema import Evaluation, Status
from bwbench.results.analysis.compose import compose
from bwbench.results.analysis.composition import Composition
from bwbench.running.run_cell import run_cell
from training_parts.arms import one_cell
from training_parts.pool import Pool
from training_parts.rates import Rates
from training_parts.workloads import Workload

LINKS = {"unshaped": "unshaped", "10 Mbit/s": "{bandwidth: 10 Mbit/s, latency: 2.5 ms}"}
LEAST_TIMED = 6  # steps of a kind; one of DistributedDataParallel takes 7 s on the slow link
RUN_LIMIT_S = 3600.0
ENDED = ("done", "diverged")  # by itself: no fault of the machine's

Events = dict[int, list[dict[str, Any]]]


class Runs:
    """Of one workload. What is there is not run again."""

    def __init__(self, workload: Workload, results: Path, niceness: int = 0) -> None:
        self._workload, self._results, self._niceness = workload, results, niceness
        self._pools: dict[int, Pool] = {}

    def cell(self, arm: str, lr: float, seed: int, link: str) -> Cell:
        """A method on a link."""
        return one_cell(self._workload.experiment(arm, lr, seed, LINKS[link]))

    def composed(self, cell: Cell) -> Composition:
        """The run as it would be, from one without a link and a few steps on it; ``limit.time`` does not end it."""
        parts = parts_of(cell)
        return compose(
            self.convergence(parts.convergence),
            [self._timing(parts)],
            parts.phases,
            parts.timing_phases,
            has_target=True,
            limit_s=None,
            seconds_per_byte=parts.seconds_per_byte,
            seed=cell.config.seed,
        )

    def convergence(self, cell: Cell) -> Events:
        """Events of all ranks of a training to the target: by workers that stay, no link, nothing timed."""
        folder = self._results / "convergence" / cell.id
        ended = folder / "ended.json"
        if not ended.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            nodes = cell.config.nodes
            pool = self._pools.setdefault(nodes, Pool(nodes, self._niceness))
            found = pool.train(cell, RUN_LIMIT_S, folder)
            if found["status"] == "failed":
                raise SystemExit(f"{cell.slug}: {found['reason']}")
            ended.write_text(json.dumps({"cell": cell.to_json(), "status": found["status"]}) + "\n")
        return {rank: read_events(folder / f"rank{rank}.jsonl") for rank in range(cell.config.nodes)}

    def converge(self, arms: Sequence[str], rates: Rates, seeds: Sequence[int]) -> None:
        """All trainings that composing needs, with a word about each."""
        for arm in arms:
            lr = rates.of(arm)
            for cell in (self.cell(arm, lr, seed, "10 Mbit/s") for seed in seeds):
                if why_not_composed(cell.config) is None:
                    events = self.convergence(parts_of(cell).convergence)
                    last = [event for event in events[0] if isinstance(event, Evaluation)][-1]
                    print(f"{arm:30} lr {lr:<7g} seed {cell.config.seed}: {last.samples} samples", flush=True)

    def whole(self, cell: Cell) -> dict[str, Any]:
        """status.json of a cell that is run as users run it."""
        return self._run(cell, self._results / "whole" / cell.folder_name).to_json()

    def close(self) -> None:
        """End the workers."""
        for pool in self._pools.values():
            pool.close()

    def _timing(self, parts: Parts) -> Events:
        """A few steps on the link, for all seeds the same: what a step takes does not hang on the seed."""
        limit = parts.timing.config.limit
        samples = timing_steps(parts.timing_phases, LEAST_TIMED) * parts.timing.config.global_batch
        config = parts.timing.config.model_copy(
            update={"limit": limit.model_copy(update={"samples": min(samples, limit.samples)}), "seed": 0}
        )
        cell = replace(parts.timing, id=identity(config), config=config)
        folder = self._results / "timing" / cell.folder_name
        status = self._run(cell, folder)
        if status.status not in ENDED:
            raise SystemExit(f"{cell.slug} cannot be timed; the same command tries it again, and keeps what is there")
        return CellFolder(folder).events()

    def _run(self, cell: Cell, folder: Path) -> Status:
        status = CellFolder(folder).status
        if status is None or status.status not in ENDED:
            attempt = (status.attempt or 0) if status is not None else 0
            status = run_cell(PlannedCell(cell, folder, "missing", True, "asked for", attempt), RUN_LIMIT_S, Silent())
        if status.status not in ENDED:
            print(f"  {cell.slug}: {status.status}: {str(status.reason).splitlines()[0]}", file=sys.stderr)
        return status


class Silent:
    """Shows nothing of a running cell."""

    def cell_phase(self, cell: Cell, phase: str) -> None:
        """Nothing."""

    def cell_event(self, cell: Cell, rank: int, event: dict[str, Any]) -> None:
        """Nothing."""


class SilentSweep(Silent):
    """Shows nothing of a sweep either."""

    def cell_started(self, item: PlannedCell, number: int, total: int) -> None:
        """Nothing."""

    def cell_finished(self, item: PlannedCell, status: Status) -> None:
        """Nothing."""

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        """Nothing."""

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        """Nothing."""

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""
