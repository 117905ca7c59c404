"""How far a rank is, and checkpoints: what one holds, when they are taken, and how all ranks take the same, or none."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict

import torch
from typing_extensions import NotRequired

from bwbench.base.plain_data import JsonObject
from bwbench.experiment.config import CellConfig
from bwbench.methods.memory import SavedMethod, State, load_saved_state, saved_state
from bwbench.records.checkpoint import complete, unfinished, write_rank
from bwbench.records.schema import Carried, CheckpointPlace
from bwbench.training.loop.arrival_watch import ArrivalWatch, SavedWatch
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.feed import AnyFeed
from bwbench.training.loop.recorder import Channel, Recorder
from bwbench.training.loop.replica import Replica, copy_of, put_back
from bwbench.training.loop.trial_parts import Trial


@dataclass
class LedgerCheck:
    """Whether the parts of all steps add up: the contract allows 2 %."""

    off_s: float = 0.0
    total_s: float = 0.0
    worst_step: float = 0.0

    def add(self, error_s: float, duration_s: float) -> None:
        """Take in one step: how far its parts are from adding up, and how long it was."""
        self.off_s += error_s
        self.total_s += duration_s
        self.worst_step = max(self.worst_step, error_s / duration_s if duration_s > 0 else 0.0)

    @property
    def error(self) -> float:
        """Sum of the differences over the sum of the steps; errors of single steps cannot cancel each other."""
        return self.off_s / self.total_s if self.total_s > 0 else 0.0


class SavedProgress(TypedDict):
    """What a checkpoint keeps of ``Progress``."""

    steps: int
    payload_bytes: int
    control_bytes: int
    evaluation_s: float
    ledger: dict[str, float]
    watch: NotRequired[SavedWatch]  # of checkpoints before the test split was looked at on the way


@dataclass
class Progress:
    """Counters of one rank, from the begin of the training.

    Attributes:
        global_batch: samples of one optimizer step over all nodes.
        steps: optimizer steps.
        payload_bytes: sent by this rank; control_bytes: by its control path, while the training clock ran.
        evaluation_s: spent evaluating.
        step_end_s: training clock at the end of the last step.
        ledger_check: of all steps.
        watch: says when the test split is looked at.
    """

    global_batch: int
    steps: int = 0
    payload_bytes: int = 0
    control_bytes: int = 0
    evaluation_s: float = 0.0
    step_end_s: float = 0.0
    ledger_check: LedgerCheck = field(default_factory=LedgerCheck)
    watch: ArrivalWatch = field(default_factory=ArrivalWatch)

    @property
    def samples(self) -> int:
        """Trained on, over all nodes."""
        return self.steps * self.global_batch

    def state_dict(self) -> SavedProgress:
        """Everything that is counted."""
        return {
            "steps": self.steps,
            "payload_bytes": self.payload_bytes,
            "control_bytes": self.control_bytes,
            "evaluation_s": self.evaluation_s,
            "ledger": asdict(self.ledger_check),
            "watch": self.watch.state_dict(),
        }

    def load_state_dict(self, state: SavedProgress, clock_s: float) -> None:
        """Go on from there, at ``clock_s`` of the training clock."""
        self.steps, self.payload_bytes = state["steps"], state["payload_bytes"]
        self.control_bytes = state["control_bytes"]
        self.evaluation_s, self.step_end_s = state["evaluation_s"], clock_s
        self.ledger_check = LedgerCheck(**state["ledger"])
        self.watch = ArrivalWatch.saved(state["watch"]) if "watch" in state else ArrivalWatch()


class SavedTrial(TypedDict):
    """Everything that the training of one rank depends on.

    Training that goes on from it takes the same steps, to the bit, as one that was never interrupted; but for
    algorithms whose results depend on when a thread gets its turn (``async``, ``overlap: auto``, hivemind).
    """

    replica: Replica
    method: SavedMethod
    feed: dict[str, int]
    progress: SavedProgress
    clock_s: float
    averaged: NotRequired[State]  # weights, where they are averaged


def save_trial(trial: Trial, feed: AnyFeed, progress: Progress, clock_s: float) -> SavedTrial:
    """Copies, in types that ``torch.load(..., weights_only=True)`` reads; the algorithm is drained."""
    control = trial.groups.control
    saved: SavedTrial = {
        "replica": copy_of(trial.model, trial.optimizer),
        "method": saved_state(trial.method, control.rank, control.size, _method(trial.config)),
        "feed": feed.state_dict(),
        "progress": progress.state_dict(),
        "clock_s": clock_s,
    }
    if trial.averaged is not None:
        saved["averaged"] = trial.averaged.state_dict()
    return saved


def restore_trial(saved: SavedTrial, trial: Trial, feed: AnyFeed, progress: Progress) -> float:
    """Put everything back, whatever the warm-up has left; returns the training clock in seconds.

    Raises ValueError where the state is another rank's, or of another method or number of ranks.
    """
    control = trial.groups.control
    put_back(saved["replica"], trial.model, trial.optimizer)
    load_saved_state(trial.method, saved["method"], control.rank, control.size, _method(trial.config))
    if trial.averaged is not None:
        trial.averaged.load_state_dict(saved["averaged"])
    feed.load_state_dict(saved["feed"])
    progress.load_state_dict(saved["progress"], saved["clock_s"])
    return saved["clock_s"]


def _method(config: CellConfig) -> JsonObject:
    return {
        "algorithm": config.algorithm.to_json(),
        "collective": config.collective.to_json(),
        "compression": [codec.to_json() for codec in config.compression],
    }


class Checkpoints:
    """Takes a checkpoint now and then, off the clock, on all ranks at the same evaluation.

    A checkpoint that cannot be taken is said in the rank's log, and training goes on: the last one stays.

    Args:
        attempt: folder of this rank's records.
        interval_s: at least so long after the start and after the one before.
        resumed_from: the checkpoint that this training goes on from; deleted once there is a newer one.
    """

    def __init__(
        self,
        attempt: Path,
        interval_s: float,
        control: ControlPath,
        recorder: Recorder,
        channel: Channel,
        resumed_from: Path | None = None,
    ) -> None:
        self._attempt, self._interval_s = attempt, interval_s
        self._control, self._recorder, self._channel = control, recorder, channel
        self._resumed_from = resumed_from
        self._last_mono_s = time.monotonic()

    def resumed(self) -> tuple[int, SavedTrial] | None:
        """The number of the attempt to go on from, and what this rank left there; None to begin at step 0."""
        if self._resumed_from is None:
            return None
        state = torch.load(self._resumed_from / f"rank{self._control.rank}.pt", map_location="cpu", weights_only=True)
        return int(self._resumed_from.parent.name.rpartition("-")[2]), state

    def take_if_due(self, progress: Progress, clock_s: float, save: Callable[[], SavedTrial]) -> None:
        """Take one where it is time; all ranks call it at the same evaluation, drained, with their clocks held.

        Args:
            save: gives what this rank needs to go on from here.
        """
        due = time.monotonic() - self._last_mono_s >= self._interval_s
        if not self._control.any(due):  # their clocks differ a little, and all have to do the same
            return
        answer = self._channel.phase("checkpoint")
        if why_not := answer.get("unfit"):
            print(f"no checkpoint after step {progress.steps}: {why_not}", file=sys.stderr)
        else:
            self._take(progress, clock_s, save, Carried.model_validate(answer.get("carried") or {}))
        self._channel.phase("going on")
        self._last_mono_s = time.monotonic()

    def _take(self, progress: Progress, clock_s: float, save: Callable[[], SavedTrial], carried: Carried) -> None:
        folder, rank = unfinished(self._attempt, progress.steps), self._control.rank
        place = CheckpointPlace(
            step=progress.steps,
            samples=progress.samples,
            clock_s=clock_s,
            world_size=self._control.size,
            carried=carried,
        )
        failed = False
        try:
            self._recorder.writer.sync()
            file = io.BytesIO()
            torch.save(save(), file)
            write_rank(folder, rank, file.getbuffer(), place, self._attempt / f"rank{rank}.jsonl")
        except OSError as error:  # a full disk, most likely
            failed = True
            print(f"no checkpoint after step {progress.steps}: {error}", file=sys.stderr)
        failed = self._control.any(failed)
        if rank != 0:
            return
        if failed:
            shutil.rmtree(folder, ignore_errors=True)
            return
        try:
            complete(folder, progress.steps)
        except OSError as error:
            print(f"no checkpoint after step {progress.steps}: {error}", file=sys.stderr)
            return
        if self._resumed_from is not None:
            shutil.rmtree(self._resumed_from, ignore_errors=True)
