"""The step of a real model by a ring against the closed form, and a shrunk cell against the same cell whole.

The closed form: buckets are ready when the layers that they hold have had their share of the backward pass, and share
the link one after the other, each for 2(N-1)/N of its bytes in full frames. The step ends with the last of them.

A row a cell: model, nodes, link, shrink, the median step of rank 0, the closed form, their ratio. Exit status 1 where a
ratio is off by more than 5 %, or a shrunk step by more than 3 % from the whole one.

Usage: python benchmarks/real_size.py [--results DIR] [--json FILE] [--quick] (five minutes of a quiet machine)
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import bwbench
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.methods.algorithms.algorithm import assign
from bwbench.records import iter_cells
from bwbench.records.schema import Step

MOST_OFF, MOST_SHRUNK_OFF = 0.05, 0.03
EXPERIMENT: dict[str, object] = {
    "name": "real-size-check",
    "nodes": 4,
    "link": {"bandwidth": "1 Gbit/s", "latency": "0.1 ms"},
    "model": {"shapes": "vgg16"},
    "batch_size": 32,
    "compute": {"step_time": "500 ms"},
    "limit": {"steps": 3},
    "algorithm": "ring",
    "dilation": 4,
    "matrix": {"shrink": [1, 4]},
}
QUICK = {"link.bandwidth": "100 Mbit/s", "model": {"shapes": "resnet50"}, "nodes": 2, "dilation": 1, "limit.steps": 2}


def closed_form_s(config: CellConfig) -> float:
    """Seconds of a step of a ring, with the overlap that the model's layers allow."""
    model = config.shapes
    assert model is not None and config.compute.step_time is not None
    step_s, share = config.compute.step_time_of(0).mean_s, config.model.options.backward  # type: ignore[union-attr,attr-defined]
    ready = [end for layer, end in zip(model.layers, model.backward_ends, strict=True) for _ in layer.shapes]
    sizes = [num for layer in model.layers for shape in layer.shapes if (num := _product(shape))]
    per_byte_s = 8 * config.link.full_frame.wire_per_payload / config.link.base.up_bps
    now_s = 0.0
    for bucket in assign(sizes, None):
        there_s = step_s * (1 - share * (1 - max(ready[index] for index in bucket)))
        around = 2 * (config.nodes - 1) / config.nodes * ELEMENT_BYTES * sum(sizes[index] for index in bucket)
        now_s = max(now_s, there_s) + around * per_byte_s
    return max(step_s, now_s)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def rows_of(results: Path) -> list[dict[str, Any]]:
    """A row a cell that is done."""
    found = []
    for folder in iter_cells(results):
        if folder.status is None or folder.status.status != "done":
            print(f"{folder.path.name}: not done", file=sys.stderr)
            continue
        config = CellConfig.model_validate(folder.cell.config)
        steps = [event.duration_s for event in folder.events()[0] if isinstance(event, Step)]
        step_s, form_s = statistics.median(steps), closed_form_s(config)
        row = {"model": config.model.options.of, "nodes": config.nodes, "link": config.link.describe(short=True)}  # type: ignore[attr-defined]
        row |= {"dilation": config.dilation, "shrink": config.shrink, "steps_s": steps}
        found.append({**row, "step_s": step_s, "closed_form_s": form_s, "ratio": step_s / form_s})
    return sorted(found, key=lambda row: row["shrink"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="where cells lie, and those that are done are taken from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="ResNet-50 on two nodes at 100 Mbit/s")
    options = parser.parse_args()
    results = options.results or Path(tempfile.mkdtemp(prefix="bwbench-real-size-"))
    bwbench.run(EXPERIMENT, results=results, override=QUICK if options.quick else {})
    rows = rows_of(results)
    for row in rows:
        print(
            f"{row['model']:<12}{row['nodes']:>3} nodes  {row['link']:<30} shrink {row['shrink']:<3g} "
            f"{row['step_s']:.3f} s, closed form {row['closed_form_s']:.3f} s: {row['ratio']:.3f}"
        )
    shrunk = [row["step_s"] / rows[0]["step_s"] for row in rows[1:]]
    print(*(f"shrunk over whole: {ratio:.3f}" for ratio in shrunk), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    off = [row for row in rows if abs(row["ratio"] - 1) > MOST_OFF]
    sys.exit(1 if off or len(rows) < 2 or any(abs(ratio - 1) > MOST_SHRUNK_OFF for ratio in shrunk) else 0)


if __name__ == "__main__":
    main()
