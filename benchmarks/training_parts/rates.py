"""Learning rates, found by the same search for all methods: on an unshaped link, on a seed that is not reported."""

from __future__ import annotations

import json
import math
from pathlib import Path

from training_parts.arms import TUNING_SEED, best_lr, one_cell
from training_parts.pool import Pool
from training_parts.records import Records
from training_parts.workloads import Workload

LIMIT_S = 1500.0


class Rates:
    """Of one workload: the rate that needs the fewest samples to the target, ties by the loss at the end.

    Args:
        file: records of the trainings that tune; what is there is not run again.
        given: records of ``accuracy.py``, whose best rate (by validation loss) is taken where they have the method.
        untuned: the rate of every method, without a search.
    """

    def __init__(self, workload: Workload, file: Path, given: Path | None, untuned: float | None = None) -> None:
        self._workload, self._untuned = workload, untuned
        self._records = Records(file)
        self._given: dict[str, dict[float, float]] = {}
        for row in map(json.loads, given.read_text().splitlines() if given else []):
            if row["seed"] == TUNING_SEED and row["validation_loss"] is not None:
                self._given.setdefault(row["arm"], {})[row["lr"]] = row["validation_loss"]
        self._pools: dict[int, Pool] = {}

    def of(self, arm: str) -> float:
        """The rate of a method."""
        if self._untuned is not None:
            return self._untuned
        if arm in self._given:
            return min(self._given[arm], key=lambda lr: self._given[arm][lr])
        return best_lr(arm, lambda lr: self._cost(arm, lr))

    def close(self) -> None:
        """End the workers."""
        for pool in self._pools.values():
            pool.close()

    def _cost(self, arm: str, lr: float) -> tuple[float, float]:
        cell = one_cell(self._workload.experiment(arm, lr, TUNING_SEED, "unshaped", padded=False))
        row = self._records.by_id.get(cell.id)
        if row is None:
            nodes = cell.config.nodes
            found = self._pools.setdefault(nodes, Pool(nodes)).train(cell, LIMIT_S)
            last = next((e for e in reversed(found["evaluations"]) if e["split"] == "validation"), None)
            row = {"id": cell.id, "arm": arm, "lr": lr, "status": found["status"], "reason": found["reason"]}
            row["reached"] = bool(last and last["target_met"])
            row["steps"] = last["step"] if last else None
            row["loss"] = last["mean"]["loss"] if last and found["status"] == "done" else None
            if found["status"] != "failed":
                self._records.add(row)
        loss = row["loss"] if row["loss"] is not None else math.inf
        return (row["steps"] if row["reached"] else math.inf), loss
