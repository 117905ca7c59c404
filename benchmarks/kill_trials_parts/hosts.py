"""Faults while four hosts train over ssh with shaped interfaces: what ends, how soon, and whether all is as before.

The hosts are namespaces, each with its sshd, its interface and its home (``tests/hosts/lab.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bwbench.network.emulate import NodePopen

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.hosts.lab import Lab, lab  # noqa: E402
from tests.hosts.trials import TORCHRUN, on_host, status, written  # noqa: E402

NUM_HOSTS = int(os.environ.get("BWBENCH_TEST_HOSTS", "4"))  # with fewer a trial takes less of this machine
TRIALS_A_LAB = 10  # then a new one: its logs grow
_OURS = re.compile(r"\bhtb\b|\bbw-")  # while an interface is down it shows other qdiscs than before
LINK = {"bandwidth": "50 Mbit/s"}
LATEST_FAULT_S = 5.0  # after training has begun
GIVE_UP_S = 150.0  # far beyond what is allowed, so that it can be told by how much
# From the fault until nothing of it runs and all interfaces are as before: a silence of 30 s ends a run, and what is
# then told to stop has 20 s; a lease lasts 15 s.
LIMITS_S = {"torchrun": 40.0, "controller": 75.0, "silence": 75.0, "sshd": 75.0, "interface": 75.0}


@dataclass(frozen=True)
class Row:
    """What one fault led to.

    Attributes:
        host: number of the host that it happened to; None for the controller.
        after_s: from the start of training to the fault.
        back_s: from the fault until interfaces were as before and nothing ran any more; None where that never was.
        status, reason: of the cell's record; a controller that is killed leaves none.
        named: the reason names the host.
        num_hosts: that trained.
    """

    trial: int
    fault: str
    host: int | None
    after_s: float
    back_s: float | None
    status: str
    reason: str
    named: bool
    num_hosts: int = 4

    @property
    def good(self) -> bool:
        """In time, and named in the record where there can be one."""
        in_time = self.back_s is not None and self.back_s <= LIMITS_S[self.fault]
        return in_time and (self.fault == "controller" or (self.status == "failed" and self.named))


def one_trial(made: Lab, number: int, seed: int) -> Row:
    """Trial ``number``: every fault has its turn; host and moment are drawn."""
    drawn = random.Random(f"{seed} {number}")
    fault = sorted(LIMITS_S)[number % len(LIMITS_S)]
    host, after_s = drawn.randrange(NUM_HOSTS), drawn.uniform(0, LATEST_FAULT_S)
    before, name = made.shaping(), f"trial-{number}"
    # Declared steps: four hosts that share a machine's cores would be busy with computing alone.
    written(made, name, link=LINK, limit={"samples": 50_000_000}, compute={"threads": 1, "step_time": "200 ms"})
    process = made.start("run", f"{name}.yaml")
    made.await_training()
    time.sleep(after_s)
    began_s = time.monotonic()
    _harm(made, fault, host, process)
    back_s = None
    while back_s is None and time.monotonic() - began_s < GIVE_UP_S:
        time.sleep(1.0)
        if not made.left() and not any(_OURS.search(shown) for shown in made.shaping()):  # the cheaper one first
            back_s = time.monotonic() - began_s
    if fault == "silence":
        process.send_signal(signal.SIGCONT)
    with contextlib.suppress(Exception):
        process.wait(GIVE_UP_S)
    process.kill()
    _mend(made, fault, host)
    if made.shaping() != before:
        back_s = None
    found = {"status": "", "reason": ""}
    with contextlib.suppress(ValueError, OSError):
        found = status(made, name)
    reason = str(found["reason"])
    named = "controller" in reason if fault == "silence" else made.hosts[host].address in reason
    where = None if fault in ("controller", "silence") else host
    return Row(number, fault, where, after_s, back_s, str(found["status"]), reason, named, NUM_HOSTS)


def _harm(made: Lab, fault: str, host: int, controller: NodePopen) -> None:
    node = made.hosts[host]
    if fault == "controller":
        controller.kill()
    elif fault == "silence":
        controller.send_signal(signal.SIGSTOP)
    elif fault == "torchrun":
        found = on_host(made, host, TORCHRUN)
        max(found, key=lambda process: process.create_time()).kill()
    elif fault == "sshd":
        made.kill_sshd(host)
    else:
        node.run(["ip", "link", "set", node.interface, "down"], timeout=20, check=True)


def _mend(made: Lab, fault: str, host: int) -> None:
    node = made.hosts[host]
    if fault == "interface":
        node.run(["ip", "link", "set", node.interface, "up"], timeout=20, check=True)
    elif fault == "sshd":
        made.start_sshd(host)
        made.await_sshd(host)


def run_trials(num_trials: int, seed: int, json_file: Path | None) -> bool:
    """Whether every fault ended as it has to; rows are kept in ``json_file``, where the next call goes on."""
    rows: list[Row] = []
    if json_file is not None and json_file.exists():
        rows = [Row(**row) for row in json.loads(json_file.read_text())["rows"]]
    done = {row.trial for row in rows}  # parts of them may have been run by themselves
    left = [number for number in range(num_trials) if number not in done]
    while left:
        with tempfile.TemporaryDirectory() as folder, lab(Path(folder), NUM_HOSTS) as made:
            for number in left[:TRIALS_A_LAB]:
                rows.append(row := one_trial(made, number, seed))
                back = "never" if row.back_s is None else f"{row.back_s:.1f} s"
                mark = "ok" if row.good else "WRONG"
                print(
                    f"{mark:5} {row.trial:3} {row.fault:10} host {row.host}: back after {back}; {row.reason}",
                    flush=True,
                )
                if json_file is not None:
                    json_file.write_text(json.dumps({"rows": [asdict(each) for each in rows]}, indent=1) + "\n")
        left = left[TRIALS_A_LAB:]
    for fault, limit_s in LIMITS_S.items():
        of_it = [row for row in rows if row.fault == fault]
        if of_it:
            longest_s = max((row.back_s or GIVE_UP_S) for row in of_it)
            good = sum(row.good for row in of_it)
            print(
                f"{fault:10} {good} of {len(of_it)} as they have to, at most {longest_s:.1f} s (allowed {limit_s:g} s)"
            )
    return all(row.good for row in rows)
