"""``kill -9`` of a sweep at random moments: does it end with every cell done once, nothing broken and nothing left?

A sweep of 24 tiny cells runs undisturbed. The same sweep then runs in another folder and is killed at a random moment,
is started again and killed again, until it has been killed as often as asked for; a sweep that ends before its kill
begins anew in a fresh folder. After every kill all files are read (every JSON file has to be whole, every cell that
was done has to be done still, by the same attempt), and 5 s later nothing may be there of what the sweep had made: its
processes, and whatever is in one of its network namespaces (interfaces and qdiscs are in these alone, and go with
them). What other programs do meanwhile does not count. Whenever a sweep is complete its cells are compared with those
of the undisturbed one: the same set, all done, none run again once it was done, no claim and no half-written file left.

Kills come up to three cells' time after a start, so that each lets about one cell end: 50 of them take as long as 120
cells, some ten minutes where a cell takes 4 s.

Usage: python benchmarks/sweep_trials.py [--trials N] [--json FILE] [--quick] [--seed N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from kill_trials import LEFT_AFTER_S, TAG, processes

TRIALS, QUICK_TRIALS = 50, 2
LATEST_CELLS = 3.0  # of a kill after the start, in times that a cell took undisturbed: about one ends before
END_LIMIT_S = 1800.0
BWBENCH = [sys.executable, "-m", "bwbench.cli.main"]
EXPERIMENT = """
name: {name}
nodes: 2
link: {{bandwidth: 100 Mbit/s, latency: 1 ms}}
model: logistic
dataset: digits
batch_size: 32
optimizer: {{sgd: {{lr: 0.05}}}}
evaluate: {{every: 640 samples}}
target: {{accuracy: 0.99}}
limit: {{samples: 1280}}
repeats: {repeats}
matrix:
  algorithm: [{arms}]
"""
FILES = {  # name: repeats and arms; together 24 cells, and 4 in a quick run
    False: {"first": (3, "ring, threshold, ring-fp16, single"), "second": (4, "ring, parameter-server, single")},
    True: {"first": (1, "ring, single"), "second": (1, "threshold, single")},
}

Ended = dict[str, tuple[str, int]]  # cell folder: status and attempt


def start(folder: Path, results: str, tag: str) -> subprocess.Popen[bytes]:
    command = [*BWBENCH, "sweep", "experiments", "--results", results, "--retry", "invalid"]
    with (folder / "messages").open("ab") as messages:
        return subprocess.Popen(command, cwd=folder, env={**os.environ, TAG: tag}, stdout=messages, stderr=messages)


def complete(folder: Path, results: str) -> None:
    """To the end: again where a link that this busy machine could not carry made cells invalid."""
    for _ in range(4):
        sweep = start(folder, results, f"{os.getpid()}-whole")
        try:
            if sweep.wait(END_LIMIT_S) == 0:
                return
        finally:
            sweep.kill()
            sweep.wait()
    raise SystemExit((folder / "messages").read_text()[-3000:])


def ended(results: Path) -> Ended:
    """Every cell that has a status.json, which must be whole, as all JSON files must be."""
    for file in results.rglob("*.json"):
        json.loads(file.read_text())
    found = {}
    for file in results.glob("*/*/status.json"):
        status = json.loads(file.read_text())
        found[str(file.parent.relative_to(results))] = (status["status"], status["attempt"])
    return found


def problems_after_kill(before: Ended, after: Ended) -> list[str]:
    """Cells that were done and are not any more, or were run again."""
    return [f"{cell}: {before[cell]}, now {after.get(cell)}" for cell, end in before.items()
            if end[0] == "done" and after.get(cell) != end]  # fmt: skip


def problems_at_end(wanted: set[str], results: Path) -> list[str]:
    found = ended(results)
    problems = [f"{cell}: {status}" for cell, (status, _) in found.items() if status != "done"]
    if set(found) != wanted:
        problems.append(f"missing {sorted(wanted - set(found))}, too many {sorted(set(found) - wanted)}")
    for cell in results.glob("*/*/"):
        attempts = sorted(cell.glob("attempt-*"), key=lambda path: int(path.name.partition("-")[2]))
        whole = [path.name for path in attempts if any('"event":"end"' in f.read_text() for f in path.glob("rank0.*l"))]
        last = f"attempt-{found[str(cell.relative_to(results))][1]}" if attempts else ""
        if attempts and attempts[-1].name != last:
            problems.append(f"{cell.name}: {attempts[-1].name} after {last} was done")
        if len(whole) > 2:  # killed between the last event and status.json, or invalid: once may happen, not again
            problems.append(f"{cell.name}: trained to the end in {', '.join(whole)}")
    left = [str(path) for path in results.rglob(".*") if path.name != ".lock"]
    return problems + [f"left: {path}" for path in left]


def namespace_of(pid: int | str) -> str | None:
    """The network namespace of a process; None where it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def still_there(made: set[psutil.Process], namespaces: set[str], before_s: float) -> set[psutil.Process]:
    """Of these processes those that live, and all others in these namespaces that are as old.

    A younger one belongs to somebody else: the kernel gives the numbers of namespaces that are gone to new ones.
    """
    found = set()
    for process in (*made, *psutil.process_iter()):
        with contextlib.suppress(psutil.Error):
            ours = process in made or (namespace_of(process.pid) in namespaces and process.create_time() <= before_s)
            if ours and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return found


