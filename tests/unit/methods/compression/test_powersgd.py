from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.compression import build_codec
from bwbench.methods.compression.powersgd import LowRankLayout, PowerSgd, PowerSgdConfig, gram_schmidt

SHAPES = [(10,), (16, 3, 3, 3), (4, 5), (2, 2), (32, 20), ()]
NUM_ELEMENTS = sum(math.prod(shape) for shape in SHAPES)


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def plain_powersgd(inputs, starts):
    """PowerSGD with error feedback of all ranks, from the paper's algorithms 1 and 2, in double precision.

    Args:
        inputs: [step][rank], a flat vector of ``SHAPES``.
        starts: Q of each matrix to begin with.

    Returns:
        The mean of each step, and the residuals after the last one.
    """
    num_ranks = len(inputs[0])
    residuals = np.zeros((num_ranks, NUM_ELEMENTS))
    factors = [start.copy() for start in starts]
    means = []
    for gradients in inputs:
        residuals += np.stack([gradient.double().numpy() for gradient in gradients])
        mean, offset, number = np.zeros(NUM_ELEMENTS), 0, 0
        for shape in SHAPES:
            size = math.prod(shape)
            place, offset = slice(offset, offset + size), offset + size
            rows, cols = (shape[0], size // shape[0]) if len(shape) > 1 else (1, size)
            if 2 * (rows + cols) >= rows * cols:
                mean[place] = residuals[:, place].mean(0)
                residuals[:, place] = 0.0
                continue
            matrices = residuals[:, place].reshape(num_ranks, rows, cols)
            p = np.mean([matrix @ factors[number] for matrix in matrices], axis=0)
            p, _ = np.linalg.qr(p)
            q = np.mean([matrix.T @ p for matrix in matrices], axis=0)
            residuals[:, place] -= np.stack([p @ p.T @ matrix for matrix in matrices]).reshape(num_ranks, -1)
            mean[place] = (p @ q.T).ravel()
            factors[number] = q
            number += 1
        means.append(mean)
    return means, residuals


def starts():
    layout = LowRankLayout.of(SHAPES, NUM_ELEMENTS, 2)
    flat = normal(layout.right_elements, seed=3)  # bucket 3
    lengths = [2 * matrix.cols for matrix in layout.matrices]
    return [part.view(2, -1).t().double().numpy() for part in torch.split(flat, lengths)]


@pytest.mark.parametrize("collective", ["ring", "all-gather", "parameter-server"])
def test_three_ranks_against_a_plain_loop(collective):
    steps = 5
    inputs = [[normal(NUM_ELEMENTS, 10 * step + rank) for rank in range(3)] for step in range(steps)]

    def work(group, rank):
        ours = COLLECTIVES.load(collective)()
        ours.connect(group)
        codec = build_codec([Component("powersgd", PowerSgdConfig())])
        codec.prepare(SHAPES, rank, bucket=3)
        means = []
        for step in range(steps):
            bucket = inputs[step][rank].clone()
            ours.average(bucket, codec, round_of(group, 0))
            means.append(bucket)
        return means, codec.residual

    results = run_ranks(3, work)
    expected, residuals = plain_powersgd(inputs, starts())
    for rank, (means, residual) in enumerate(results):
        for step in range(steps):
            assert torch.equal(means[step], results[0][0][step]), "replicas differ"
            assert np.allclose(means[step].numpy(), expected[step], atol=1e-4)
        assert np.allclose(residual.numpy(), residuals[rank], atol=1e-4)


def test_what_is_sent():
    codec = PowerSgd()
    codec.prepare(SHAPES)
    plain = 10 + 20 * 0 + 4 + 1
    assert [matrix.rows for matrix in LowRankLayout.of(SHAPES, NUM_ELEMENTS, 2).matrices] == [16, 4, 32]
    assert codec.message_elements(NUM_ELEMENTS) == [plain + 2 * (16 + 4 + 32), 2 * (27 + 5 + 20)]
    assert codec.payloads(NUM_ELEMENTS) == [4 * length for length in codec.message_elements(NUM_ELEMENTS)]


def test_a_matrix_of_low_rank_comes_through_whole():
    matrix = normal(40 * 2).view(40, 2) @ normal(2 * 30, 1).view(2, 30)
    codec = PowerSgd()
    codec.prepare([(40, 30)])
    decoded = codec.decode(codec.encode(matrix), 1200)
    assert torch.allclose(decoded.view(40, 30), matrix, atol=1e-4)


def test_warm_start_comes_nearer_to_the_best_factors():
    x = normal(60 * 50)
    values = torch.linalg.svdvals(x.view(60, 50))
    best = float(values[2:].square().sum().sqrt())
    codec = PowerSgd()
    codec.prepare([(60, 50)])
    errors = [float((codec.decode(codec.encode(x), 3000) - x).norm()) for _ in range(40)]
    assert errors[-1] == pytest.approx(best, rel=0.02)
    assert errors[-1] <= errors[0]


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 1.0, 1e15])
def test_scale_changes_nothing(scale):
    codec, scaled = PowerSgd(), PowerSgd()
    for step in range(4):
        x = normal(2_500, step)
        expected = codec.decode(codec.encode(x), 2_500)
        found = scaled.decode(scaled.encode(x * scale), 2_500)
        assert torch.allclose(found / scale, expected, rtol=1e-3, atol=1e-4)


