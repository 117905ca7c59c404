"""Checkpoints that no training has taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bwbench.records.checkpoint import complete, unfinished, write_rank
from bwbench.records.schema import Carried, CheckpointPlace

NOW = {"host": "here", "cpu": "x", "packages": {"torch": "2.9"}, "git": {"commit": "a" * 40}, "source_sha256": "0" * 64}
FACTS = {"samples": 640, "clock_s": 1.5, "world_size": 2, "carried": Carried(wall_s=9.0)}
RANKS = (0, 1)


def take(cell: Path, attempt: int, step: int, **changes: Any) -> Path:
    """A checkpoint of two ranks, as workers take it; the records have gone on since."""
    folder = cell / f"attempt-{attempt}"
    folder.mkdir(exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(NOW))
    for rank in RANKS:
        events = folder / f"rank{rank}.jsonl"
        with events.open("a") as file:
            file.write(f'{{"event":"step","step":{step}}}\n')
        state = memoryview(f"state of rank {rank} after {step} steps".encode())
        write_rank(unfinished(folder, step), rank, state, CheckpointPlace(**{**FACTS, "step": step, **changes}), events)
    done = complete(unfinished(folder, step), step)
    for rank in RANKS:
        with (folder / f"rank{rank}.jsonl").open("a") as file:
            file.write('{"event":"step","lost":true}\n{"ev')
    return done
