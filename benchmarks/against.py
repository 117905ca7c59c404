"""This checkout beside another one: how long a step of training and common commands take in both, in pairs.

Pairs are interleaved and the order within a pair alternates, so that what else the machine does meets both alike. What
counts is the geometric mean of the ratios, this one over the other, with its 95 % interval: 1 inside it or above it
means that nothing was lost. Steps are of two nodes on an unshaped link, a small convolutional network on made-up data.

Usage: python benchmarks/against.py --other FOLDER [--pairs 5] [--presets ring top-k] [--commands help plan]
                                    [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bwbench.results.analysis.statistics import geometric_interval

HERE = Path(__file__).parents[1]
LIMIT_S = 300
STEPS = """
name: step
nodes: 2
link: unshaped
model: cnn
dataset: {{name: synthetic, shape: [1, 28, 28], samples: 8000}}
batch_size: 32
optimizer: {{sgd: {{lr: 0.01}}}}
compute: {{threads: 1}}
evaluate: {{every: {samples} samples}}
limit: {{samples: {samples}}}
algorithm: {preset}
"""
SAMPLES_A_STEP = 2 * 32
PLAN = """
name: many
nodes: 4
link: {latency: 2.5 ms}
model: logistic
dataset: digits
optimizer: {sgd: {lr: 0.05}}
target: {accuracy: 0.9}
repeats: 50
matrix:
  algorithm: [ring, ring-fp16, ddp, threshold, parameter-server]
  link.bandwidth: [1 Mbit/s, 2 Mbit/s, 5 Mbit/s, 10 Mbit/s, 20 Mbit/s, 50 Mbit/s, 100 Mbit/s, 200 Mbit/s]
  optimizer.lr: [0.01, 0.02, 0.05, 0.1, 0.2]
"""


def run(checkout: Path, folder: Path, *words: str) -> float:
    """The wall time of one command of a checkout, in s; raises CalledProcessError where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "bwbench.cli.main", *words]
    began_s = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=LIMIT_S)
    return time.perf_counter() - began_s


def step_s(checkout: Path, preset: str, num_steps: int) -> float:
    """The training clock of a step, in s."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "step.yaml").write_text(STEPS.format(preset=preset, samples=num_steps * SAMPLES_A_STEP))
        run(checkout, folder, "run", "step.yaml")
        (file,) = folder.glob("results/step/*/status.json")
        status = json.loads(file.read_text())
        return float(status["training_clock_s"]) / int(status["steps"])


def command_s(checkout: Path, what: str) -> float:
    """The wall time of a command, in s."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if what == "help":
            return run(checkout, folder, "--help")
        (folder / "many.yaml").write_text(PLAN)
        return run(checkout, folder, "plan", "many.yaml", "--json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="another checkout; without one this is compared with itself")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--presets", nargs="*", default=["ring", "top-k"])
    parser.add_argument("--commands", nargs="*", default=["help", "plan"], choices=["help", "plan"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="two pairs of few steps")
    options = parser.parse_args()
    other = (options.other or HERE).resolve()
    num_pairs, num_steps = (2, 40) if options.quick else (options.pairs, 300)
    wanted = [(f"step of {preset}", lambda c, p=preset: step_s(c, p, num_steps)) for preset in options.presets]
    wanted += [(what, lambda c, w=what: command_s(c, w)) for what in options.commands]
    rows: list[dict[str, Any]] = []
    for what, measure in wanted:
        pairs = []
        for number in range(num_pairs):
            order = (HERE, other) if number % 2 else (other, HERE)
            times_s = [measure(checkout) for checkout in order]
            pairs.append(times_s if number % 2 else times_s[::-1])
        ratio, low, high = geometric_interval([ours / theirs for ours, theirs in pairs])
        best_s = [min(times) for times in zip(*pairs, strict=True)]
        rows.append({"what": what, "ratio": ratio, "low": low, "high": high, "pairs_s": pairs})
        print(f"{what:16}: {ratio:.3f} [{low:.3f}, {high:.3f}] of {num_pairs} pairs; least {best_s[0]:.4g} s here,"
              f" {best_s[1]:.4g} s there", flush=True)  # fmt: skip
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"other": other.name, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
