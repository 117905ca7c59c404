"""N models trained in one process: the plainest version of a distributed algorithm, to compare with."""

from __future__ import annotations

import torch

from bwbench.methods.algorithms.small_replica import loss_of, replica, sgd, vector


class Simulation:
    """``x`` holds the parameters of all nodes as rows, fp32 of shape [num_nodes, num_parameters]."""

    def __init__(self, num_nodes, make_optimizer=sgd):
        self.models = [replica() for _ in range(num_nodes)]
        self.optimizers = [make_optimizer(model) for model in self.models]

    def compute_gradients(self, step):
        """Of every node, on its own batch and its own weights."""
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()

    def average_gradients(self):
        for parameters in zip(*(model.parameters() for model in self.models), strict=True):
            mean = torch.stack([p.grad for p in parameters]).mean(0)
            for p in parameters:
                p.grad = mean.clone()

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()

    @property
    def x(self):
        return torch.stack([vector(model) for model in self.models])

    @x.setter
    def x(self, rows):
        for model, row in zip(self.models, rows, strict=True):
            torch.nn.utils.vector_to_parameters(row.clone(), model.parameters())

    @property
    def gradients(self):
        """Rows as in ``x``."""
        return torch.stack([torch.cat([p.grad.reshape(-1) for p in model.parameters()]) for model in self.models])