def test_goes_on_after_a_gradient_of_zeros():
    codec = PowerSgd()
    codec.encode(torch.zeros(2_500))
    matrix = torch.outer(normal(50), normal(50, 1)).reshape(-1)
    assert torch.allclose(codec.decode(codec.encode(matrix), 2_500), matrix, atol=1e-4)


def test_without_shapes_it_is_one_matrix():
    assert PowerSgd().message_elements(10_000) == [200, 200]
    assert PowerSgd().message_elements(10_007) == [207, 200]
    assert PowerSgd().message_elements(10) == [10]
    assert PowerSgd().message_elements(0) == [0]


def test_memory_is_the_right_factors():
    codec = PowerSgd()
    codec.prepare(SHAPES, bucket=2)
    first = codec.encode(normal(NUM_ELEMENTS)).clone()
    state = codec.state_dict()
    second = codec.encode(normal(NUM_ELEMENTS, 1)).clone()
    codec.load_state_dict(state)
    assert torch.equal(codec.encode(normal(NUM_ELEMENTS, 1)), second)
    codec.load_state_dict({})
    assert torch.equal(codec.encode(normal(NUM_ELEMENTS)), first)
    assert torch.equal(codec.fresh().encode(normal(NUM_ELEMENTS)), first)


def test_half_precision_inside():
    chain = [Component("powersgd", PowerSgdConfig()), Component("fp16", COMPRESSIONS.load("fp16").Config())]
    x = [normal(NUM_ELEMENTS, rank) for rank in range(3)]

    def work(names):
        def run(group, rank):
            ring = COLLECTIVES.load("ring")()
            ring.connect(group)
            codec = build_codec(names)
            codec.prepare(SHAPES)
            bucket = x[rank].clone()
            ring.average(bucket, codec, round_of(group, 0))
            return bucket, codec.payloads(NUM_ELEMENTS)

        return run_ranks(3, run)

    whole, half = work(chain[:1]), work(chain)
    assert sum(half[0][1]) == sum(whole[0][1]) / 2
    assert torch.allclose(whole[0][0], half[0][0], atol=0.05)
    assert all(torch.equal(result, half[0][0]) for result, _ in half)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_gram_schmidt(rank):
    q = gram_schmidt(normal(40 * rank).view(rank, 40))
    assert torch.allclose(q @ q.t(), torch.eye(rank), atol=1e-6)
    assert not gram_schmidt(torch.zeros(rank, 40)).any()
