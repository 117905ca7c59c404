"""What users do with scripts of their own is right, or refused by name: some cases of the table in benchmarks/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_nothing_trains_wrong_without_a_word() -> None:
    command = [sys.executable, "benchmarks/library_table.py", "--quick", "--ranks", "2", "--arm", "bwbench"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=380)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bwbench: 0 not right and not refused by name" in result.stdout
