"""Which Ray cluster is meant, and whether it answers: asked in a process of its own, because Ray waits for minutes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys

from bwbench.base.errors import ConfigError, UnfitMachineError

LIMIT_S = 45.0  # from the start of Python to an answer of a cluster that is busy
_ADDRESS = re.compile(r"ray(://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5}))?")
_ENDING = "bwbench-connected:"

# Ray's own limits add up to more than two minutes, some inside calls that no signal interrupts, and some of its
# failures end the process.
_TRY = f"""
import json, sys
import ray
try:
    ray.init(address=json.loads(sys.argv[1]), log_to_driver=False, logging_level="error")
    ray.shutdown()
    print("{_ENDING}")
except BaseException as error:
    print("{_ENDING}" + json.dumps(f"{{type(error).__name__}}: {{error}}"))
"""


def ray_address(on: str) -> str:
    """What ``ray.init`` takes for the text after ``--on``: ``ray`` (the cluster of this machine, or RAY_ADDRESS) or ``ray://HOST:PORT``.

    Raises ConfigError for any other text, and where Ray is not installed.
    """
    match = _ADDRESS.fullmatch(on)
    if match is None or not 0 < int(match["port"] or 1) < 65536:
        raise ConfigError(f"--on {on!r}: write ray, or ray://HOST:PORT with the port of Ray's client server (10001)")
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("--on ray needs Ray, which is not installed here; get it with: pip install 'bwbench[ray]'")
    if match["host"] is not None:
        return on
    return os.environ.get("RAY_ADDRESS") or "auto"


def check_answers(address: str, limit_s: float = LIMIT_S) -> None:
    """Connect and leave again. Raises UnfitMachineError with what Ray says, or where it says nothing in time."""
    where = "no Ray cluster of this machine" if address == "auto" else f"no Ray cluster at {address}"
    start = "; start one with `ray start --head`, see docs/cluster.md" if address == "auto" else ""
    command = [sys.executable, "-c", _TRY, json.dumps(address)]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise UnfitMachineError(f"{where} has answered within {limit_s:.0f} s{start}") from None
    lines = [line for line in result.stdout.decode(errors="replace").splitlines() if line.startswith(_ENDING)]
    if not lines:
        raise UnfitMachineError(f"{where} can be used: Ray ended with exit status {result.returncode}{start}")
    if said := lines[-1].removeprefix(_ENDING):
        text = " ".join(str(json.loads(said)).split())
        hint = "" if "ersion" in text else start
        raise UnfitMachineError(f"{where} can be used{hint}. Ray says: {text}")
