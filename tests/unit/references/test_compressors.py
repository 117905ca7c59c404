"""Each compressor formula against numbers by hand, bounds and means."""

from __future__ import annotations

import math

import pytest
import torch

from tests.references import compressors as rc
from tests.unit.references.closed_forms import flat, near, start


@pytest.mark.parametrize(("length", "parts"), [(29, 3), (5, 4), (3, 8), (8, 2), (0, 2)])
def test_cuts_cover_once(length: int, parts: int) -> None:
    for cut in (rc.cut_rounded_up, rc.cut_balanced):
        pieces = cut(length, parts)
        assert len(pieces) == parts
        assert [i for begin, end in pieces for i in range(begin, end)] == list(range(length))
    sizes = [len(piece) for piece in torch.tensor_split(torch.arange(length), parts)]
    assert [end - begin for begin, end in rc.cut_balanced(length, parts)] == sizes
    assert [end - begin for begin, end in rc.cut_rounded_up(length, parts)][0] == -(-length // parts)


def test_minmax_uint8() -> None:
    grid = torch.arange(256, dtype=torch.float64) - 100
    near(rc.minmax_uint8(grid), grid, 1e-8)
    x = torch.randn(1000)
    error = (rc.minmax_uint8(x) - x).abs().max()
    assert error <= 1.01 * (x.max() - x.min()) / 255 and error > 0
    assert len(rc.minmax_uint8(x).unique()) <= 256
    small = rc.minmax_uint8(torch.randn(5000, dtype=torch.float64) * 1e-9)
    assert len(small.unique()) < 60  # the absolute epsilon leaves few levels
    wide = torch.randn(5000, dtype=torch.float64)
    near(rc.minmax_uint8_relative(wide * 2.0**-30), rc.minmax_uint8_relative(wide) * 2.0**-30, 1e-15)
    constant = torch.full((7,), 0.3)
    assert torch.equal(rc.minmax_uint8_relative(constant), constant)
    near(rc.minmax_uint8(constant), constant, 1e-6)
    # by hand: scale 127.5, top = rint(127.5) = 128 (half to even), bottom -127; rint(-127.5) = -128 is held at -127
    by_hand = rc.minmax_uint8(torch.tensor([-1.0, 1.0, 0.1], dtype=torch.float64), 0.0)
    near(by_hand, torch.tensor([-127.0, 128.0, 13.0], dtype=torch.float64) / 127.5)


def test_sparse_and_signs() -> None:
    x = torch.tensor([3.0, -4.0, 0.5, 1.0, -0.1])
    assert rc.top_k(x, 2).tolist() == [3, -4, 0, 0, 0]
    assert rc.top_k_chunked(x, 1, 2).tolist() == pytest.approx([0, -4, 0, 1.0, -0.1])
    assert rc.threshold(x, 1.0).tolist() == [3, -4, 0, 1, 0]
    assert rc.sign_block(x, 2).tolist() == pytest.approx([3.5, -3.5, 0.75, 0.75, -0.1])
    assert rc.sign_block(x[:2], None, "rms").tolist() == pytest.approx([math.sqrt(12.5), -math.sqrt(12.5)])
    assert rc.one_bit_seide(x).tolist() == pytest.approx([1.5, -2.05, 1.5, 1.5, -2.05])
    matrix = torch.tensor([[1.0, -1.0], [3.0, 5.0], [-2.0, 7.0]])
    assert rc.one_bit_seide(matrix, by_column=True).tolist() == [[2, -1], [2, 6], [-2, 6]]
    near(rc.one_bit_seide(x).sum(), x.sum(), 1e-6)  # means keep the sum


def test_random_rounding_is_unbiased() -> None:
    torch.manual_seed(1)
    x = torch.randn(40, dtype=torch.float64)
    x[3] = 0
    grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    for function in (
        lambda x, u: rc.qsgd(x, u, 4, 16),
        lambda x, u: rc.qsgd(x, u, 7, None, "max"),
        rc.terngrad,
        lambda x, u: rc.terngrad(x, u, scale=9.0),
        rc.natural,
    ):
        total = sum(function(x, torch.full_like(x, float(u))) for u in grid) / len(grid)
        near(total, x, 5e-3)


def test_random_rounding_takes_its_levels() -> None:
    x = torch.tensor([3.0, -4.0, 0.0], dtype=torch.float64)
    zero, one = torch.zeros_like(x), torch.full_like(x, 0.999)
    assert rc.qsgd(x, zero, 2).tolist() == [5.0, -5.0, 0.0]  # norm 5: 1.2 -> 2, 1.6 -> 2
    assert rc.qsgd(x, one, 2).tolist() == [2.5, -2.5, 0.0]
    assert rc.terngrad(x, one).tolist() == [0.0, -4.0, 0.0]
    assert rc.natural(x, zero).tolist() == [4.0, -4.0, 0.0] and rc.natural(x, one).tolist() == [2.0, -4.0, 0.0]
    sigma = float(x.std(unbiased=False))
    assert rc.terngrad(x, zero, clip_sigmas=0.5).abs().max() == pytest.approx(0.5 * sigma)


def test_norm_and_shares() -> None:
    tensors = start(1)[0]
    leaves = [torch.zeros_like(tensor, requires_grad=True) for tensor in tensors]
    for leaf, tensor in zip(leaves, tensors, strict=True):
        leaf.grad = tensor.clone()
    torch.nn.utils.clip_grad_norm_(leaves, 0.7)
    near(flat(rc.clip_by_norm(tensors, 0.7)), flat([leaf.grad for leaf in leaves]))
    near(flat(rc.clip_by_norm(tensors, 1e6)), flat(tensors))
    shares = [rc.exponential_share(t, 0.25, 0.25 / 4**4, 4) for t in range(6)]
    assert shares == pytest.approx([0.25 / 4 ** min(t, 4) for t in range(6)])
    assert rc.count_rounded_up(0.001, 10) == 1 and rc.count_rounded_up(0.25, 10) == 3


def test_gram_schmidt() -> None:
    matrix = torch.randn(8, 3, dtype=torch.float64)
    p = rc.gram_schmidt(matrix)
    near(p.T @ p, torch.eye(3, dtype=torch.float64))
    q = torch.linalg.qr(matrix).Q
    near(p @ p.T, q @ q.T)
    assert torch.equal(rc.gram_schmidt(torch.zeros(4, 2)), torch.zeros(4, 2))
