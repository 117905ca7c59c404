"""What a composed result was put together from: the runs that were made for it, and the kinds of their steps."""

from __future__ import annotations

from bwbench.records.schema.record import Number, Record, Text, Whole


class ComposedFrom(Record):
    """What the result of a composed cell was put together from.

    Attributes:
        convergence, timing: ids of the two runs; of several timing runs the first.
        timings: ids of all timing runs; None in records of the time when there was but one.
        interval_s: 95 % interval of the time to target, or of the end; None where nothing varies. With several timing
            runs it holds what they differ by.
        within_share: standard error that the chance in the timed steps leaves in the mean of all timing runs, as a
            share of the time; None with one run, whose ``interval_s`` says it.
        between_share: variance of the logarithm of the time from one timing run to the next; None with one run.
        timing_pilot: how many timing runs, the first ones, ``between_share`` is of, where their spread has said how
            many there are; None where it is of all.
        timed_steps: of all timing runs.
        max_payload_ratio: bytes of a step over those of the timed steps, at most.
        timed_with: id of the published cell of an earlier seed that said what the steps of ``timings`` took; None where
            their records were there.
    """

    convergence: Text
    timing: Text
    timings: tuple[Text, ...] | None = None
    interval_s: tuple[Number, Number] | None = None
    within_share: Number | None = None
    between_share: Number | None = None
    timing_pilot: Whole | None = None
    timed_steps: Whole = 0
    max_payload_ratio: Number | None = None
    timed_with: Text | None = None

    @property
    def num_timing_runs(self) -> int:
        """How many runs timed its steps."""
        return len(self.timings) if self.timings else 1

    def lacks(self, timing_runs: int) -> bool:
        """Whether more are asked for. Never of a record that is older than the question."""
        return self.timings is not None and len(self.timings) < timing_runs


class Kind(Record):
    """Steps of one kind in a composed run.

    Attributes:
        name: see ``methods.phases.StepInPhase.kind``; ``evaluation`` stands for waiting before evaluations.
        num_steps: in the composed run.
        num_timed: in the timing run.
        mean_s: of one, timed; standard deviation ``deviation_s``.
        drift_s: added to all of them together: for bytes that they sent more or less than those that were timed, and
            for what is known of single ones, e.g. the very first steps.
    """

    name: Text
    num_steps: Whole
    num_timed: Whole
    mean_s: Number
    deviation_s: Number
    drift_s: Number

    @property
    def total_s(self) -> float:
        """What all of them take."""
        return self.num_steps * self.mean_s + self.drift_s
