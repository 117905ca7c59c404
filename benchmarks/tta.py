"""Time to accuracy of every preset on a slow link and on none: which one is there first?

Four nodes, 10 Mbit/s, 2.5 ms. Workload `small`: fashion-mnist, cnn-large, 88 %. Workload `shared`: cifar10, resnet8,
with a declared step of 250 ms, whose computing is worth sharing. Evaluation every 2,000 samples. Learning rates are
tuned alike on an unshaped link, by samples to target on a seed that is not reported, or are those that accuracy.py has
found on the same data (`--rates`).

Every method that can be is composed: accuracy after k steps from trainings at full speed, one a seed, and what a step
of each kind takes from a few steps on the link. Whatever takes less than `--whole` seconds by that, and whatever cannot
be composed, is also run whole, link verified before and after; the row then says by how much composing was off.
`--converge` makes only the trainings at full speed, which may be done while the machine is busy.

Usage: python benchmarks/tta.py [--json FILE] [--quick] [--results DIR] [--workload small|shared] [--only PRESET …]
"""

from __future__ import annotations

import argparse
import contextlib
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
from training_parts.runs import ENDED, LINKS, Runs
from training_parts.workloads import QUICK, WORKLOADS, Workload

from bwbench.experiment.config.experiment import why_not_composed
from bwbench.experiment.config.presets import PRESETS

NO_PEERS = ("single", "no-communication")  # no link is between them
QUICK_LR = 0.4


def rows_of(
    workload: Workload,
    arms: list[str],
    links: list[str],
    seeds: tuple[int, ...],
    rates: Rates,
    runs: Runs,
    whole_s: float,
) -> Iterator[dict[str, Any]]:
    """A row for a method and link, and another one where it was run whole as well."""
    for arm in arms:
        lr = rates.of(arm)
        for link in links[: 1 if arm in NO_PEERS else None]:
            cells = [runs.cell(arm, lr, seed, link) for seed in seeds]
            row = {"workload": workload.name, "arm": arm, "lr": lr, "target": workload.target, "link": link}
            composed = None
            if why_not_composed(cells[0].config) is None:
                composed = composed_row(row, [runs.composed(cell) for cell in cells])
                yield composed
            if composed is None or (composed["median_s"] or math.inf) <= whole_s:
                ended = [status for status in map(runs.whole, cells) if status["status"] in ENDED]
                if not ended:
                    continue  # said by ``Runs``; the same command tries them again
                whole = whole_row(row, ended)
                if composed is not None and whole["median_s"] and composed["median_s"]:
                    whole["error_of_composing"] = composed["median_s"] / whole["median_s"] - 1
                yield whole


def composed_row(row: dict[str, Any], found: list[Any]) -> dict[str, Any]:
    """A method on a link, put together; with the mean seconds of a step."""
    step_s = statistics.mean(one.training_clock_s / one.steps for one in found)
    samples = [one.samples_to_target for one in found]
    intervals = [one.interval_s for one in found]
    row = row | {"composed": True, "step_s": step_s, "samples_to_target": samples, "intervals_s": intervals}
    return row | centre([one.time_to_target_s for one in found])


def whole_row(row: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, Any]:
    """A method on a link, run as users run it. ``seeds`` are fewer than asked for where the machine failed in some."""
    samples = [status["samples_to_target"] for status in found]
    wire = [status["wire_bytes_to_target"] for status in found]
    row = row | {"composed": False, "samples_to_target": samples, "wire_bytes_to_target": wire}
    return row | centre([status["time_to_target_s"] for status in found])


def centre(times_s: list[float | None]) -> dict[str, Any]:
    """All, in the order of seeds, and their median; a run that did not arrive counts as infinite, and is told."""
    median_s = statistics.median(math.inf if time_s is None else time_s for time_s in times_s)
    return {
        "seeds": len(times_s),
        "times_s": [None if time_s is None else round(time_s, 2) for time_s in times_s],
        "median_s": None if math.isinf(median_s) else median_s,
        "num_censored": times_s.count(None),
    }


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    median = "   > limit" if row["median_s"] is None else f"{row['median_s']:8.1f} s"
    single = ", ".join("> limit" if value is None else f"{value:.1f}" for value in row["times_s"])
    notes = "composed" if row["composed"] else "whole"
    if "error_of_composing" in row:
        notes += f" (composing is off by {100 * row['error_of_composing']:+.1f} %)"
    return f"{row['workload']:7} {row['arm']:30} {row['link']:10} {median}  [{single}]  lr {row['lr']:g}  {notes}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="digits, one seed, ring-fp16 on the link alone, no tuning")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/out/tta"))
    parser.add_argument("--workload", choices=tuple(WORKLOADS), default="small")
    parser.add_argument("--only", nargs="*", metavar="METHOD", help="presets, or YAML of an algorithm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--whole", type=float, default=60.0, metavar="SECONDS", help="run whole what takes less")
    parser.add_argument("--rates", type=Path, metavar="FILE", help="records of accuracy.py: its learning rates")
    parser.add_argument("--converge", action="store_true", help="the trainings without a link alone")
    options = parser.parse_args()
    workload = QUICK if options.quick else WORKLOADS[options.workload]
    arms = options.only or (["ring-fp16"] if options.quick else list(PRESETS))
    links = ["10 Mbit/s"] if options.quick else list(LINKS)
    seeds = tuple(range(1 if options.quick else options.seeds))
    rows = []
    with contextlib.ExitStack() as until_then:
        results = options.results / workload.name
        if options.quick:
            results = Path(until_then.enter_context(tempfile.TemporaryDirectory()))
        runs = until_then.enter_context(contextlib.closing(Runs(workload, results)))
        untuned = QUICK_LR if options.quick else None
        rates = until_then.enter_context(
            contextlib.closing(Rates(workload, results / "steps.jsonl", options.rates, untuned))
        )
        if options.converge:
            runs.converge(arms, rates, seeds)
            return
        for row in rows_of(workload, arms, links, seeds, rates, runs, options.whole):
            rows.append(row)
            print(shown(row), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
