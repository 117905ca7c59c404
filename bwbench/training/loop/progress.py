"""How far the training of one rank is: what its loop counts up, and what a checkpoint keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bwbench.training.loop.ledger import LedgerCheck


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

    def state_dict(self) -> dict[str, Any]:
        """Everything that is counted."""
        return {
            "steps": self.steps,
            "payload_bytes": self.payload_bytes,
            "evaluation_s": self.evaluation_s,
            "ledger": self.ledger_check.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], clock_s: float) -> None:
        """Go on from there, at ``clock_s`` of the training clock."""
        self.steps, self.payload_bytes = state["steps"], state["payload_bytes"]
        self.evaluation_s, self.step_end_s = state["evaluation_s"], clock_s
        self.ledger_check.load_state_dict(state["ledger"])
