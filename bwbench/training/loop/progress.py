"""How far the training of one rank is: what its loop counts up, and what a checkpoint keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict


class LedgerSums(TypedDict):
    """What ``LedgerCheck`` has added up."""

    off_s: float
    total_s: float
    worst_step: float


class LedgerCheck:
    """Whether the parts of all steps add up: the contract allows 2 %."""

    def __init__(self) -> None:
        self._off_s = self._total_s = 0.0
        self.worst_step = 0.0

    def add(self, error_s: float, duration_s: float) -> None:
        """Take in one step: how far its parts are from adding up, and how long it was."""
        self._off_s += error_s
        self._total_s += duration_s
        self.worst_step = max(self.worst_step, error_s / duration_s if duration_s > 0 else 0.0)

    def state_dict(self) -> LedgerSums:
        """The sums so far."""
        return {"off_s": self._off_s, "total_s": self._total_s, "worst_step": self.worst_step}

    def load_state_dict(self, state: LedgerSums) -> None:
        """Go on from these sums."""
        self._off_s, self._total_s, self.worst_step = state["off_s"], state["total_s"], state["worst_step"]

    @property
    def error(self) -> float:
        """Sum of the differences over the sum of the steps; errors of single steps cannot cancel each other."""
        return self._off_s / self._total_s if self._total_s > 0 else 0.0


class SavedProgress(TypedDict):
    """What a checkpoint keeps of ``Progress``."""

    steps: int
    payload_bytes: int
    evaluation_s: float
    ledger: LedgerSums


@dataclass
class Progress:
    """Counters of one rank, from the begin of the training.

    Attributes:
        global_batch: samples of one optimizer step over all nodes.
        steps: optimizer steps.
        payload_bytes: sent by this rank.
        evaluation_s: spent evaluating.
        step_end_s: training clock at the end of the last step.
        ledger_check: of all steps.
    """

    global_batch: int
    steps: int = 0
    payload_bytes: int = 0
    evaluation_s: float = 0.0
    step_end_s: float = 0.0
    ledger_check: LedgerCheck = field(default_factory=LedgerCheck)

    @property
    def samples(self) -> int:
        """Trained on, over all nodes."""
        return self.steps * self.global_batch

    def state_dict(self) -> SavedProgress:
        """Everything that is counted."""
        return {
            "steps": self.steps,
            "payload_bytes": self.payload_bytes,
            "evaluation_s": self.evaluation_s,
            "ledger": self.ledger_check.state_dict(),
        }

    def load_state_dict(self, state: SavedProgress, clock_s: float) -> None:
        """Go on from there, at ``clock_s`` of the training clock."""
        self.steps, self.payload_bytes = state["steps"], state["payload_bytes"]
        self.evaluation_s, self.step_end_s = state["evaluation_s"], clock_s
        self.ledger_check.load_state_dict(state["ledger"])
