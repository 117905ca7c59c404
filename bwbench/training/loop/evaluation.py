"""Evaluations of a trial as events, and what follows from them."""

from __future__ import annotations

import time

import torch
from torch import nn

from bwbench.records.schema import Evaluation, finite
from bwbench.records.schema.events import Split
from bwbench.training.loop.arrival_watch import meets
from bwbench.training.loop.checkpoints import Progress
from bwbench.training.loop.control import Stop
from bwbench.training.loop.feed import TensorSamples
from bwbench.training.loop.trial_parts import Trial

EVALUATION_BATCH = 50  # at 250 the activations of our larger models spill out of the cache: half as fast


def training_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all targets.

    Args:
        logits: ``[batch, num_classes]``, or ``[batch, context, num_classes]`` for text.
        targets: ``[batch]`` or ``[batch, context]``.
    """
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def evaluate(model: nn.Module, samples: TensorSamples) -> dict[str, float]:
    """``accuracy`` (share of targets hit) and ``loss`` (mean cross entropy) over all samples.

    The model is back in training mode afterwards.
    """
    model.eval()
    loss, hits, count = 0.0, 0, 0
    with torch.no_grad():
        for begin in range(0, len(samples), EVALUATION_BATCH):
            targets = samples.targets[begin : begin + EVALUATION_BATCH].reshape(-1)
            logits = model(samples.inputs[begin : begin + EVALUATION_BATCH])
            logits = logits.reshape(-1, logits.shape[-1])
            loss += float(nn.functional.cross_entropy(logits, targets, reduction="sum"))
            hits += int((logits.argmax(-1) == targets).sum())
            count += len(targets)
    model.train()
    return {"accuracy": hits / count, "loss": loss / count}


class Evaluator:
    """Scores the replica of this rank together with those of the others; all ranks call it alike, off the clock."""

    def __init__(self, trial: Trial, progress: Progress) -> None:
        self._trial, self._progress = trial, progress
        self._control = trial.groups.control

    def verdict(self, evaluation: Evaluation) -> Stop | None:
        """Why training ends here, None where it does not: the same on all ranks, because all have the same means."""
        bad = [metric for metric, value in evaluation.mean.items() if value is None]
        if bad:
            samples = self._progress.samples
            return Stop("diverged", f"the {bad[0]} of the validation split is not finite after {samples} samples")
        if evaluation.target_met and self._trial.config.stop == "target":
            return Stop("done", "target")
        return None

    def looks_at_test(self, evaluation: Evaluation) -> bool:
        """Whether the test split is looked at here as well; to be asked once a validation evaluation.

        At no evaluation but the last, where a target is near, but for the replica that has not been trained, or always:
        as the configuration says. Training that ends at its only target arrives there, where the test split is looked
        at anyway.
        """
        config = self._trial.config
        if config.evaluate.test == "end":
            return False
        watched = () if config.stop == "target" and len(config.all_targets) == 1 else config.all_targets
        is_near = self._progress.watch.is_due(watched, evaluation.mean)
        return config.evaluate.test == "always" or (is_near and evaluation.step > 0)

    def score(self, split: Split, clock_s: float) -> Evaluation:
        """The event of an evaluation on the validation or the test split; ``clock_s`` is the training clock."""
        begin_mono_s = time.monotonic()
        samples = self._trial.validation if split == "validation" else self._trial.test
        averaged = self._trial.averaged
        counting, *others = (self._trial.model,) if averaged is None else averaged.by_what_counts
        local, mean = self._means(counting, samples)
        of_others = self._means(others[0], samples)[1] if others else {}
        duration_s = time.monotonic() - begin_mono_s
        self._progress.evaluation_s += duration_s
        targets = self._trial.config.all_targets
        evaluation = Evaluation(
            split=split,
            step=self._progress.steps,
            samples=self._progress.samples,
            clock_s=clock_s,
            local={metric: finite(value) for metric, value in local.items()},
            mean={metric: finite(value) for metric, value in mean.items()},
            target_met=bool(targets) and all(meets(one.metric, mean[one.metric], one.value) for one in targets),
            duration_s=duration_s,
        )
        if averaged is None:
            return evaluation
        beside = {metric: finite(value) for metric, value in of_others.items()}
        return evaluation.model_copy(update={"weights": averaged.counts, "beside": beside})

    def _means(self, model: nn.Module, samples: TensorSamples) -> tuple[dict[str, float], dict[str, float]]:
        """Metrics of a model on this rank's share of a split, and of all ranks' on the whole one; none of nothing."""
        if not self._trial.metrics:
            return {}, {}
        share = samples.share(self._control.rank, self._control.size)
        found = evaluate(model, share)
        local = {metric: found[metric] for metric in self._trial.metrics}
        return local, self._control.mean(local, weight=len(share))
