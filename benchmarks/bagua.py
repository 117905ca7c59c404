"""Steps of sixteen nodes beside those that Bagua's authors measured: records of experiments/real-size-*.yaml.

A row a method and bandwidth: seconds of a step here, as a multiple of the ring's on that link, and the same of the
published iteration where there is one. The published ones are of BERT-large on sixteen machines with eight V100 each,
seconds of an epoch of 115 iterations, read off a figure to 2 % (Gan et al. 2021, arXiv 2107.01499); ``ring`` stands
beside their PyTorch DDP, ``bytegrad`` beside their 8-bit gradients. Nothing here is fitted to them. A machine there
averages among its GPUs first, which takes time that a node here does not need.

Exit status 1 where two methods of one link are published more than 10 % apart and stand here in the other order, or
where there are no runs.

Usage: python benchmarks/bagua.py [RESULTS …] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bwbench.base.errors import RecordError
from bwbench.base.units import BANDWIDTH
from bwbench.records import iter_cells
from bwbench.results.analysis.cells import DONE, cell_row
from bwbench.results.analysis.statistics import number

HERE = Path(__file__).parent / "records"
RESULTS = [HERE / f"real-size-{model}" for model in ("vgg16", "resnet50", "bert-large")]
ITERATIONS = 115
APART = 1.1
MODEL = "bert-large"
EPOCHS_S = {  # of that model, by method as it is called here, and Gbit/s
    "ring": {1: 2590, 2: 1290, 4: 645, 8: 325},
    "bytegrad": {1: 699, 2: 349, 4: 174},
    "decentralized-shift-one": {1: 1505, 2: 795, 4: 398},
    "low-precision-decentralized": {1: 728, 2: 370},
}


COLUMNS = (("step_s", 7, " s"), ("ratio", 9, ""), ("published_s", 9, " s"), ("published_ratio", 9, ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="*", default=RESULTS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="the same: records are read in a second")
    options = parser.parse_args()
    try:
        found = [row for results in options.results for row in rows(results)]
    except RecordError as error:
        sys.exit(f"{error}; `bwbench run experiments/real-size-bert-large.yaml` makes results/real-size-bert-large")
    print(f"{'model':<12}{'bandwidth':>12}  {'method':<30}{'step':>9}{'of ring':>9}{'published':>11}{'of ring':>9}")
    for row in found:
        numbers = "".join(
            f"{row[key]:>{width}.3g}{unit}" if row[key] else f"{'-':>{width + len(unit)}}"
            for key, width, unit in COLUMNS
        )
        print(f"{row['model']:<12}{BANDWIDTH.format(row['bandwidth_bps']):>12}  {row['arm']:<30}{numbers}")
    other = others(found)
    for line in other:
        print(line)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(not found or bool(other))


def rows(results: Path) -> list[dict[str, Any]]:
    """A row each method and link, slowest link first, fastest method first; the mean of its repeats."""
    found: dict[tuple[str, float, str], list[float]] = defaultdict(list)
    for cell in iter_cells(results):
        row = cell_row(cell)
        clock_s, steps, bandwidth_bps = (number(row[key]) for key in ("steps_clock_s", "steps", "bandwidth_bps"))
        if row["status"] == DONE and clock_s and steps and bandwidth_bps:
            model, arm = str(cell.cell.config["model"]["of"]), cell.cell.arm.split("(")[0]
            found[model, bandwidth_bps, arm].append(clock_s / steps)
    means = {key: statistics.fmean(steps_s) for key, steps_s in found.items()}
    return [
        _row(model, bandwidth_bps, arm, step_s, means.get((model, bandwidth_bps, "ring")))
        for (model, bandwidth_bps, arm), step_s in sorted(means.items(), key=lambda one: (*one[0][:2], one[1]))
    ]


def _row(model: str, bandwidth_bps: float, arm: str, step_s: float, ring_s: float | None) -> dict[str, Any]:
    gbps = round(bandwidth_bps / 1e9)
    epoch_s, epoch_of_ring_s = (EPOCHS_S.get(name, {}).get(gbps) if model == MODEL else None for name in (arm, "ring"))
    return {
        "model": model,
        "bandwidth_bps": bandwidth_bps,
        "arm": arm,
        "step_s": step_s,
        "ratio": step_s / ring_s if ring_s else None,
        "published_s": epoch_s / ITERATIONS if epoch_s else None,
        "published_ratio": epoch_s / epoch_of_ring_s if epoch_s and epoch_of_ring_s else None,
    }


def others(found: list[dict[str, Any]]) -> list[str]:
    """What stands in another order here than it is published."""
    lines = []
    for one, two in itertools.permutations([row for row in found if row["published_s"]], 2):
        if one["bandwidth_bps"] != two["bandwidth_bps"] or one["published_s"] * APART >= two["published_s"]:
            continue
        if one["step_s"] > two["step_s"]:
            where = BANDWIDTH.format(one["bandwidth_bps"])
            lines.append(f"{where}: {one['arm']} is published as faster than {two['arm']}, and slower here")
    return lines


if __name__ == "__main__":
    main()
