"""``kill -9`` of a run at random moments: what is left after 5 s, and whether the next run completes the result.

Each trial starts a run of a small experiment (or, with ``--what link``, programs on a link), kills its parent at a
random moment, and counts what is there 5 s later: processes of the run, network namespaces, interfaces and qdiscs of
this machine. At the end one run of the experiment goes on to the end.

``--what training`` harms nodes instead, while they train, over all presets: kills or stops a rank, takes a node's
interface down, lets its link die; and looks how soon the run ends, with which reason, and what is left. With ``--json``
it goes on where it was interrupted. 100 trials take about an hour. ``--what hosts`` does so with ``launcher: ssh`` on
four hosts with shaped interfaces (needs root and an sshd); 30 trials take about 35 minutes.

``--what endings`` ends them in all ways, not only by ``kill -9`` of the parent, half of them with programs on a link
that fork children away; it looks for what is left within 10 s. 200 trials take about 20 minutes.

Usage: python benchmarks/kill_trials.py [--what run|link|training|hosts|endings] [--json FILE] [--quick]
                                        [--trials N] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from kill_trials_parts import endings
from kill_trials_parts.training import run_trials

TAG = "BWBENCH_KILL_TRIAL"
LEFT_AFTER_S = 5.0
COMMANDS = {
    "run": ["run", "killed.yaml"],
    "link": [
        "link",
        "run",
        "--nodes=4",
        "--bandwidth=10 Mbit/s",
        "--latency=2 ms",
        "--",
        "sh",
        "-c",
        "sleep 60 & wait",
    ],
}
LONGEST_S = {"run": 15.0, "link": 3.0}
QUICKEST_S = {"run": 8.0, "link": 3.0}
EXPERIMENT = """
name: killed
nodes: 4
link: {bandwidth: 100 Mbit/s, latency: 1 ms}
model: mlp
dataset: digits
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 640 samples}
limit: {samples: 12800}
matrix:
  algorithm: [ring, ddp, threshold]
"""


def processes(tag: str) -> list[psutil.Process]:
    """Everything that a run with this tag has started, however deep."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TAG) == tag:
                found.append(process)
        except psutil.Error:
            continue
    return found


def machine() -> dict[str, Any]:
    """Network namespaces, interfaces and qdiscs as they are now."""
    namespaces = set()
    for process in psutil.process_iter():
        try:
            namespaces.add(os.readlink(f"/proc/{process.pid}/ns/net"))
        except OSError:
            continue
    shown = {
        name: subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
        for name, command in (("links", ["ip", "-br", "link"]), ("qdiscs", ["tc", "qdisc"]))
    }
    return {"namespaces": len(namespaces), **shown}


def trial(what: str, folder: Path, number: int, moment_s: float, before: dict[str, Any]) -> dict[str, Any]:
    """Kill one run (or link) ``moment_s`` after its start."""
    tag = f"{os.getpid()}-{number}"
    command = [sys.executable, "-m", "bwbench.cli.main", *COMMANDS[what]]
    with (folder / "messages").open("ab") as messages:
        run = subprocess.Popen(command, cwd=folder, env={**os.environ, TAG: tag}, stdout=messages, stderr=messages)
    try:
        run.wait(moment_s)
    except subprocess.TimeoutExpired:
        pass
    ended = run.poll()
    alive = len(processes(tag))
    run.send_signal(signal.SIGKILL)
    run.wait()
    killed_s = time.monotonic()
    left, after = processes(tag), machine()
    while (left or after != before) and time.monotonic() - killed_s < LEFT_AFTER_S:
        time.sleep(0.02)  # a process that is ending gives up its namespaces a moment after its memory
        left, after = processes(tag), machine()
    gone_s = time.monotonic() - killed_s
    for process in left:
        process.kill()
    changed = [name for name in before if after[name] != before[name]]
    row = {"trial": number, "moment_s": moment_s, "processes_before": alive, "gone_after_s": gone_s}
    return {**row, "processes_left": len(left), "changed": changed, "had_ended": ended is not None}


def resume(folder: Path) -> bool:
    """Run the experiment once more, to its end; whether all of it is done then."""
    command = [sys.executable, "-m", "bwbench.cli.main", *COMMANDS["run"]]
    resumed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    ended = [json.loads(file.read_text()) for file in folder.glob("results/killed/*/status.json")]
    statuses = [status["status"] for status in ended]
    reasons = [status["reason"] for status in ended if status["status"] != "done"]
    print(f"resumed: exit status {resumed.returncode}, cells {statuses}", *reasons, sep="\n")
    return resumed.returncode == 0 and statuses == ["done"] * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=[*COMMANDS, "training", "hosts", "endings"], default="run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "training":
        num_trials = options.trials or (4 if options.quick else 100)
        if not run_trials(num_trials, options.seed, options.json):
            raise SystemExit("not every fault ended in time, with the right reason, leaving nothing behind")
        return
    if options.what == "endings":
        if not endings.run_trials(options.trials or (12 if options.quick else 200), options.seed, options.json):
            raise SystemExit("something was left behind")
        return
    if options.what == "hosts":
        from kill_trials_parts import hosts  # needs asyncssh

        if not hosts.run_trials(options.trials or (5 if options.quick else 30), options.seed, options.json):
            raise SystemExit("not every fault ended in time and was named, or an interface was not as before")
        return
    moments = random.Random(options.seed)
    num_trials = options.trials or (3 if options.quick else 20)
    longest_s = (QUICKEST_S if options.quick else LONGEST_S)[options.what]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "killed.yaml").write_text(EXPERIMENT)
        before = machine()
        while len(rows) < num_trials:
            shutil.rmtree(folder / "results", ignore_errors=True)  # so that every kill meets a run at work
            row = trial(options.what, folder, len(rows) + 1, moments.uniform(0.1, longest_s), before)
            if row["had_ended"]:
                continue
            rows.append(row)
            print(
                f"trial {row['trial']:2}: killed after {row['moment_s']:5.2f} s",
                f"{row['processes_before']} processes gone after {row['gone_after_s']:.2f} s",
                f"left {row['processes_left']}, changed {row['changed']}",
                sep=", ",
                flush=True,
            )
        complete = options.what == "link" or resume(folder)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows, "resumed_complete": complete}, indent=1) + "\n")
    if not complete or any(row["processes_left"] or row["changed"] for row in rows):
        raise SystemExit("something was left behind, or the resumed result is not complete")


if __name__ == "__main__":
    main()
