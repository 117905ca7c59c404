"""Evaluations of a trial as events, and what follows from them."""

from __future__ import annotations

import time

from bwbench.records.schema import Evaluation, finite
from bwbench.records.schema.events import Split
from bwbench.training.loop.control import Stop
from bwbench.training.loop.evaluate import evaluate, meets
from bwbench.training.loop.feed import TensorSamples
from bwbench.training.loop.progress import Progress
from bwbench.training.loop.trial import Trial


class Evaluator:
    """Scores the replica of this rank together with those of the others; all ranks call it alike, off the clock."""

    def __init__(self, trial: Trial, progress: Progress) -> None:
        self._trial, self._progress = trial, progress
        self._control = trial.groups.control

    def validation(self, clock_s: float) -> Evaluation:
        """The event of an evaluation on the validation split; ``clock_s`` is the training clock."""
        return self._evaluation("validation", self._trial.validation, clock_s)

    def test(self, clock_s: float) -> Evaluation:
        """The event of an evaluation on the test split."""
        return self._evaluation("test", self._trial.test, clock_s)

    def verdict(self, evaluation: Evaluation) -> Stop | None:
        """Why training ends here, None where it does not: the same on all ranks, because all have the same means."""
        bad = [metric for metric, value in evaluation.mean.items() if value is None]
        if bad:
            samples = self._progress.samples
            return Stop("diverged", f"the {bad[0]} of the validation split is not finite after {samples} samples")
        if evaluation.target_met and self._trial.config.stop == "target":
            return Stop("done", "target")
        return None

    def _evaluation(self, split: Split, samples: TensorSamples, clock_s: float) -> Evaluation:
        begin_mono_s = time.monotonic()
        share = samples.share(self._control.rank, self._control.size)
        found = evaluate(self._trial.model, share)
        local = {metric: found[metric] for metric in self._trial.metrics}
        mean = self._control.mean(local, weight=len(share))
        duration_s = time.monotonic() - begin_mono_s
        self._progress.evaluation_s += duration_s
        target = self._trial.config.target
        return Evaluation(
            split=split,
            step=self._progress.steps,
            samples=self._progress.samples,
            clock_s=clock_s,
            local={metric: finite(value) for metric, value in local.items()},
            mean={metric: finite(value) for metric, value in mean.items()},
            target_met=target is not None and meets(target.metric, mean[target.metric], target.value),
            duration_s=duration_s,
        )
