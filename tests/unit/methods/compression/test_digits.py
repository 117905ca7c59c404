from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.methods.compression.blocks import digits_per_byte, pack, packed_bytes, unpack


@given(st.integers(2, 256), st.integers(0, 50), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_numbers_come_back(base, count, seed):
    numbers = np.random.default_rng(seed).integers(0, base, 64, dtype=np.uint8 if base <= 256 else np.int64)
    packed = np.empty(packed_bytes(count, base), np.uint8)
    pack(numbers, base, packed)
    again = np.full(64, 255, np.uint8)
    unpack(packed, base, again)
    assert np.array_equal(again[:count], numbers[:count])


@pytest.mark.parametrize(("base", "digits"), [(2, 8), (3, 5), (4, 4), (5, 3), (6, 3), (16, 2), (17, 1), (256, 1)])
def test_as_many_to_a_byte_as_fit(base, digits):
    assert digits_per_byte(base) == digits
    assert packed_bytes(100, base) == -(-100 // digits)
