"""Time to accuracy of every preset on a slow link and on none: which one is there first?

Four nodes, 10 Mbit/s, 2.5 ms. Workload `small`: fashion-mnist, cnn-large, 88 %. Workload `shared`: cifar10, resnet8,
with a declared step of 250 ms, whose computing is worth sharing. Evaluation every 2,000 samples. Learning rates are
tuned alike on an unshaped link, by samples to target on a seed that is not reported, or are those that accuracy.py has
found on the same data (`--rates`). A synchronous method that would take longer than `--whole` seconds is composed: its
steps to target on the unshaped link times its step time measured on the slow one; powersgd, which is fast enough, is
composed as well, to show the error of that. Only methods whose steps are all alike (every-step) are composed: a few
steps of the others hold no round, or nothing but their warm-up. Where these would take too long the row says so.

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

from training_parts.rates import Rates
from training_parts.runs import Arrival, Runs
from training_parts.workloads import QUICK, WORKLOADS, Workload

from bwbench.config.presets import PRESETS

CHECKED = "powersgd"  # composed and run whole: the error of composing
NO_PEERS = ("single", "no-communication")
COMPOSABLE = "every-step"
TIMED_BY_ITSELF = ("async",)  # its accuracy depends on the link, and bytes go by time: no prediction
RATE = "10 Mbit/s"


def rows_of(
    workload: Workload, arms: list[str], seeds: tuple[int, ...], rates: Rates, runs: Runs, whole_s: float
) -> Iterator[dict[str, Any]]:
    """Two rows a method: unshaped and shaped."""
    for arm in arms:
        lr = rates.of(arm)
        unshaped = {seed: runs.whole(arm, lr, seed, "unshaped") for seed in seeds}
        steps = [found.steps for found in unshaped.values() if found.steps is not None]
        common = {"workload": workload.name, "arm": arm, "lr": lr, "target": workload.target, "seeds": len(seeds)}
        common |= {"steps_to_target": statistics.median(steps) if steps else None}
        yield {**common, "link": "unshaped", "composed": False, **centre(times_of(unshaped))}
        if arm in NO_PEERS:
            continue
        expected_s = runs.predicted_step_s(arm, lr) * (statistics.median(steps) if steps else math.inf)
        whole = arm in TIMED_BY_ITSELF or expected_s <= whole_s
        if whole:
            shaped = times_of({seed: runs.whole(arm, lr, seed, RATE) for seed in seeds})
            yield {**common, "link": RATE, "composed": False, **centre(shaped)}
        composable = runs.algorithm(arm, lr) == COMPOSABLE
        if not whole and not composable:
            yield {**common, "link": RATE, "composed": False, "too_long_s": expected_s, **centre({})}
        elif not whole or arm == CHECKED:
            step_s = runs.step_s(arm, lr, RATE)
            composed = {seed: None if found.steps is None else found.steps * step_s for seed, found in unshaped.items()}
            row = {**common, "link": RATE, "composed": True, "step_s": step_s, **centre(composed)}
            if whole and centre(shaped)["median_s"] and row["median_s"]:
                row["error_of_composing"] = row["median_s"] / centre(shaped)["median_s"] - 1
            yield row


def times_of(found: dict[int, Arrival]) -> dict[int, float | None]:
    return {seed: arrival.time_s for seed, arrival in found.items()}


def centre(times_s: dict[int, float | None]) -> dict[str, Any]:
    """Median and extremes; a run that did not arrive counts as infinite, and is told."""
    values = sorted(math.inf if time_s is None else time_s for time_s in times_s.values())
    median_s = statistics.median(values) if values else math.inf
    return {
        "times_s": [None if math.isinf(value) else round(value, 2) for value in values],
        "median_s": None if math.isinf(median_s) else median_s,
        "num_censored": sum(map(math.isinf, values)),
    }


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    median = "   > limit" if row["median_s"] is None else f"{row['median_s']:8.1f} s"
    if "too_long_s" in row:
        median = f"not run, some {row['too_long_s']:.0f} s expected: --whole"
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
    parser.add_argument("--only", nargs="*", metavar="METHOD", help="presets, or YAML of an algorithm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--whole", type=float, default=180.0, metavar="SECONDS", help="run whole what takes less")
    parser.add_argument("--rates", type=Path, metavar="FILE", help="records of accuracy.py: its learning rates")
    options = parser.parse_args()
    workload = QUICK if options.quick else WORKLOADS[options.workload]
    results = Path(tempfile.mkdtemp()) if options.quick else options.results / workload.name
    arms = ["single", "ddp", "ring-fp16"] if options.quick else list(PRESETS)
    arms = options.only or arms
    runs, rates = Runs(workload, results), Rates(workload, results / "steps.jsonl", options.rates)
    seeds = tuple(range(1 if options.quick else options.seeds))
    rows = []
    try:
        for row in rows_of(workload, arms, seeds, rates, runs, options.whole):
            rows.append(row)
            print(shown(row), flush=True)
    finally:
        rates.close()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
