from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bwbench.training.datasets.dataset import Samples
from bwbench.training.loop.arrival_watch import meets
from bwbench.training.loop.evaluation import evaluate, training_loss
from bwbench.training.loop.feed import TensorSamples


class Constant(nn.Module):
    """Sure of class 0, whatever it sees; in text at every position."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        assert not self.training
        logits = torch.zeros(len(x), *self.shape)
        logits[..., 0] = 5.0
        return logits


def test_classification_over_several_batches():
    targets = np.array([0] * 300 + [1] * 100)
    samples = TensorSamples(Samples(np.zeros((400, 2), np.float32), targets))
    model = Constant((3,))
    found = evaluate(model, samples)
    assert found["accuracy"] == 0.75
    wrong = math.log(math.exp(5) + 2)
    assert found["loss"] == pytest.approx(0.75 * (wrong - 5) + 0.25 * wrong, rel=1e-5)
    assert model.training


def test_text_counts_every_position():
    targets = np.array([[0, 1], [0, 0]])
    samples = TensorSamples(Samples(np.zeros((2, 2), np.int64), targets))
    assert evaluate(Constant((2, 3)), samples)["accuracy"] == 0.75


def test_training_loss_is_the_mean_over_positions():
    logits, targets = torch.randn(4, 5, 7), torch.randint(7, (4, 5))
    expected = torch.stack([nn.functional.cross_entropy(logits[i], targets[i]) for i in range(4)]).mean()
    assert training_loss(logits, targets) == pytest.approx(float(expected), rel=1e-5)


def test_losses_fall_and_accuracies_rise():
    assert meets("accuracy", 0.95, 0.95)
    assert not meets("accuracy", 0.94, 0.95)
    assert meets("loss", 0.3, 0.3)
    assert not meets("loss", 0.31, 0.3)
    assert not meets("accuracy", math.nan, 0.95)
    assert not meets("loss", math.nan, 0.95)


def test_shares_cover_a_split_once():
    samples = TensorSamples(Samples(np.arange(403, dtype=np.float32)[:, None], np.arange(403)))
    shares = [samples.share(rank, 4) for rank in range(4)]
    assert sorted(int(target) for share in shares for target in share.targets) == list(range(403))
    assert all(torch.equal(share.inputs[:, 0].long(), share.targets) for share in shares)


def test_a_tiny_split_is_scored_whole_by_everybody():
    samples = TensorSamples(Samples(np.zeros((60, 1), np.float32), np.zeros(60, np.int64)))
    assert len(samples.share(2, 4)) == 60
