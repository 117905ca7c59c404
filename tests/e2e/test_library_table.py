"""The table of benchmarks/library_table.py in its cases that matter most: processes that train wrong, die or hang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "library_table.py"
EXPECTED = {
    "frozen later": "right",
    "a parameter used on one rank only": "right",
    "GradScaler with an infinity on one rank": "right",
    "QAdam after its warm-up, clipping by norm": "right",
    "gradients set by hand (autograd.grad), no backward pass": "right",
    "p.data replaced by the user, with local-sgd": "right",
    "uneven batches, with join() and AdamW": "right",
    "unfrozen later": "refused",
    "other shape of equal size on one rank": "refused",
    "other size on one rank": "refused",
    "another layer frozen on one rank": "refused",
    "other method on one rank: ring, bytegrad": "refused",
    "model wrapped in FSDP": "refused",
    "step inside of the backward pass, one optimizer a parameter": "refused",
    "a rank ends early without a word": "ended",
}


def test_nothing_trains_silently_wrong_and_no_process_is_aborted(tmp_path: Path) -> None:
    record = tmp_path / "table.json"
    options = ["--ranks", "2", "--arm", "bwbench", "--case", *EXPECTED, "--json", str(record)]
    ended = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True, timeout=250)
    found = {row["case"]: row["bwbench"]["word"] for row in json.loads(record.read_text())["rows"]}
    assert found == EXPECTED, ended.stdout
    assert ended.returncode == 0, ended.stderr
