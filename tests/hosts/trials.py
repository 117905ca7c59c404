"""Experiments in a lab: writing them, and what is left of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.e2e.program import TINY, wait_for
from tests.hosts.lab import Lab

TORCHRUN = "bwbench.training.loop.torchrun"  # a host's
CONTENT: dict[str, Any] = yaml.safe_load(TINY) | {"link": "unshaped", "launcher": "ssh", "algorithm": "ring-fp16"}
del CONTENT["nodes"]


def written(made: Lab, name: str = "tiny", **changes: Any) -> Path:
    content = CONTENT | {"hosts": made.inventory(), "name": name} | changes
    path = made.home / f"{name}.yaml"
    path.write_text(json.dumps(content))
    return path


def status(made: Lab, name: str) -> dict[str, Any]:
    (found,) = [json.loads(file.read_text()) for file in made.home.glob(f"results/{name}/*/status.json")]
    return dict(found)


def nothing_left(made: Lab) -> None:
    wait_for(lambda: not made.left(), 20, f"the end of {made.left()}", every_s=0.5)
    assert not made.leftovers()


def on_host(made: Lab, number: int, module: str) -> list[psutil.Process]:
    """Processes of one host that run a module of ours; there may be other labs on this machine."""
    home = str(made.folder / f"host{number}")
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == home and module in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found
