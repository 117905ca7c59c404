from __future__ import annotations

import threading

import torch

from bwbench.methods.compression import memory
from bwbench.methods.compression.memory import empty_bytes, empty_fp32, scratch

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
    monkeypatch.setattr(memory, "LARGEST_KEPT_BYTES", 0)
    monkeypatch.setattr(memory, "_free", {})
    empty_bytes(SIZE)
    assert memory._free == {}


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
