"""Faults while four nodes train: a rank that is killed or stopped, a link that dies; for every preset."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.method_names import PRESETS, Preset

TAG = "BWBENCH_KILL_TRIAL"
NODES = 4
START_LIMIT_S = 300.0  # until training begins, on a busy machine
END_LIMIT_S = 60.0  # far beyond what is allowed, so that it can be told by how much
TRIES = 5  # a link that the busy machine could not carry makes a cell invalid before the trial has begun
LATEST_FAULT_S = 3.0  # after the start of training
# What a fault has to lead to, and by when
REASONS = {
    "kill": "rank {rank} was killed by SIGKILL",
    "stop": "rank {rank} was stopped",
    "interface": "link of node {rank} is dead",
    "outage": "link of node {rank} is dead",
}
LIMITS_S = {"kill": 15.0, "stop": 30.0, "interface": 30.0, "outage": 30.0}
EXPERIMENT = """
name: killed
nodes: {nodes}
link: {link}
model: logistic
dataset: digits
batch_size: 16
optimizer: {optimizer}
algorithm: {preset}
evaluate: {{every: 6400 samples}}
limit: {{samples: 1000000000, time: 10 min}}
"""


@dataclass(frozen=True)
class Row:
    """What one fault led to.

    Attributes:
        after_s: from the start of training to the fault.
        end_s: from the fault to the end of the program; None where it had to be ended.
        right: the reason names the rank and what happened to it.
    """

    trial: int
    preset: str
    fault: str
    rank: int
    after_s: float
    end_s: float | None
    status: str
    reason: str
    right: bool
    processes_left: int

    @property
    def good(self) -> bool:
        """In time, with the right reason, and nothing left."""
        in_time = self.end_s is not None and self.end_s <= LIMITS_S[self.fault]
        return in_time and self.right and self.status == "failed" and not self.processes_left


def one_trial(number: int, seed: int) -> Row:
    """Trial ``number``: every preset has its turn, fault, rank and moment are drawn."""
    drawn = random.Random(f"{seed} {number}")
    names = sorted(PRESETS)
    random.Random(seed).shuffle(names)
    preset = PRESETS[names[(number - 1) % len(names)]]
    nodes = NODES if ALGORITHMS.load(preset.algorithm).needs_peers else 1
    uses_link = nodes > 1 and ALGORITHMS.load(preset.algorithm).sends
    fault = drawn.choice(list(REASONS) if uses_link else ["kill", "stop"])
    rank, after_s = drawn.randrange(nodes), drawn.uniform(0.0, LATEST_FAULT_S)
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as name:
            row = _try(Path(name), number, preset, fault, nodes, rank, after_s)
        if row.status != "invalid":
            break
    return row


def summary(rows: list[Row]) -> list[str]:
    """A line a fault, and a line for each trial that did not end as it should."""
    lines = []
    for fault, limit_s in LIMITS_S.items():
        found = [row for row in rows if row.fault == fault]
        ends_s = [row.end_s for row in found if row.end_s is not None]
        if found:
            lines.append(
                f"{fault:9}: {len(found)} trials, {sum(row.good for row in found)} good, "
                f"ended after {min(ends_s, default=0):.1f} to {max(ends_s, default=0):.1f} s (allowed {limit_s:.0f} s)"
            )
    for row in rows:
        if not row.good:
            ended = "did not end" if row.end_s is None else f"ended after {row.end_s:.1f} s"
            lines.append(
                f"trial {row.trial}, {row.preset}, {row.fault} of {row.rank}: {ended}: {row.status}: {row.reason}"
            )
    return lines


def _try(folder: Path, number: int, preset: Preset, fault: str, nodes: int, rank: int, after_s: float) -> Row:
    tag = f"{os.getpid()}-training-{number}"
    (folder / "killed.yaml").write_text(_experiment(preset, fault, nodes, rank, after_s))
    command = [sys.executable, "-m", "bwbench.cli.main", "run", "killed.yaml"]
    with (folder / "messages").open("wb") as messages:
        run = subprocess.Popen(command, cwd=folder, env={**os.environ, TAG: tag}, stdout=messages, stderr=messages)
    try:
        _wait_until_training(run, folder / "messages")
        time.sleep(after_s)
        if run.poll() is None:
            _harm(fault, rank, tag)
        began_s = time.monotonic()
        try:
            run.wait(END_LIMIT_S)
            end_s: float | None = time.monotonic() - began_s
        except subprocess.TimeoutExpired:
            end_s = None
        left = len(_processes(tag))
    finally:
        for process in _processes(tag):
            process.kill()
        run.kill()
        run.wait()
    found = [json.loads(file.read_text()) for file in folder.glob("results/*/*/status.json")]
    status, reason = (found[0]["status"], found[0]["reason"]) if found else ("none", (folder / "messages").read_text())
    right = REASONS[fault].format(rank=rank) in reason
    return Row(number, preset.name, fault, rank, after_s, end_s, status, reason, right, left)


def _experiment(preset: Preset, fault: str, nodes: int, rank: int, after_s: float) -> str:
    outage = f", outages: [{{at: {after_s:.2f} s, duration: 1 h, nodes: [{rank}]}}]" if fault == "outage" else ""
    link = f"{{bandwidth: 100 Mbit/s, latency: 1 ms{outage}}}" if nodes > 1 else "unshaped"
    optimizers = ALGORITHMS.load(preset.algorithm).optimizers
    optimizer = "{%s: {lr: 0.001}}" % (optimizers[0] if optimizers else "sgd")
    return EXPERIMENT.format(nodes=nodes, link=link, optimizer=optimizer, preset=preset.name)


def _wait_until_training(run: subprocess.Popen[bytes], messages: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while "after 0 samples" not in messages.read_text() and run.poll() is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"training has not begun within {START_LIMIT_S:.0f} s:\n{messages.read_text()}")
        time.sleep(0.02)


def _harm(fault: str, rank: int, tag: str) -> None:
    """Do it now; an outage is the link's own doing."""
    workers = {p.environ()["RANK"]: p for p in _processes(tag) if "bwbench.training.loop.worker" in p.cmdline()}
    worker = workers[str(rank)]
    if fault in ("kill", "stop"):
        worker.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    elif fault == "interface":
        enter = ["nsenter", "-t", str(worker.pid), "-n"]
        if os.readlink(f"/proc/{worker.pid}/ns/user") != os.readlink("/proc/self/ns/user"):
            enter += ["-U", "--preserve-credentials"]
        subprocess.run([*enter, "ip", "link", "set", "data0", "down"], check=True, timeout=10)


def _processes(tag: str) -> list[psutil.Process]:
    """What the run has started; the program itself left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TAG) == tag and "bwbench.cli.main" not in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def run_trials(num_trials: int, seed: int, file: Path | None) -> bool:
    """All trials that ``file`` does not hold yet, written there one by one; whether all were good."""
    kept = json.loads(file.read_text()) if file is not None and file.is_file() else {}
    rows = [Row(**row) for row in kept.get("rows", [])] if kept.get("seed") == seed else []
    for number in range(len(rows) + 1, num_trials + 1):
        rows.append(row := one_trial(number, seed))
        ended = "did not end" if row.end_s is None else f"ended after {row.end_s:4.1f} s"
        verdict = "good" if row.good else "NOT GOOD"
        print(f"trial {number:3}: {row.preset}, {row.fault} of {row.rank}: {ended}, {verdict}", flush=True)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"seed": seed, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    print(*summary(rows[:num_trials]), sep="\n")
    return all(row.good for row in rows[:num_trials])
