"""The way of gradients as copies through host memory, with a model that is on the CPU all the time."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.training.library import distribution
from tests.unit.training.library.together import batch, loss_of, small_model, together, values


def train(rank: int, algorithm: str) -> torch.Tensor:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with distribute(model, optimizer, algorithm) as handle:
        for step in range(4):
            with handle.no_sync():
                loss_of(model, batch(rank, 2 * step)).backward()
            loss_of(model, batch(rank, 2 * step + 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return values(model)


@pytest.mark.parametrize("algorithm", ["ring-fp16", "threshold"])
def test_copies_change_nothing(algorithm: str) -> None:
    expected = together(3, lambda rank: train(rank, algorithm))
    with patch.object(distribution, "needed", return_value=True):
        found = together(3, lambda rank: train(rank, algorithm))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("algorithm", "reason"), [("ddp", "DistributedDataParallel"), ("no-communication", "every step")]
)
def test_what_needs_more_than_gradients_is_refused(algorithm: str, reason: str) -> None:
    with patch.object(distribution, "needed", return_value=True), pytest.raises(ConfigError, match=reason):
        together(2, lambda rank: train(rank, algorithm))
