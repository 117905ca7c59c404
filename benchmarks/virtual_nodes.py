"""Virtual nodes beside real workers: whether bits are equal, what they save, and how many there may be.

Bits: every preset that depends on no time, some steps on 2, 4 and 8 nodes; losses, bytes, metrics and final parameters
of all ranks. Cost: convergence runs of ``experiments/bandwidth-cnn.yaml``, cut to ``--samples``, both ways, as seconds
of processors (user and system, of all processes, from their start to their end) and of wall time. At once: the wall
time of all these runs with virtual nodes in a sweep, one after the other and on all processors. Many: 64 and 256 nodes
with a small model. Exit status 1 where bits differ. Fashion-mnist is needed below ``BWBENCH_DATA``.

Usage: python benchmarks/virtual_nodes.py [--what bits cost at_once many] [--nodes 2 4 8] [--samples 19200]
                                          [--arms ring ddp] [--json FILE, added to where it is there] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from training_parts.pool import Pool
from training_parts.runs import Silent, SilentSweep
from virtual_nodes_parts.both_ways import by_virtual_nodes, by_workers, recorded, tiny, virtual_presets

from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell, build_plan
from bwbench.experiment.plan.composing import parts_of
from bwbench.records import CellFolder
from bwbench.records.cell_identity import identity
from bwbench.running.machine_turn import SHARE
from bwbench.running.run_cell import run_cell
from bwbench.running.sweep.account import Account, Notifier, Tally
from bwbench.running.sweep.scheduler import Scheduler
from bwbench.running.this_machine import ThisMachine

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "bandwidth-cnn.yaml"
ARMS = ("ring", "ddp", "top-k", "local-sgd")
MANY = ((64, "ring"), (64, "top-k"), (256, "ring"), (256, "top-k"))
WHATS = ("bits", "cost", "at_once", "many")
MANY_STEPS, MANY_BATCH = 5, 4
LIMIT_S = 1800.0


def bits(num_nodes: int, presets: list[str]) -> list[dict[str, Any]]:
    """Whether each preset's records are equal, both ways."""
    rows = []
    with Pool(num_nodes) as pool:
        for preset in presets:
            cell = tiny(preset, num_nodes)
            is_equal = by_virtual_nodes(cell) == by_workers(cell, pool)
            rows.append({"preset": preset, "nodes": num_nodes, "bits_equal": is_equal})
            print(f"{preset:28} {num_nodes} nodes: {'equal' if is_equal else 'DIFFERENT'}", flush=True)
    return rows


def convergence_run(arm: str, samples: int, *, virtual: bool) -> Cell:
    """That of an arm of the experiment, cut to so many samples."""
    planned = next(one for one in build_plan(load_experiment(EXPERIMENT)).cells if one.arm == arm and one.repeat == 0)
    convergence = parts_of(planned).convergence
    limit = convergence.config.limit.model_copy(update={"samples": samples})
    compute = convergence.config.compute.model_copy(update={"virtual": virtual})
    config = convergence.config.model_copy(update={"limit": limit, "compute": compute})
    return replace(convergence, id=identity(config), config=config)


def cost(arms: list[str], samples: int) -> list[dict[str, Any]]:
    """Processor and wall seconds of convergence runs, both ways, and whether their records are equal."""
    rows: list[dict[str, Any]] = []
    for arm in arms:
        spent, told = {}, {}
        for way in ("virtual", "workers"):
            spent[way], told[way] = _spent(convergence_run(arm, samples, virtual=way == "virtual"))
        ratio = spent["workers"]["core_s"] / spent["virtual"]["core_s"]
        is_equal = told["virtual"] == told["workers"]
        rows.append({"arm": arm, "samples": samples, **spent, "core_ratio": ratio, "bits_equal": is_equal})
        print(
            f"{arm:28} {samples} samples: workers {spent['workers']['core_s']:.1f} core s, virtual nodes "
            f"{spent['virtual']['core_s']:.1f} core s: {ratio:.2f} times less; {spent['workers']['wall_s']:.1f} and "
            f"{spent['virtual']['wall_s']:.1f} s of wall time; bits {'equal' if is_equal else 'DIFFERENT'}",
            flush=True,
        )
    return rows


