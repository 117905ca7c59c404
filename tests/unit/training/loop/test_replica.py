from __future__ import annotations

import torch
from torch import nn

from bwbench.training.loop.replica import copy_of, fingerprint, put_back, seed_everything


def make(seed):
    seed_everything(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return fingerprint(model)


def test_equal_seeds_equal_replicas():
    assert fingerprint(make(1)[0]) == fingerprint(make(1)[0])
    assert fingerprint(make(1)[0]) != fingerprint(make(2)[0])


def test_nothing_is_learnt_while_warming_up():
    expected = train(*make(1))
    model, optimizer = make(1)
    before = copy_of(model, optimizer)
    storage = model[0].weight.data_ptr()
    train(model, optimizer)
    put_back(before, model, optimizer)
    assert model[0].weight.data_ptr() == storage, "buffers and wrappers hold on to the parameters"
    assert not optimizer.state
    assert train(model, optimizer) == expected, "random state and optimizer begin anew too"
    put_back(before, model, optimizer)
    assert train(model, optimizer) == expected
