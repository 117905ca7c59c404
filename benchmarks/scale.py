"""How the command line copes with ten thousand cells: time and memory of planning, sweeping and looking at them.

The cells are planned by `bwbench plan` from one experiment file. A sweep then goes over all of them with everything but
the training: claims, records, progress. `bwbench status` lists what it has recorded, and `bwbench run` finds that
nothing is left to do; then they are published, and listed from that one file. Wall times are of whole commands, on one
core; memory is the largest that the process ever held.

Usage: python benchmarks/scale.py [--json FILE] [--quick] [--cells N]
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

CELLS = 10_000
START_S = 0.5  # that any command takes, however few the cells
LIMITS_S = {"plan": 5.0, "status": 3.0}
LIMIT_MIB = 300.0
BWBENCH = [sys.executable, "-m", "bwbench.cli.main"]
EXPERIMENT = """
name: many
nodes: 4
link: {{bandwidth: 10 Mbit/s, latency: 2.5 ms}}
model: logistic
dataset: digits
optimizer: {{sgd: {{lr: 0.05}}}}
target: {{accuracy: 0.9}}
repeats: 5
matrix:
  algorithm: [ring, ring-fp16, ddp, threshold, parameter-server]
  link.bandwidth: [1 Mbit/s, 2 Mbit/s, 5 Mbit/s, 10 Mbit/s, 20 Mbit/s, 50 Mbit/s, 100 Mbit/s, 200 Mbit/s]
  link.latency: [1 ms, 2 ms, 5 ms, 10 ms, 20 ms]
  optimizer.lr: [{rates}]
"""
POINTS_A_RATE = 5 * 5 * 8 * 5  # repeats, methods, bandwidths, latencies

# The sweep of a file in which a cell takes no time: everything of the parent but the network and the workers.
SWEEP = """
import sys
from pathlib import Path
from bwbench.cli.sweep_progress import PlainProgress
from bwbench.experiment.plan import foresee
from bwbench.records import CellFolder
from bwbench.records.schema import Status
from bwbench.records.environment import capture_environment
from bwbench.records.files import write_json_atomic
from bwbench.records.lock import claimed
from bwbench.running.sweep import freeze_sweep, plan_sweep
from bwbench.running.sweep.account import Account
from bwbench.running.this_machine import ThisMachine
from bwbench.running.sweep.account import Notifier
from bwbench.running.sweep.scheduler import Scheduler
from bwbench.running.sweep.account import TimeLeft

def run(item, wall_limit_s, observer):
    with claimed(item.folder) as claim:
        claim.note(phase="training")
        attempt = CellFolder(item.folder).new_attempt()
        write_json_atomic(attempt / "environment.json", capture_environment().to_json(), sync=False)
        status = Status(
            id=item.cell.id, slug=item.cell.slug, status="done", reason="target", attempt=1, metric="accuracy",
            time_to_target_s=12.5, censored_at_s=None, samples_to_target=20000, final_metric=0.91, test_metric=0.9,
            steps=160, samples=20480, training_clock_s=12.9, evaluation_s=0.4, wall_s=20.0, overhead_s=6.7,
            payload_bytes=10**9, wire_bytes=11 * 10**8, replicas_identical=True)
        write_json_atomic(item.folder / "status.json", status.to_json(), sync=False)
    return status

sweep = plan_sweep([Path(sys.argv[1])], Path(sys.argv[2]))
foreseen = foresee(sweep.foreseen)
predicted_s = {name: found.predicted_s for name, found in foreseen.estimates.items()}
freeze_sweep(sweep)
with PlainProgress(TimeLeft(foreseen, sweep.todo), len(sweep.todo)) as progress:
    account = Account(sweep.selected, progress, Notifier(None, print))
    Scheduler(ThisMachine(run), account, predicted_s).work_through(sweep.todo)
assert account.tally.all_done, account.tally
"""


def allowed_s(what: str, share: float) -> float:
    """Limit of a command, with this share of all cells."""
    return START_S + share * (LIMITS_S[what] - START_S)


def measured(what: str, command: list[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """One command to its end; raises SystemExit where it fails."""
    output = folder / f"{what}.out"
    with output.open("wb") as out, (folder / f"{what}.err").open("wb") as err:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err)
        _, code, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise SystemExit(f"{what} ended with {process.returncode}:\n{(folder / f'{what}.err').read_text()[-2000:]}")
    cpu_s, peak_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    limit_mib = None if what == "publish" else LIMIT_MIB  # it keeps all cells, to share what they have in common
    good = wall_s <= limit_s and (limit_mib is None or peak_mib <= limit_mib)
    row = {"what": what, "wall_s": wall_s, "cpu_s": cpu_s, "limit_s": limit_s if limit_s < 1e9 else None}
    return {**row, "peak_mib": peak_mib, "limit_mib": limit_mib, "good": good}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a fifth of the cells, and of the time allowed for them")
    parser.add_argument("--cells", type=int)
    options = parser.parse_args()
    wanted = options.cells or (CELLS // 5 if options.quick else CELLS)
    num_rates = max(1, round(wanted / POINTS_A_RATE))
    share = min(1.0, num_rates * POINTS_A_RATE / CELLS)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rates = ", ".join(f"{0.01 * number:g}" for number in range(1, num_rates + 1))
        (folder / "many.yaml").write_text(EXPERIMENT.format(rates=rates))
        subprocess.run([*BWBENCH, "plan", "many.yaml", "--only", "arm=ring", "--shard", "1/1000"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)  # fmt: skip
        for what, command, limit_s in (
            ("plan", [*BWBENCH, "plan", "many.yaml", "--json"], allowed_s("plan", share)),
            ("sweep", [sys.executable, "-c", SWEEP, "many.yaml", "results"], float("inf")),
            ("status", [*BWBENCH, "status", "results", "--json"], allowed_s("status", share)),
            ("run again", [*BWBENCH, "run", "many.yaml"], float("inf")),
            ("publish", [*BWBENCH, "publish", "results/many", "--to", "published"], float("inf")),
            ("status of what is published", [*BWBENCH, "status", "published", "--json"], allowed_s("status", share)),
        ):
            row = measured(what, command, folder, limit_s)
            if command[-1] == "--json":
                row["cells"] = len(json.loads((folder / f"{what}.out").read_text())["cells"])
            rows.append(row)
            allowed = "" if row["limit_s"] is None else f" (allowed {row['limit_s']:.1f} s)"
            print(
                f"{what:27}: {row['wall_s']:6.2f} s{allowed}, {row['cpu_s']:.2f} s of CPU, {row['peak_mib']:.0f} MiB",
                flush=True,
            )
    cells = num_rates * POINTS_A_RATE
    print(f"{cells} cells")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"cells": cells, "rows": rows}, indent=1) + "\n")
    if not all(row["good"] for row in rows):
        raise SystemExit("too slow, or too much memory")


if __name__ == "__main__":
    main()
