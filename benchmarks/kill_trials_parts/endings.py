"""Ends of all kinds at random moments: kills, SIGTERM and SIGINT of a run, of programs on a link, of what forks away.

The programs of ``forking`` leave children behind that have sessions of their own, obey no signal, hold the standard
streams, or have emptied their environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

TAG = "BWBENCH_KILL_TRIAL"
LEFT_AFTER_S = 10.0
GOES_ON_S = 5.0  # a program may go on when one of its many children is killed: it is asked to end then
NAMESPACES = ("net", "pid")
AGENT = "bwbench.network.namespaces.agent"
FORKING = """
: > begun
(setsid sleep 300 &)
(trap '' HUP INT TERM; setsid sh -c 'sleep 300 & sleep 300' </dev/null >/dev/null 2>&1 &)
(env -i /usr/bin/setsid /bin/sleep 300 &)
sleep 60
"""
LINK = ("link", "run", "--nodes=2", "--bandwidth=10 Mbit/s", "--latency=2 ms", "--", "sh", "-c")
COMMANDS = {"forking": (*LINK, FORKING), "link": (*LINK, ": > begun; sleep 60 & wait"), "run": ("run", "killed.yaml")}
KINDS = ("forking", "link", "forking", "run")  # in turn, so that half of the trials fork away
HOWS = ("kill parent", "kill agent", "kill any", "term", "int")
BEGUN = {"forking": "begun", "link": "begun", "run": "results/killed/*/cell.json"}  # there when programs are started
LATEST_S = {"forking": 1.0, "link": 1.0, "run": 6.0}  # after that, or after the start of the command
BEFORE_SHARE = 0.2  # of the trials end at a moment after the start of the command, mostly before anything has begun
BEGIN_LIMIT_S = 120.0  # cells take turns on a machine
EXPERIMENT = """
name: killed
nodes: 2
link: {bandwidth: 100 Mbit/s, latency: 1 ms}
model: mlp
dataset: digits
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 640 samples}
limit: {samples: 1000000000, time: 1 min}
algorithm: ring
"""


@dataclass(frozen=True)
class Ending:
    """What one end left behind.

    Attributes:
        processes: that there were before the end.
        gone_after_s: until the last process, namespace and temporary file was gone; the limit where some are left.
        left: command lines of processes, names of namespaces and files.
    """

    trial: int
    kind: str
    how: str
    moment_s: float
    processes: int
    gone_after_s: float
    went_on: bool
    left: list[str] = field(default_factory=list)


def run_trials(num_trials: int, seed: int, file: Path | None) -> bool:
    """Whether nothing was left of any of them; a line each, and all of them in ``file``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what ignores it at its start, as behind "&", goes on so
    numbers = random.Random(seed)
    rows: list[Ending] = []
    while len(rows) < num_trials:
        kind = KINDS[len(rows) % len(KINDS)]
        row = _trial(len(rows) + 1, kind, numbers.choice(HOWS), numbers.uniform(0.1, LATEST_S[kind]), numbers)
        if row is None:
            continue
        rows.append(row)
        print(
            f"trial {row.trial:3}: {row.kind}, {row.how} after {row.moment_s:5.2f} s",
            f"{row.processes} processes gone after {row.gone_after_s:.2f} s, left {row.left}",
            sep=", ",
            flush=True,
        )
        if file is not None:
            file.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    for (kind, how), count in sorted(Counter((row.kind, row.how) for row in rows).items()):
        those = [row for row in rows if (row.kind, row.how) == (kind, how)]
        slowest_s, bad = max(row.gone_after_s for row in those), sum(bool(row.left) for row in those)
        print(f"{kind:8} {how:12} {count:3} trials, all gone after {slowest_s:.2f} s at most, {bad} left something")
    return not any(row.left for row in rows)


