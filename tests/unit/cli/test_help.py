"""``bwbench --help`` is there at once, and groups whose commands are loaded late are like any other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bwbench.cli.main import _run

HEAVY = ("torch", "numpy", "pydantic", "yaml", "pandas", "matplotlib")


def test_help_loads_nothing_that_it_can_do_without() -> None:
    code = "import sys; from bwbench.cli.main import _run; _run(['--help']); print(*sys.modules, file=sys.stderr)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    )
    assert not loaded & {*HEAVY, "bwbench.base.registry", "bwbench.cli.link.link_commands"}


def test_the_commands_of_link_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["link", "--help"]) == 0
    shown = capsys.readouterr().out
    order = [shown.index(f" {name} ") for name in ("verify", "run", "presets", "show", "record", "apply", "clear")]
    assert order == sorted(order)
    assert _run(["link", "shwo"]) == 2
    assert "Did you mean 'show'?" in capsys.readouterr().err
