"""Time to accuracy of every preset on a slow link and on none: which one is there first?

Four nodes, 10 Mbit/s, 2.5 ms. Workload `small`: fashion-mnist, cnn-large, 88 %. Workload `shared`: cifar10, resnet8,
with a declared step of 250 ms, whose computing is worth sharing. Evaluation every 2,000 samples. Learning rates are
tuned alike on an unshaped link, by samples to target on a seed that is not reported. A synchronous method that would
take longer than `--whole` seconds is composed: its steps to target on the unshaped link times its step time measured on
the slow one; ring-fp16 is run whole as well, once, to show the error of that.

Usage: python benchmarks/tta.py [--json FILE] [--quick] [--results DIR] [--workload small|shared] [--only PRESET …]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from training_parts.arms import grid_of
from training_parts.runs import Runs
from training_parts.steps_to_target import StepsToTarget
from training_parts.workloads import QUICK, WORKLOADS, Workload

from bwbench.config.presets import PRESETS

CHECKED = "ring-fp16"  # composed and run whole: the error of composing
NO_PEERS = ("single", "no-communication")
TIMED_BY_ITSELF = ("async",)  # its accuracy depends on the link, so that nothing can be composed
RATE = "10 Mbit/s"


def rows_of(
    workload: Workload, arms: list[str], seeds: tuple[int, ...], counted: StepsToTarget, runs: Runs, whole_s: float
) -> Iterator[dict[str, Any]]:
    """Two rows a method: unshaped and shaped."""
    for arm in arms:
        grid = grid_of(arm)
        lr = grid[len(grid) // 2] if len(seeds) == 1 else counted.tuned_lr(arm)
        steps = {seed: counted.steps(arm, lr, seed) for seed in seeds}
        common = {"workload": workload.name, "arm": arm, "lr": lr, "target": workload.target, "seeds": len(seeds)}
        reached = [count for count in steps.values() if count is not None]
        common |= {"steps_to_target": statistics.median(reached) if reached else None, "num_reached": len(reached)}
        yield {**common, "link": "unshaped", **centre(runs.whole(arm, lr, seeds, "unshaped"))}
        if arm in NO_PEERS:
            continue
        expected_s = runs.predicted_step_s(arm, lr) * (statistics.median(reached) if reached else math.inf)
        if arm in TIMED_BY_ITSELF or expected_s <= whole_s:
            yield {**common, "link": RATE, "composed": False, **centre(runs.whole(arm, lr, seeds, RATE))}
            continue
        step_s = runs.step_s(arm, lr, RATE)
        composed = {seed: None if count is None else count * step_s for seed, count in steps.items()}
        yield {**common, "link": RATE, "composed": True, "step_s": step_s, **centre(composed)}
        if arm == CHECKED:
            found = runs.whole(arm, lr, seeds[:1], RATE)
            row = {**common, "arm": f"{arm} (whole, seed {seeds[0]})", "link": RATE, "composed": False, **centre(found)}
            first, reference = found[seeds[0]], composed[seeds[0]]
            if first is not None and reference is not None:
                row["error_of_composing"] = reference / first - 1
            yield row


def centre(times_s: dict[int, float | None]) -> dict[str, Any]:
    """Median and extremes; a run that did not arrive counts as infinite, and is told."""
    values = sorted(math.inf if time_s is None else time_s for time_s in times_s.values())
    median_s = statistics.median(values)
    return {
        "times_s": [None if math.isinf(value) else round(value, 2) for value in values],
        "median_s": None if math.isinf(median_s) else median_s,
        "num_censored": sum(map(math.isinf, values)),
    }


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    median = "   > limit" if row["median_s"] is None else f"{row['median_s']:8.1f} s"
    single = ", ".join("> limit" if value is None else f"{value:.1f}" for value in row["times_s"])
    notes = " composed" if row.get("composed") else ""
    if "error_of_composing" in row:
        notes += f" (composing is off by {100 * row['error_of_composing']:+.1f} %)"
    return f"{row['workload']:7} {row['arm']:30} {row['link']:10} {median}  [{single}]  lr {row['lr']:g}{notes}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="digits, one seed, three methods, no tuning")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/out/tta"))
    parser.add_argument("--workload", choices=tuple(WORKLOADS), default="small")
    parser.add_argument("--only", nargs="*", metavar="PRESET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--whole", type=float, default=100.0, metavar="SECONDS", help="run whole what takes less")
    parser.add_argument("--count-only", action="store_true", help="tune and count steps; no timing, for a busy machine")
    options = parser.parse_args()
    workload = QUICK if options.quick else WORKLOADS[options.workload]
    results = Path(tempfile.mkdtemp()) if options.quick else options.results / workload.name
    arms = ["single", "ddp", "ring-fp16"] if options.quick else list(PRESETS)
    arms = [arm for arm in arms if not options.only or arm in options.only]
    counted, runs = StepsToTarget(workload, results / "steps.jsonl"), Runs(workload, results)
    seeds = tuple(range(1 if options.quick else options.seeds))
    try:
        if options.count_only:
            for arm in arms:
                lr = counted.tuned_lr(arm)
                print(arm, lr, [counted.steps(arm, lr, seed) for seed in seeds], flush=True)
            return
        rows = []
        for row in rows_of(workload, arms, seeds, counted, runs, options.whole):
            rows.append(row)
            print(shown(row), flush=True)
    finally:
        counted.close()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