def _trial(number: int, kind: str, how: str, moment_s: float, numbers: random.Random) -> Ending | None:
    """One end; None where the program had ended by itself."""
    tag = f"{os.getpid()}-{number}"
    with contextlib.closing(Belongings(tag)) as belongings, tempfile.TemporaryDirectory() as name:
        folder, temporary = Path(name), Path(name) / "temporary"
        temporary.mkdir()
        (folder / "killed.yaml").write_text(EXPERIMENT)
        command = [sys.executable, "-m", "bwbench.cli.main", *COMMANDS[kind]]
        environment = {**os.environ, TAG: tag, "TMPDIR": str(temporary)}
        with (folder / "messages").open("wb") as messages:
            streams = {"stdin": subprocess.DEVNULL, "stdout": messages, "stderr": messages}
            run = subprocess.Popen(command, cwd=folder, env=environment, **streams)
        if numbers.random() > BEFORE_SHARE:
            _wait_for_begin(run, folder, BEGUN[kind])
        time.sleep(moment_s)
        found = belongings.processes()
        if run.poll() is not None:
            return None
        _end(how, run, found, numbers)
        ended_s, went_on = time.monotonic(), False
        try:
            run.wait(GOES_ON_S if how == "kill any" else LEFT_AFTER_S)
        except subprocess.TimeoutExpired:
            went_on = how == "kill any"
            if went_on:
                run.send_signal(signal.SIGTERM)
                ended_s = time.monotonic()
        while left := _left(belongings, temporary):
            if time.monotonic() - ended_s > LEFT_AFTER_S:
                break
            time.sleep(0.02)
            run.poll()  # so that it does not stay as a zombie
        gone_s = time.monotonic() - ended_s
        for process in belongings.processes():
            process.kill()
        run.wait()
    return Ending(number, kind, how, round(moment_s, 2), len(found), round(gone_s, 2), went_on, left)


def _wait_for_begin(run: subprocess.Popen[bytes], folder: Path, pattern: str) -> None:
    until = time.monotonic() + BEGIN_LIMIT_S
    while not any(folder.glob(pattern)) and run.poll() is None and time.monotonic() < until:
        time.sleep(0.05)


def _end(how: str, run: subprocess.Popen[bytes], found: list[psutil.Process], numbers: random.Random) -> None:
    agents = [process for process in found if AGENT in " ".join(_command(process))]
    try:
        if how == "kill any" and found:
            numbers.choice(found).kill()
        elif how == "kill agent" and agents:
            min(agents, key=lambda agent: agent.pid).kill()
        else:
            run.send_signal({"term": signal.SIGTERM, "int": signal.SIGINT}.get(how, signal.SIGKILL))
    except psutil.NoSuchProcess:  # it has ended by itself in the meantime
        run.kill()


class Belongings:
    """What belongs to one trial: all processes that bear its tag, or are in a namespace that one of those was in.

    Namespaces are held open until ``close``: the kernel gives the number of one that has ended to the next, which may
    be somebody else's.
    """

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._held: dict[str, int] = {}
        self._ordinary = _place(os.getpid())

    def processes(self) -> list[psutil.Process]:
        """Those that are there now."""
        everybody = list(psutil.process_iter())
        tagged = [process for process in everybody if self._is_tagged(process)]
        for process in tagged:
            self._hold(process.pid)
        return [process for process in everybody if process in tagged or self.namespaces_of(process)]

    def namespaces_of(self, process: psutil.Process) -> set[str]:
        """Those of the trial that a process is in."""
        return _place(process.pid) & self._held.keys()

    def close(self) -> None:
        """Let go of the namespaces."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _is_tagged(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(TAG) == self._tag
        except psutil.Error:
            return False

    def _hold(self, pid: int) -> None:
        for kind in NAMESPACES:
            try:
                handle = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
            except OSError:  # it has ended
                continue
            name = f"{kind}:[{os.fstat(handle).st_ino}]"
            if name in self._ordinary or name in self._held:
                os.close(handle)
            else:
                self._held[name] = handle


def _place(pid: int) -> set[str]:
    place = set()
    for kind in NAMESPACES:
        try:
            place.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:  # it has ended
            continue
    return place


def _left(belongings: Belongings, temporary: Path) -> list[str]:
    processes = belongings.processes()
    names = [" ".join(_command(process)) or f"process {process.pid}" for process in processes]
    held = {name for process in processes for name in belongings.namespaces_of(process)}
    return names + sorted(held) + [file.name for file in temporary.iterdir()]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
