"""Hosts of two ranks with a GPU each average by NCCL first. Needs two GPUs: written without any, and not run yet."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.gpu.test_every_method import LIMIT_S, close, run_ranks

METHODS = ("ring", "ring-fp16", "bytegrad", "top-k", "local-sgd", "diloco", "qadam")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs: NCCL refuses two ranks of a host on one")
@pytest.mark.timeout(2 * LIMIT_S + 60)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_of_a_host_average_from_gpu_to_gpu(num_ranks: int, tmp_path: Path) -> None:
    """Four ranks on two GPUs are two hosts of two, on one machine: each has a group of its own."""
    methods = list(METHODS)
    for folder, inside in ((tmp_path / "nccl", "auto"), (tmp_path / "gloo", "gloo")):
        folder.mkdir()
        sharded = {"sharded": {"workers_per_host": 2, "across": "all-gather", "inside": inside}}
        results, words = run_ranks(folder, "cpu,cuda", methods, num_ranks, sharded)
        for name in methods:
            assert (name, "cuda") in results, f"not reached: {words}"
            there, here = results[name, "cpu"], results[name, "cuda"]
            assert "error" not in there and "error" not in here, f"{there.get('error')} {here.get('error')}\n{words}"
            assert here["by_devices"] == (inside == "auto") and not there["by_devices"]
            close(there["losses"], here["losses"], by_time=False)
