"""A broken checkpoint is refused with a reason, or not touched by what is broken; nothing raises, nothing hangs."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from fixtures_broken import break_one
from fixtures_checkpoints import NOW, take

from bwbench.records.checkpoint import delete_checkpoints, find_checkpoint, has_checkpoint
from bwbench.records.schema import Environment

MUTATIONS = 400


@pytest.mark.timeout(300)
def test_checkpoints(tmp_path: Path) -> None:
    whole, secret = tmp_path / "whole", tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("secret")
    whole.mkdir()
    take(whole, 1, 10)
    take(whole, 2, 20)
    rng, now, refusals = random.Random(5), Environment.model_validate(NOW), 0
    for number in range(MUTATIONS):
        cell = tmp_path / "cell"
        shutil.copytree(whole, cell)
        files = sorted(file for file in (cell / "attempt-2").rglob("*") if file.suffix != ".log")
        broken = rng.choice(files)
        break_one(broken, rng, secret)
        begun = time.process_time()
        try:
            checkpoint, why_not = find_checkpoint(cell, 2, now)
            if checkpoint is not None:
                (cell / "attempt-3").mkdir()
                checkpoint.begin(cell / "attempt-3")
                assert checkpoint.attempt == 2 or why_not or not has_checkpoint(cell / "attempt-2")
            delete_checkpoints(cell)
        except Exception as error:
            raise AssertionError(f"mutation {number}, of {broken.relative_to(cell)}") from error
        assert time.process_time() - begun < 5
        assert secret.read_text() == "secret"
        refusals += why_not is not None
        shutil.rmtree(cell)
    assert refusals > MUTATIONS / 2, "most changes make no checkpoint"