def at_once(arms: list[str], samples: int) -> list[dict[str, Any]]:
    """Wall seconds of a sweep's convergence runs with virtual nodes, on one processor and on all."""
    cells = [convergence_run(arm, samples, virtual=True) for arm in arms]
    rows = []
    for num_processors in (1, len(os.sched_getaffinity(0))):
        with tempfile.TemporaryDirectory() as name:
            items = [PlannedCell(cell, Path(name) / cell.folder_name, "missing", True, "") for cell in cells]
            tally, began_s = Tally(), time.monotonic()
            account = Account(items, SilentSweep(), Notifier(None, print), tally)
            with contextlib.closing(ThisMachine(num_processors=num_processors)) as here:
                Scheduler(here, account, {item.cell.id: LIMIT_S for item in items}).work_through(items)
            wall_s = time.monotonic() - began_s
            assert tally.all_done, tally.counts
        rows.append({"runs": len(cells), "samples": samples, "processors": num_processors, "wall_s": wall_s})
        print(f"{len(cells)} convergence runs on {num_processors} processor(s): {wall_s:.1f} s", flush=True)
    return rows


def many() -> list[dict[str, Any]]:
    """Many virtual nodes."""
    rows = []
    for num_nodes, preset in MANY:
        cell = tiny(preset, num_nodes, steps=MANY_STEPS, batch=MANY_BATCH)
        compute = cell.config.compute.model_copy(update={"virtual": True})
        spent, _ = _spent(replace(cell, config=cell.config.model_copy(update={"compute": compute})))
        rows.append({"preset": preset, "nodes": num_nodes, "steps": MANY_STEPS, **spent})
        print(f"{preset:28} {num_nodes} virtual nodes, {MANY_STEPS} steps: {spent['wall_s']:.1f} s", flush=True)
    return rows


def _spent(cell: Cell) -> tuple[dict[str, float], list[Any]]:
    """What one cell takes, and what its ranks have recorded; raises AssertionError where it is not done."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / cell.folder_name
        folder.mkdir()
        before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        status = run_cell(PlannedCell(cell, folder, "missing", True, ""), LIMIT_S, Silent())
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began_s
        assert status.status == "done", status.reason
        attempt = CellFolder(folder).attempts[-1]
        user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        spent = {"core_s": user_s + system_s, "user_s": user_s, "system_s": system_s, "wall_s": wall_s}
        return spent, recorded(attempt, cell.config.nodes)


def main() -> int:
    """Print the tables; the exit status says whether all bits are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", default=list(WHATS), choices=WHATS)
    parser.add_argument("--nodes", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--presets", nargs="+", default=[])
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--samples", type=int, default=19200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault(SHARE, "1")
    if options.quick:
        options.what, options.nodes, options.presets = ["bits"], [2], ["ring", "top-k", "ddp", "local-sgd"]
    found: dict[str, list[dict[str, Any]]] = {what: [] for what in WHATS}
    if options.json is not None and options.json.is_file():
        found |= json.loads(options.json.read_text())
    for what in options.what:
        if what == "bits":
            rows = [row for num in options.nodes for row in bits(num, options.presets or virtual_presets())]
        elif what == "many":
            rows = many()
        else:
            rows = (cost if what == "cost" else at_once)(options.arms, options.samples)
        again = [_key(row) for row in rows]
        found[what] = [row for row in found[what] if _key(row) not in again] + rows
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(row.get("bits_equal", True) for rows in found.values() for row in rows) else 1


def _key(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("preset", "arm", "nodes", "samples", "runs", "processors"))


if __name__ == "__main__":
    sys.exit(main())
