"""Runs the command line as a user would, and looks at what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

BWBENCH = [sys.executable, "-m", "bwbench.cli.main"]
TAG = "BWBENCH_TEST_FOLDER"  # in the environment of everything that a test starts

_started: list[subprocess.Popen[bytes]] = []

TINY = """
name: tiny
nodes: 2
link: {bandwidth: 100 Mbit/s, latency: 1 ms}
model: logistic
dataset: digits
batch_size: 32
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 640 samples}
target: {accuracy: 0.99}
limit: {samples: 1280}
"""


def run(*arguments: str, cwd: Path, timeout_s: float = 280.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """``bwbench ARGUMENTS`` to its end."""
    return subprocess.run(
        [*BWBENCH, *arguments],
        cwd=cwd,
        env={**os.environ, TAG: str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def start(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[bytes]:
    """``bwbench ARGUMENTS`` in the background, with its messages in ``cwd``/messages."""
    environment = {**os.environ, TAG: str(cwd), **environment}
    with (cwd / "messages").open("ab") as messages:
        command = [*BWBENCH, *arguments]
        _started.append(subprocess.Popen(command, cwd=cwd, env=environment, stdout=messages, stderr=messages))
    return _started[-1]


def end_started() -> None:
    """End what ``start`` began and a test that failed has left running."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def status_of(results: Path, **wanted: str) -> dict[str, dict[str, Any]]:
    """status.json of every cell below ``results`` by arm."""
    found = {}
    for file in results.glob("*/*/status.json"):
        cell = json.loads((file.parent / "cell.json").read_text())
        found[cell["arm"]] = json.loads(file.read_text())
    return found


def family(folder: Path) -> list[psutil.Process]:
    """Processes that descend from a ``bwbench`` started in ``folder``, wherever they hang now; itself left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TAG) == str(folder) and "bwbench.cli.main" not in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for_message(text: str, limit_s: float, process: subprocess.Popen[bytes], cwd: Path) -> None:
    """Until ``process``, started in ``cwd``, has said ``text``; fails with all it said where it ends or is late."""
    messages = cwd / "messages"
    deadline = time.monotonic() + limit_s
    while text not in messages.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"no {text!r} within {limit_s} s (exit {process.poll()}):\n{messages.read_text()}")
        time.sleep(0.05)


def wait_for(condition: Any, limit_s: float, what: str, every_s: float = 0.05) -> Any:
    """The first true value of ``condition()``; fails the test after ``limit_s``.

    Args:
        every_s: between two looks; longer where one starts programs, which take the processor from what is waited for.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(every_s)
    raise AssertionError(f"waited {limit_s} s for {what}")
