"""Whole runs and timing runs through ``bwbench run``, so that links are verified and everything is recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.plan import estimate_cells
from training_parts.arms import NODES, one_cell
from training_parts.workloads import Workload

TIMED_STEPS = 6
LINKS = {"unshaped": "unshaped", "10 Mbit/s": "{bandwidth: 10 Mbit/s, latency: 2.5 ms}"}
RUN_LIMIT_S = 3600.0


@dataclass(frozen=True)
class Arrival:
    """Seconds of the training clock and optimizer steps to the target; None where it was not reached."""

    time_s: float | None
    steps: int | None


class Runs:
    """Of one workload; resumable, because ``bwbench run`` is."""

    def __init__(self, workload: Workload, results: Path) -> None:
        self._workload, self._results = workload, results

    def whole(self, arm: str, lr: float, seed: int, link: str) -> Arrival:
        """One training until the target."""
        cell = one_cell(self._workload.experiment(arm, lr, seed, LINKS[link]))
        status = self._run(self._workload.experiment(arm, lr, seed, LINKS[link]))
        samples = status.get("samples_to_target")
        steps = None if samples is None else samples // cell.config.global_batch
        return Arrival(status.get("time_to_target_s"), steps)

    def algorithm(self, arm: str, lr: float) -> str:
        """Name of the algorithm that a method stands for."""
        return one_cell(self._workload.experiment(arm, lr, 0, "unshaped")).config.algorithm.name

    def predicted_step_s(self, arm: str, lr: float) -> float:
        """What the plan expects of a step on the slow link."""
        cell = one_cell(self._workload.experiment(arm, lr, 0, LINKS["10 Mbit/s"]))
        return estimate_cells([cell])[cell.id].step_s

    def step_s(self, arm: str, lr: float, link: str) -> float:
        """Mean seconds of a step on a link, over a few steps."""
        samples = TIMED_STEPS * 32 * NODES
        status = self._run(self._workload.experiment(arm, lr, 0, LINKS[link], samples=samples))
        return float(status["training_clock_s"]) / int(status["steps"])

    def _run(self, experiment_yaml: str) -> dict[str, Any]:
        cell = one_cell(experiment_yaml)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tta.yaml"
            file.write_text(experiment_yaml)
            argv = [sys.executable, "-m", "bwbench.cli.main", "run", str(file), "--results", str(self._results)]
            argv += ["--retry", "failed|invalid|timeout"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_LIMIT_S)
        statuses = list((self._results / "tta").glob(f"*-{cell.id}/status.json"))
        if not statuses:
            raise SystemExit(f"{cell.slug} left no status:\n{done.stderr[-2000:]}")
        status: dict[str, Any] = json.loads(statuses[0].read_text())
        if status["status"] not in ("done", "diverged"):
            print(f"  {cell.slug}: {status['status']}: {status['reason'].splitlines()[0]}", file=sys.stderr)
        return status
