"""One attempt at a cell: what it goes on from, how its workers ended, and what status.json says of it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.experiment.plan.cell import Cell
from bwbench.records import CellFolder
from bwbench.records.checkpoint import (
    Checkpoint,
    delete_checkpoints,
    delete_unfinished,
    find_checkpoint,
    has_checkpoint,
)
from bwbench.records.schema import (
    Carried,
    End,
    Ending,
    Environment,
    JsonObject,
    LinkRecord,
    Resumed,
    Status,
    WireTraffic,
)
from bwbench.results.analysis.trial import summarise

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


@dataclass(frozen=True)
class LaunchOutcome:
    """Status of the group with the reason, the ranks' end events, and the traffic counted where shaping happens.

    Attributes:
        lateness: of the emulator between the same two moments, see ``network/namespaces/backend.py``.
    """

    status: Ending
    reason: str
    ends: dict[int, End] = field(default_factory=dict)
    wire: WireTraffic | None = None
    lateness: JsonObject | None = None


def describe_exit(returncode: int) -> str:
    """Words for an exit status: ``was killed by SIGKILL`` or ``exited with status 1``."""
    if returncode < 0:
        try:
            return f"was killed by {signal.Signals(-returncode).name}"
        except ValueError:
            return f"was killed by signal {-returncode}"
    return f"exited with status {returncode}"


def cell_status(cell: Cell, attempt: Path, outcome: LaunchOutcome, link: LinkRecord, resumption: Resumption) -> Status:
    """How the cell ended, and what the records say about the trial.

    Args:
        attempt: its folder, inside the cell's.
    """
    folder, wall_s = CellFolder(attempt.parent), resumption.wall_s
    config = cell.config.model_dump(mode="json", by_alias=True)
    try:
        events = folder.events()
    except RecordError as error:  # a damaged disk: how it ended is recorded all the same
        ended = "failed" if outcome.status == "done" else outcome.status
        events, outcome = {}, LaunchOutcome(ended, f"{outcome.reason}; {error}")
    summary = summarise(events, config, link.wire)
    declared_s = cell.config.compute.step_time_s
    if outcome.status == "done" and declared_s is not None and (summary.compute_median_s or 0.0) > declared_s:
        reason = f"a step computes for {summary.compute_median_s:.3g} s, longer than the declared step_time"
        outcome = LaunchOutcome("invalid", f"{reason}; declare more, or let nothing else run here")
    return Status(
        id=cell.id,
        slug=cell.slug,
        status=outcome.status,
        reason=outcome.reason,
        attempt=int(attempt.name.rpartition("-")[2]),
        resumed_from=resumption.resumed_from,
        resume_refused=resumption.refused,
        wall_s=wall_s,
        overhead_s=wall_s - (summary.training_clock_s or 0.0) - (summary.evaluation_s or 0.0),
        **dict(summary),
    )
