"""Loss, and metrics of a split, for both tasks."""

from __future__ import annotations

import torch
from torch import nn

from bwbench.training.loop.feed import TensorSamples

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


def meets(metric: str, value: float, target: float) -> bool:
    """Whether ``value`` is as good as ``target``: losses fall, everything else rises."""
    return value <= target if metric == "loss" else value >= target
