"""How many steps a method needs on an unshaped link, and with which learning rate: no timing, any machine will do."""

from __future__ import annotations

import math
from pathlib import Path

from training_parts.arms import TUNING_SEED, best_lr, one_cell
from training_parts.pool import Pool
from training_parts.records import Records
from training_parts.workloads import Workload

LIMIT_S = 1500.0


class StepsToTarget:
    """Answers from its records, and trains where they have none."""

    def __init__(self, workload: Workload, file: Path) -> None:
        self._workload = workload
        self._records = Records(file)
        self._pools: dict[int, Pool] = {}

    def tuned_lr(self, arm: str) -> float:
        """The learning rate that needs the fewest samples on the tuning seed; ties by the loss at the end."""
        return best_lr(arm, lambda lr: self._cost(arm, lr))

    def steps(self, arm: str, lr: float, seed: int) -> int | None:
        """Optimizer steps until the first evaluation that meets the target; None where none did."""
        row = self._row(arm, lr, seed)
        return row["steps"] if row["reached"] else None

    def close(self) -> None:
        """End the workers."""
        for pool in self._pools.values():
            pool.close()

    def _cost(self, arm: str, lr: float) -> tuple[float, float]:
        row = self._row(arm, lr, TUNING_SEED)
        loss = row["loss"] if row["loss"] is not None else math.inf
        return (row["steps"] if row["reached"] else math.inf), loss

    def _row(self, arm: str, lr: float, seed: int) -> dict[str, object]:
        cell = one_cell(self._workload.experiment(arm, lr, seed, "unshaped", padded=False))
        row = self._records.by_id.get(cell.id)
        if row is None:
            nodes = cell.config.nodes
            found = self._pools.setdefault(nodes, Pool(nodes)).train(cell, LIMIT_S)
            last = next((e for e in reversed(found["evaluations"]) if e["split"] == "validation"), None)
            row = {
                "id": cell.id,
                "arm": arm,
                "lr": lr,
                "seed": seed,
                "status": found["status"],
                "reason": found["reason"],
                "reached": bool(last and last["target_met"]),
                "steps": last["step"] if last else None,
                "loss": last["mean"]["loss"] if last and found["status"] == "done" else None,
            }
            if found["status"] != "failed":
                self._records.add(row)
        return row
