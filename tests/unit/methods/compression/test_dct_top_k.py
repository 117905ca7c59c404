"""``dct-top-k`` beside scipy's transform, and how it cuts tensors into blocks."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.fft import dctn, idctn

from bwbench.base.component import Component
from bwbench.methods.compression import build_codec
from bwbench.methods.compression.dct_top_k import DctTopK, DctTopKConfig, cuts, dct_matrix, layout_of
from bwbench.methods.compression.error_feedback import ErrorFeedback, ResidualConfig
from bwbench.methods.compression.int8 import Int4


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def prepared(shapes, **options):
    codec = DctTopK(DctTopKConfig(**options))
    codec.prepare(shapes)
    return codec


def there_and_back(codec, x):
    return codec.decode(codec.encode(x), x.numel()).clone()


def kept_by_scipy(matrix, k, height, width):
    """The k largest of each block, transformed back; and how many that are in all."""
    out, count = np.zeros_like(matrix), 0
    for row in range(0, matrix.shape[0], height):
        for col in range(0, matrix.shape[1], width):
            place = slice(row, row + height), slice(col, col + width)
            coefficients = dctn(matrix[place], norm="ortho")
            flat = coefficients.ravel()
            flat[np.argsort(-abs(flat), kind="stable")[k:]] = 0.0
            out[place] = idctn(coefficients, norm="ortho")
            count += np.count_nonzero(flat)
    return out, count


@pytest.mark.parametrize("size", [1, 2, 3, 10, 48, 64])
def test_the_transform_is_scipys_and_orthonormal(size):
    matrix = dct_matrix(size)
    x = normal(size)
    np.testing.assert_allclose((matrix @ x).numpy(), dctn(x.numpy(), norm="ortho"), atol=2e-6)
    torch.testing.assert_close(matrix @ matrix.t(), torch.eye(size), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("shape", "blocks"), [((128, 96), (64, 48)), ((32, 16, 3, 3), (32, 48)), ((10, 128), (10, 64))]
)
def test_the_largest_of_each_block_arrive(shape, blocks):
    x = normal(*shape)
    codec = prepared([shape], k=32)
    expected, count = kept_by_scipy(x.reshape(shape[0], -1).double().numpy(), 32, *blocks)
    assert codec._expected_entries(x.numel()) == count
    found = there_and_back(codec, x).view(shape[0], -1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_tensors_behind_one_another_keep_their_blocks():
    shapes = [(20,), (24, 30), (), (7, 4, 2)]
    parts = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    whole = torch.cat([part.reshape(-1) for part in parts])
    alone = [  # beside an empty one: a vector alone is a stretch of something
        there_and_back(prepared([shape, (0,)], k=5, block=8), part.reshape(-1))
        for shape, part in zip(shapes, parts, strict=True)
    ]
    torch.testing.assert_close(there_and_back(prepared(shapes, k=5, block=8), whole), torch.cat(alone))


def test_nothing_is_lost_where_all_coefficients_are_sent():
    for shapes in ([(64, 64)], [(67, 131)], [(5000,)], [(1, 5000), (3,)]):
        x = normal(sum(map(math.prod, shapes)))
        torch.testing.assert_close(there_and_back(prepared(shapes, k=4096), x), x, atol=1e-5, rtol=1e-5)


def test_what_varies_smoothly_takes_few_coefficients():
    rows, cols = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    x = torch.sin(rows / 20) + torch.cos(cols / 30)
    error = (there_and_back(prepared([(64, 64)], k=16), x.reshape(-1)) - x.reshape(-1)).norm() / x.norm()
    assert error < 0.01  # the 16 largest entries by themselves would leave 99 %


@pytest.mark.parametrize(
    ("length", "stretches"),
    [
        (1, [(0, 1, 1)]),
        (64, [(0, 1, 64)]),
        (65, [(0, 5, 13)]),
        (1568, [(0, 28, 56)]),
        (67, [(0, 1, 64), (64, 1, 3)]),  # a prime, of which DeMo would send every element
        (134, [(0, 2, 64), (128, 1, 6)]),
        (61, [(0, 1, 61)]),
    ],
)
def test_lengths_are_cut_by_their_largest_divisor_where_that_is_not_tiny(length, stretches):
    assert cuts(length, 64) == stretches


def test_every_element_is_in_one_block():
    for shapes in ([(67, 130), (13,), (9000,), (0, 3), ()], [(4, 4)], [(10_007,)], [(0,)], [(40,)]):
        n = sum(map(math.prod, shapes))
        layout = layout_of(tuple(shapes), n, 64)
        hits = torch.zeros(n)
        for grid in layout.grids:
            grid.of(hits).add_(1)
        assert bool((hits == 1).all())
        assert [grid.begin for grid in layout.grids[1:]] == [grid.end for grid in layout.grids[:-1]]


@pytest.mark.parametrize("n", [100, 1_250, 2_503, 10_007, 100_000, 1_000_003])
def test_a_stretch_sends_the_share_of_a_whole_block_wherever_it_was_cut(n):
    """A part of a bucket, or a bucket whose tensors nobody has named: not half of every 64, as of a bias."""
    for codec in (prepared([(n,)]), prepared([]), prepared([(3, 4), (5,)])):
        assert codec._expected_entries(n) == pytest.approx(32 / 4096 * n, abs=2)
    assert prepared([(64,), (64, 64)])._expected_entries(64 + 4096) == 32 + 32  # a bias: half of it, as in DeMo


def test_what_is_not_finite_is_seen_in_its_block():
    x = normal(128, 128)
    x[3, 70] = float("inf")
    found = there_and_back(prepared([(128, 128)]), x.reshape(-1)).view(128, 128)
    assert not bool(found[:64, 64:].isfinite().any())
    assert bool(found[64:].isfinite().all()) and bool(found[:, :64].isfinite().all())


def test_values_may_be_written_in_fewer_bits_and_one_residual_keeps_all_that_is_lost():
    codec = build_codec([Component("dct-top-k", DctTopKConfig(k=8)), Component("int4", Int4.Config())])
    assert isinstance(codec, ErrorFeedback)
    x, n = normal(64, 128), 64 * 128
    codec.prepare([(64, 128)])
    payload = codec.encode(x)
    assert payload.numel() < prepared([(64, 128)], k=8).encode(x).numel() - 16 * 3
    torch.testing.assert_close(codec.decode(payload, n) + codec.residual, x.reshape(-1), atol=1e-5, rtol=1e-5)


def test_demos_momentum_is_a_residual_that_decays():
    """d <- B d + lr g; q = C(d); d <- d - q: in units of the gradient, while the rate falls."""
    rates, decay = (0.1, 0.1, 0.02), 0.9
    codec = ErrorFeedback(prepared([(16, 16)], k=4, block=16), ResidualConfig(unit="update", decay=decay))
    plain, delta = prepared([(16, 16)], k=4, block=16), torch.zeros(256)
    for step, rate in enumerate(rates):
        gradient = normal(256, seed=step)
        codec.rate = rate
        sent = codec.decode(codec.encode(gradient), 256)
        delta = decay * delta + rate * gradient
        expected = there_and_back(plain, delta)
        delta -= expected
        torch.testing.assert_close(rate * sent, expected, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(rate * codec.residual, delta, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("length", [11, 750, 8750, 10_007])
def test_it_makes_the_same_bits_wherever_values_lie_in_memory(length):
    """Memory begins elsewhere on each node, and a product of matrices may sum up by where its operands lie."""
    layout, x = layout_of((), length, 64), normal(length)
    forward, back = layout.transformed(x), layout.restored(x)
    for offset in range(1, 17):
        elsewhere = torch.empty(length + offset)[offset:]
        elsewhere.copy_(x)
        assert torch.equal(layout.transformed(elsewhere), forward)
        assert torch.equal(layout.restored(elsewhere), back)


@pytest.mark.skipif(os.cpu_count() == 1, reason="a second thread needs a second processor")
def test_it_makes_the_same_bits_in_a_thread_that_has_multiplied_nothing_yet():
    script = """
import threading, torch
torch.set_num_threads(1)
from bwbench.methods.compression.dct_top_k import layout_of
layout, x = layout_of((), 750, 64), torch.randn(750, generator=torch.Generator().manual_seed(0))
made = [layout.restored(x)]
for _ in range(3):
    thread = threading.Thread(target=lambda: made.append(layout.restored(x)))
    thread.start()
    thread.join()
print(len(made), all(torch.equal(one, made[0]) for one in made))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout.split() == ["4", "True"]
