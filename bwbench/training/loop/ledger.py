"""Where the time of a step goes."""

from __future__ import annotations

from bwbench.methods.algorithms import ExchangeReport
from bwbench.records.schema import LedgerParts
from bwbench.training.loop.clock import TrainingClock

PARTS = tuple(LedgerParts.model_fields)


class StepLedger:
    """Books the time of one step, in training seconds.

    ``lap`` books all the time since the lap before, so that no moment is lost or counted twice. Only ``exchange`` takes
    over figures that were measured elsewhere; ``error`` says how well they fit.
    """

    def __init__(self, clock: TrainingClock) -> None:
        self._clock = clock
        self.begin_s = self._last_s = clock.now_s()
        self.parts = dict.fromkeys(PARTS, 0.0)

    def lap(self, part: str) -> float:
        """Book the time since the last lap under ``part``; returns it."""
        now_s = self._clock.now_s()
        lap_s, self._last_s = now_s - self._last_s, now_s
        self.parts[part] += lap_s
        return lap_s

    def exchange(self, report: ExchangeReport) -> None:
        """Book the time since the last lap as the algorithm reports it; what it does not explain is ``other_s``."""
        begin_s = self._last_s
        self.lap("other_s")
        explained_s = report.exposed_s - report.hidden_s + report.codec_s
        self.parts["other_s"] -= min(explained_s, self._last_s - begin_s)
        self.parts["compute_s"] -= report.hidden_s
        self.parts["exposed_s"] += report.exposed_s
        self.parts["codec_s"] += report.codec_s

    @property
    def elapsed_s(self) -> float:
        """Training seconds since the step began."""
        return self._clock.now_s() - self.begin_s

    @property
    def duration_s(self) -> float:
        """From the begin of the step to the last lap."""
        return self._last_s - self.begin_s

    @property
    def error(self) -> float:
        """How far the parts are from adding up, in seconds."""
        return abs(self.duration_s - sum(self.parts.values()))


class LedgerCheck:
    """Whether the parts of all steps add up: the contract allows 2 %."""

    def __init__(self) -> None:
        self._off_s = self._total_s = 0.0
        self.worst_step = 0.0

    def add(self, ledger: StepLedger) -> None:
        """Take in one step."""
        self._off_s += ledger.error
        self._total_s += ledger.duration_s
        self.worst_step = max(self.worst_step, ledger.error / ledger.duration_s if ledger.duration_s > 0 else 0.0)

    def state_dict(self) -> dict[str, float]:
        """The sums so far."""
        return {"off_s": self._off_s, "total_s": self._total_s, "worst_step": self.worst_step}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from these sums."""
        self._off_s, self._total_s, self.worst_step = state["off_s"], state["total_s"], state["worst_step"]

    @property
    def error(self) -> float:
        """Sum of the differences over the sum of the steps; errors of single steps cannot cancel each other."""
        return self._off_s / self._total_s if self._total_s > 0 else 0.0
