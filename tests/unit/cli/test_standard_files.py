"""What the three standard files are does no harm."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMAND = f"{sys.executable} -m bwbench.cli.main list collectives"


@pytest.mark.parametrize(
    ("redirected", "status", "said"),
    [
        ("<&- >&- 2>&-", 0, ""),
        ("> /dev/full", 3, "error: cannot write the output: No space left on device"),
        ("2> /dev/full", 0, ""),
    ],
)
def test_closed_and_full_ones(redirected: str, status: int, said: str) -> None:
    ended = subprocess.run(["sh", "-c", f"{COMMAND} {redirected}"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == status
    assert ended.stderr.startswith(said) and ended.stderr.count("\n") == bool(said)
