from __future__ import annotations

import numpy as np
import pytest

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.training.datasets.dataset import Samples
from bwbench.training.datasets.partition import IidReshuffled
from bwbench.training.loop.feed import BatchFeed


def feed(rank=0, num_nodes=2, batch_size=4, num_samples=21, seed=0):
    samples = Samples(np.arange(num_samples, dtype=np.float32).reshape(-1, 1), np.arange(num_samples))
    return BatchFeed(samples, IidReshuffled(ComponentConfig()), num_nodes, rank, batch_size, seed)


def seen(feed, batches):
    return [int(target) for _ in range(batches) for target in feed.next()[1]]


def test_inputs_belong_to_their_targets():
    inputs, targets = feed().next()
    assert inputs.shape == (4, 1)
    assert inputs[:, 0].tolist() == targets.tolist()


def test_ranks_share_an_epoch_and_drop_alike():
    # 21 samples, 2 nodes: 10 each, 2 batches of 4; the other 2 and the odd one are left out.
    first, second = seen(feed(0), 2), seen(feed(1), 2)
    assert len(set(first + second)) == 16


def test_epochs_differ_and_runs_do_not():
    assert seen(feed(), 6) == seen(feed(), 6)
    one = feed()
    assert seen(one, 2) != seen(one, 2)
    assert seen(feed(seed=1), 2) != seen(feed(seed=2), 2)


def test_a_batch_larger_than_the_share_is_refused():
    with pytest.raises(ConfigError, match="batch_size 11 is more than the 10"):
        feed(batch_size=11)
