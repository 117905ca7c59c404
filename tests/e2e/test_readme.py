"""The three commands of the README's first screen, word for word, from an empty folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?:^    \S.*\n)+", TEXT, re.MULTILINE)[0]
LIMIT_S = 900.0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which `make setup` only writes down what it would install: this bwbench is there already."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "pip").write_text(f"#!/bin/sh\necho $* >> '{tmp_path}/installed'\n")
    start = "import sys; sys.argv[0] = 'bwbench'; from bwbench.cli.main import main; main()"
    (tools / "bwbench").write_text(f'#!/bin/sh\nexec \'{sys.executable}\' -c "{start}" "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return tmp_path


@pytest.mark.netns
@pytest.mark.timeout(LIMIT_S)
def test_the_three_commands(checkout: Path) -> None:
    script = "set -e\n" + re.sub(r"^    ", "", COMMANDS, flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", script], cwd=checkout, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "torch" in (checkout / "installed").read_text()
    assert "one repeat" in done.stdout.lower() or "once" in done.stdout, "the demo says how sure its answer is"
    assert list((checkout / "results").glob("**/*.png"))
    (experiment,) = checkout.glob("*.yaml")
    assert yaml.safe_load(experiment.read_text())["nodes"] == 4
