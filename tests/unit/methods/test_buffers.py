from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import torch

from bwbench.methods import buffers
from bwbench.methods.buffers import empty_bytes, empty_fp32, scratch

SIZE = 300_001  # of no other test


def test_memory_is_used_again_when_nobody_sees_it():
    first = empty_bytes(SIZE)
    view, where = first[10:20].view(torch.int16), first.data_ptr()
    assert empty_bytes(SIZE).data_ptr() != where
    del first
    assert empty_bytes(SIZE).data_ptr() != where, "a view is still there"
    del view
    assert empty_bytes(SIZE + 5).data_ptr() == where


def test_what_is_kept_is_limited(monkeypatch):
    monkeypatch.setattr(buffers, "LARGEST_KEPT_BYTES", 0)
    monkeypatch.setattr(buffers, "_free", {})
    empty_bytes(SIZE)
    assert buffers._free == {}


def test_shapes():
    assert empty_fp32(SIZE).shape == (SIZE,)
    assert empty_fp32(0).numel() == empty_bytes(0).numel() == 0
    assert empty_fp32(3).dtype == torch.float32


def test_threads_do_not_share_scratch():
    found = [scratch()]
    thread = threading.Thread(target=lambda: found.append(scratch()))
    thread.start()
    thread.join()
    assert found[0] is scratch()
    assert found[1] is not found[0]


def test_values_in_host_memory_are_worked_on_where_they_are():
    values = torch.arange(6.0)
    host = buffers.on_host(values)
    host += 1
    buffers.give_back(host, values)
    assert host.data_ptr() == values.data_ptr()
    assert torch.equal(values, torch.arange(1.0, 7.0))


@pytest.mark.parametrize(
    "values", [torch.arange(6.0).view(2, 3).t(), torch.arange(6.0).half(), torch.arange(6.0).double()]
)
def test_other_values_go_through_a_copy_and_come_back(values):
    expected = values * 2
    host = buffers.on_host(values)
    assert (host.dtype, host.dim(), host.is_contiguous()) == (torch.float32, 1, True)
    host *= 2
    buffers.give_back(host, values)
    assert torch.equal(values, expected)


def test_one_place_alone_looks_at_tensors_as_arrays():
    root = Path(buffers.__file__).parents[1]
    files = [*(root / "methods").rglob("*.py"), *(root / "training" / "library").rglob("*.py")]
    looking = [path.name for path in files if re.search(r"\.numpy\(\)|from_numpy\(|\.cpu\(\)", path.read_text())]
    assert looking == ["buffers.py"]
