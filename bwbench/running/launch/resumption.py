"""What an attempt goes on from: a checkpoint of an earlier one, or nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from bwbench.records.checkpoint import (
    Checkpoint,
    delete_checkpoints,
    delete_unfinished,
    find_checkpoint,
    has_checkpoint,
)
from bwbench.records.schema import Carried, Environment, Resumed, WireTraffic

# A cell that ended like this may be run again, and then need not begin at step 0. Others are done, or would end alike.
KEPT_AFTER = ("interrupted", "timeout", "failed")


@dataclass(frozen=True)
class Resumption:
    """The part of a cell that earlier attempts have done; nothing by default.

    Attributes:
        checkpoint: to go on from; None begins at step 0.
        refused: why a checkpoint that is there is not gone on from.
        began_mono_s: when this attempt began.
    """

    checkpoint: Checkpoint | None = None
    refused: str | None = None
    began_mono_s: float = field(default_factory=time.monotonic)

    @classmethod
    def look_for(cls, cell: Path, num_ranks: int, environment: Environment) -> Resumption:
        """What there is to go on from in a cell's folder, in the environment of a new attempt."""
        return cls(*find_checkpoint(cell, num_ranks, environment))

    @property
    def words(self) -> str | None:
        """What to tell the user; None where there was no checkpoint."""
        if self.checkpoint is not None:
            return f"going on from step {self.checkpoint.step} of attempt {self.checkpoint.attempt}"
        return f"beginning at step 0: {self.refused}" if self.refused else None

    def begin(self, attempt: Path) -> None:
        """Let the records of ``attempt`` begin with what was done before. Raises OSError."""
        delete_unfinished(attempt.parent)
        if self.checkpoint is not None:
            self.checkpoint.begin(attempt)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that tell a worker."""
        return {"BWBENCH_CHECKPOINT_DIR": str(self.checkpoint.folder) if self.checkpoint else ""}

    @property
    def wall_s(self) -> float:
        """Seconds of this attempt so far and of the earlier ones up to the checkpoint."""
        return self._carried.wall_s + time.monotonic() - self.began_mono_s

    @property
    def played_s(self) -> float:
        """How far traces and outages had got; 0 where training begins."""
        return self._carried.played_s

    def traffic(self, since: WireTraffic) -> WireTraffic:
        """All traffic of the training: ``since`` the start of this attempt, and what was counted before."""
        before = self._carried.wire
        return since if before is None else since.plus(before)

    @property
    def resumed_from(self) -> Resumed | None:
        """As status.json has it."""
        found = self.checkpoint
        return None if found is None else Resumed(attempt=found.attempt, step=found.step, clock_s=found.clock_s)

    def tidy(self, attempt: Path, status: str) -> None:
        """Delete checkpoints that nobody will go on from, once ``attempt`` has ended with ``status``.

        One from which training has failed before it got to the next is not tried twice.
        """
        stuck = status == "failed" and self.checkpoint is not None and not has_checkpoint(attempt)
        if stuck or status not in KEPT_AFTER:
            delete_checkpoints(attempt.parent)

    @property
    def _carried(self) -> Carried:
        return self.checkpoint.carried if self.checkpoint is not None else Carried()