def trial(folder: Path, results: str, number: int, moment_s: float) -> dict[str, Any]:
    """Start the sweep, kill it, look."""
    tag = f"{os.getpid()}-{number}"
    before = ended(folder / results)
    sweep = start(folder, results, tag)
    try:
        sweep.wait(moment_s)
    except subprocess.TimeoutExpired:
        pass
    had_ended = sweep.poll()
    made = {process for process in processes(tag) if process.pid != sweep.pid}
    namespaces = {namespace_of(process.pid) for process in made} - {namespace_of("self"), None}
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    killed_s, before_s = time.monotonic(), time.time()
    while (left := still_there(made | set(processes(tag)), namespaces, before_s)) and (
        time.monotonic() - killed_s < LEFT_AFTER_S
    ):
        time.sleep(0.05)
    gone_s = time.monotonic() - killed_s
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    after = ended(folder / results)
    return {
        "trial": number,
        "moment_s": moment_s,
        "exit_status": had_ended,
        "done_before": sum(status == "done" for status, _ in before.values()),
        "done_after": sum(status == "done" for status, _ in after.values()),
        "processes_made": len(made),
        "namespaces_made": len(namespaces),
        "gone_after_s": gone_s,
        "processes_left": len(left),
        "problems": problems_after_kill(before, after),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="4 cells and 2 kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    num_trials = options.trials or (QUICK_TRIALS if options.quick else TRIALS)
    moments, rows, problems, sweeps = random.Random(options.seed), [], [], 0
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "experiments").mkdir()
        for experiment, (repeats, arms) in FILES[options.quick].items():
            text = EXPERIMENT.format(name=experiment, repeats=repeats, arms=arms)
            (folder / "experiments" / f"{experiment}.yaml").write_text(text)
        complete(folder, "undisturbed")
        wanted = set(ended(folder / "undisturbed"))
        undisturbed_s = time.monotonic() - began_s
        latest_s = LATEST_CELLS * undisturbed_s / len(wanted)
        print(f"undisturbed: {len(wanted)} cells done in {undisturbed_s:.0f} s", flush=True)
        while len(rows) < num_trials:
            sweeps += 1
            results = f"disturbed-{sweeps}"
            while len(rows) < num_trials:
                row = trial(folder, results, len(rows) + 1, moments.uniform(0.1, latest_s))
                if row["exit_status"] is not None:
                    break  # it was quicker: on with a fresh folder
                rows.append(row)
                print(
                    f"trial {row['trial']:2}: killed after {row['moment_s']:5.2f} s, {row['done_after']} done, "
                    f"{row['processes_made']} processes gone after {row['gone_after_s']:.2f} s, "
                    f"left {row['processes_left']}, problems {row['problems']}",
                    flush=True,
                )
            complete(folder, results)
            found = problems_at_end(wanted, folder / results)
            problems += found
            print(f"sweep {sweeps} completed: {len(ended(folder / results))} cells, problems {found}", flush=True)
    wall_s = time.monotonic() - began_s
    print(f"{len(rows)} kills of {sweeps} sweeps in {wall_s / 60:.1f} min")
    good = not problems and not any(row["processes_left"] or row["problems"] for row in rows)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"cells": len(wanted), "kills": len(rows), "sweeps": sweeps, "undisturbed_s": undisturbed_s}
        content |= {"wall_s": wall_s, "problems": problems, "rows": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    if not good:
        raise SystemExit("a sweep was not what it should have been after its kills")


if __name__ == "__main__":
    main()
