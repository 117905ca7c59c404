"""Does it train? Final accuracy and loss of every preset on a real data set, at equal samples, beside fp32.

fashion-mnist, cnn, 4 nodes, unshaped link. Learning rates are tuned alike: the same grid for all, on one seed that is
not reported, by the loss on the validation split. Then the same seeds for all. A difference is that of the same seed.

Usage: python benchmarks/accuracy.py [--json FILE] [--quick] [--records FILE] [--only PRESET …] [--seeds N]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from training_parts.arms import NODES, SEEDS, TUNING_SEED, best_lr, grid_of, is_adam, one_cell, optimizer_of
from training_parts.pool import Pool
from training_parts.records import Records

from bwbench.experiment.config.method_names import PRESETS
from bwbench.experiment.plan.cell import Cell

BASELINE = "ring"
LIMIT_S = 400.0
LEFT_OUT = ("single", "no-communication")

EXPERIMENT = """
name: accuracy
nodes: {nodes}
link: unshaped
model: {model}
dataset: {dataset}
batch_size: 32
algorithm: {arm}
optimizer: {optimizer}
evaluate: {{every: {samples} samples}}
limit: {{samples: {samples}}}
seed: {seed}
"""


def cell_of(arm: str, lr: float, seed: int, samples: int, model: str, dataset: str) -> Cell:
    """One training run."""
    return one_cell(
        EXPERIMENT.format(
            nodes=NODES,
            model=model,
            dataset=dataset,
            arm="ring" if arm == "adam" else arm,
            optimizer=optimizer_of(arm, lr),
            samples=samples,
            seed=seed,
        )
    )


class Study:
    """Runs what is missing and knows what was found."""

    def __init__(self, pool: Pool, records: Records, samples: int, model: str, dataset: str) -> None:
        self._pool, self._records = pool, records
        self._what = (samples, model, dataset)

    def result(self, arm: str, lr: float, seed: int) -> dict[str, Any]:
        """Final accuracy and loss of one training, from the records where they are there."""
        cell = cell_of(arm, lr, seed, *self._what)
        row = self._records.by_id.get(cell.id)
        if row is None:
            began = time.monotonic()
            found = self._pool.train(cell, LIMIT_S)
            row = {"id": cell.id, "arm": arm, "lr": lr, "seed": seed, "status": found["status"], **final(found)}
            row |= {"reason": found["reason"], "wall_s": round(time.monotonic() - began, 1)}
            if found["status"] != "failed":
                self._records.add(row)
            print(
                f"{arm:28} lr {lr:<7g} seed {seed:<5} {row['status']:9} {row['accuracy']} {row['reason']}", flush=True
            )
        return row

    def tuned_lr(self, arm: str) -> float:
        """The learning rate of the lowest validation loss on the tuning seed."""
        return best_lr(arm, lambda lr: loss_of(self.result(arm, lr, TUNING_SEED)))


def loss_of(row: dict[str, Any]) -> float:
    return row["validation_loss"] if row["validation_loss"] is not None else math.inf


def final(found: dict[str, Any]) -> dict[str, Any]:
    """The last evaluation of each split; None where the training diverged or failed."""
    last = {evaluation["split"]: evaluation["mean"] for evaluation in found["evaluations"]}
    done = found["status"] == "done"
    return {
        "accuracy": last["test"]["accuracy"] if done else None,
        "loss": last["test"]["loss"] if done else None,
        "validation_loss": last["validation"]["loss"] if done else None,
        "payload_bytes": found.get("payload_bytes"),
        "steps": found.get("step"),
    }


def rows_of(study: Study, arms: list[str], seeds: tuple[int, ...], quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each method, the baselines first."""
    baselines: dict[bool, dict[int, float]] = {}
    for arm in arms:
        grid = grid_of(arm)
        lr = grid[len(grid) // 2] if quick else study.tuned_lr(arm)
        found = {seed: study.result(arm, lr, seed) for seed in seeds}
        accuracies = {seed: row["accuracy"] for seed, row in found.items() if row["accuracy"] is not None}
        if arm in (BASELINE, "adam"):
            baselines[is_adam(arm)] = accuracies
        baseline = baselines.get(is_adam(arm), {})
        differences = [100 * (accuracies[seed] - baseline[seed]) for seed in accuracies if seed in baseline]
        rows = list(found.values())
        yield {
            "arm": arm,
            "lr": lr,
            "lr_on_edge": not quick and lr in (grid[0], grid[-1]),
            "num_seeds": len(seeds),
            "num_done": len(accuracies),
            "accuracy": mean(list(accuracies.values())),
            "accuracy_sd": statistics.stdev(accuracies.values()) if len(accuracies) > 1 else None,
            "loss": mean([row["loss"] for row in rows if row["loss"] is not None]),
            "difference_points": mean(differences),
            "difference_sd": statistics.stdev(differences) if len(differences) > 1 else None,
            "payload_bytes_per_step": mean(
                [row["payload_bytes"] / row["steps"] for row in rows if row["payload_bytes"] is not None]
            ),
        }


def mean(values: list[float]) -> float | None:
    return statistics.mean(values) if values else None


def shown(row: dict[str, Any]) -> str:
    if row["accuracy"] is None:
        return f"{row['arm']:28} lr {row['lr']:<7g} did not train ({row['num_done']} of {row['num_seeds']} seeds)"
    difference = "" if row["difference_points"] is None else f"{row['difference_points']:+6.2f} points"
    edge = "  lr at the edge of the grid" if row["lr_on_edge"] else ""
    return (
        f"{row['arm']:28} lr {row['lr']:<7g} accuracy {100 * row['accuracy']:.2f} %  loss {row['loss']:.4f}  "
        f"{difference}  {row['payload_bytes_per_step'] / 1e3:9.1f} kB a step{edge}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="digits, logistic, one seed, no tuning")
    parser.add_argument("--records", type=Path, default=Path("benchmarks/out/accuracy.jsonl"))
    parser.add_argument("--only", nargs="*", metavar="PRESET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=38_400)
    parser.add_argument("--nice", type=int, default=0)
    options = parser.parse_args()
    model, dataset = ("logistic", "digits") if options.quick else ("cnn", "fashion-mnist")
    samples = 6_400 if options.quick else options.samples
    records = Records(Path(tempfile.mkdtemp()) / "quick.jsonl" if options.quick else options.records)
    arms = [BASELINE, "adam", *(name for name in PRESETS if name not in (BASELINE, *LEFT_OUT))]
    if options.only:
        arms = [arm for arm in arms if arm in (BASELINE, "adam", *options.only)]
    pool = Pool(NODES, options.nice)
    try:
        study = Study(pool, records, samples, model, dataset)
        rows = list(rows_of(study, arms, SEEDS[: 1 if options.quick else options.seeds], options.quick))
    finally:
        pool.close()
    print(*map(shown, rows), sep="\n")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
