from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.methods.algorithms.algorithm import assign
from bwbench.methods.algorithms.buckets import GradientBuffers
from bwbench.methods.algorithms.small_replica import SHAPES, attached
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression.codec import NoCompression

MIB_OF_ELEMENTS = 1024 * 1024 // 4


@given(st.lists(st.integers(1, 10_000), max_size=40), st.integers(4, 100_000))
def test_every_parameter_once_last_first(elements, bucket_bytes):
    buckets = assign(elements, bucket_bytes)
    assert [index for bucket in buckets for index in bucket] == list(reversed(range(len(elements))))
    for bucket in buckets[:-1]:
        assert sum(4 * elements[i] for i in bucket) >= bucket_bytes
        assert sum(4 * elements[i] for i in bucket[:-1]) < bucket_bytes


def test_default_sizes_are_those_of_torch():
    sizes = [MIB_OF_ELEMENTS] * 30
    assert [len(bucket) for bucket in assign(sizes, None)] == [1, 25, 4]


def test_no_parameters_no_buckets():
    assert assign([], None) == []


def test_gradients_are_views_that_autograd_adds_into():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    parameters = list(model.parameters())
    buffers = GradientBuffers(parameters, assign([p.numel() for p in parameters], 40))
    x = torch.randn(5, 3)
    model(x).sum().backward()
    model(x).sum().backward()
    reference = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    reference.load_state_dict(model.state_dict())
    (2 * reference(x).sum()).backward()
    for ours, theirs in zip(parameters, reference.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad)
    buffers.flat[0].fill_(7.0)
    assert (parameters[-1].grad == 7.0).all()
    buffers.clear()
    assert not any(p.grad.any() for p in parameters)


def test_a_gradient_from_elsewhere_is_taken_in():
    parameter = nn.Parameter(torch.zeros(3))
    buffers = GradientBuffers([parameter], [[0]])
    parameter.grad = torch.ones(3)
    buffers.keep(0)
    assert buffers.flat[0].tolist() == [1.0, 1.0, 1.0]
    parameter.grad += 1
    assert buffers.flat[0].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "name", ["every-step", "qadam", "decentralized", "low-precision-decentralized", "async", "local-sgd", "diloco"]
)
def test_all_that_sends_whole_buckets_takes_their_size(name):
    method = ALGORITHMS.load(name)
    collective = method.preferred_collective or "ring"
    sizes, messages = [], []
    for size in (None, "1 kB"):
        algorithm = method(method.Config.model_validate({"bucket": size}))

        def work(group, rank, algorithm=algorithm):
            node = attached(group, rank, algorithm, collective, ["none"], adam)
            found = list(node.running.bucket_bytes)
            node.running.close()
            return found

        sizes.append(run_ranks(2, work)[0])
        traffic = algorithm.traffic(SHAPES, 2, COLLECTIVES.load(collective)(), NoCompression)
        messages.append(traffic.messages)
    elements = [math.prod(shape) for shape in SHAPES]
    assert sizes[0] == [4 * sum(elements)]
    assert sizes[1] == [4 * sum(elements[i] for i in bucket) for bucket in assign(elements, 1000)]
    assert messages[1] > messages[0]


def adam(model):
    return torch.optim.Adam(model.parameters())
