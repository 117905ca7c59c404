"""The training scripts in examples/, by the commands that its README shows."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = re.sub(r" \\\n\s+", " ", (EXAMPLES / "README.md").read_text())  # commands that go on in the next line
COMMANDS = re.findall(r"^    ((?:torchrun|python|bwbench .*torchrun).*)$", PAGE, re.M)
LIMIT_S = 170.0


def run(command: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, shell=True, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracies(output: str) -> list[float]:
    return [float(value) for value in re.findall(r"rank \d: accuracy ([\d.]+)", output)]


def needing(command: str) -> list[pytest.MarkDecorator]:
    """Marks of what a command needs beyond bwbench itself."""
    marks = [pytest.mark.netns] if command.startswith("bwbench") else []
    for name in ("accelerate", "transformers"):
        if f"{name}_" in command:
            missing = importlib.util.find_spec(name) is None
            marks.append(pytest.mark.skipif(missing, reason="the extra [hf] is not installed"))
    return marks


@pytest.mark.parametrize("command", [pytest.param(command, marks=needing(command)) for command in COMMANDS])
def test_commands_of_the_readme(command: str) -> None:
    found = accuracies(run(command))
    assert len(found) == (4 if "nproc-per-node 4" in command else 2)
    assert all(accuracy > 0.8 for accuracy in found), found


def test_all_commands_were_found() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["torchrun", "python", "torchrun", "torchrun", "bwbench"]


def test_one_process_needs_no_torchrun() -> None:
    assert accuracies(run("python torchrun_digits.py"))[0] > 0.8


def test_a_misspelt_algorithm_is_said() -> None:
    with pytest.raises(AssertionError, match="unknown algorithm 'rin'. Did you mean 'ring'"):
        run("python torchrun_digits.py rin")
