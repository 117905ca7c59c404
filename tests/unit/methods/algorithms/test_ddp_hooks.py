"""What torch's hooks send follows from their code; which codecs stand for them, and which are refused."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.ddp_exchange import (
    DdpExchange,
    TorchPostLocalSgd,
    TorchPostLocalSgdConfig,
    hook_buckets,
    hook_payloads,
    next_agreement,
)
from bwbench.methods.collectives import Members
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.torch_ddp import TorchDdp
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.compression.fp16 import Fp16
from bwbench.methods.compression.powersgd import PowerSgd, PowerSgdConfig

SHAPES = [(100, 64), (100,), (10, 100), (10,), (2, 3)]
ELEMENTS = [6400, 100, 1000, 10, 6]


def test_fp16_is_half_and_powersgd_is_plain_left_right() -> None:
    assert sum(hook_payloads(SHAPES, None, NoCompression())) == 4 * sum(ELEMENTS)
    assert sum(hook_payloads(SHAPES, 400.0, Fp16())) == 2 * sum(ELEMENTS)
    for rank in (1, 2, 3):
        # 10 x 100 shrinks to less than half up to rank 4 only; 2 x 3 never does
        expected = [4 * 116, 4 * rank * 110, 4 * rank * 164]
        codec = PowerSgd(PowerSgdConfig(rank=rank))
        assert hook_payloads(SHAPES, None, codec) == expected == hook_payloads(SHAPES, None, ErrorFeedback(codec))
    assert hook_payloads(SHAPES, None, PowerSgd(PowerSgdConfig(rank=5)))[0] == 4 * 1116


def test_powersgd_gets_one_bucket_whatever_is_asked() -> None:
    assert len(hook_buckets(ELEMENTS, 400.0, Fp16())) > 1
    (bucket,) = hook_buckets(ELEMENTS, 400.0, PowerSgd())
    assert sorted(bucket) == [0, 1, 2, 3, 4]
    assert "one bucket" in str(TorchDdp.remark([PowerSgd])) and TorchDdp.remark([Fp16]) is None


def note_size(averaged, bucket):  # without annotations, which torch would read as text
    averaged.append(bucket.buffer().nbytes)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


@pytest.mark.parametrize("asked_bytes", [None, 2 * 2**20])
def test_torch_shrinks_its_buckets_as_it_is_told(asked_bytes: float | None) -> None:
    """What torch averages, once it has put its buckets together in the order of the backward pass."""

    def work(gloo: dist.ProcessGroup, rank: int) -> list[tuple[list[int], list[int]]]:
        group, found = dist.ProcessGroup(dist.HashStore(), rank, 1), []  # torch's DDP takes no bare gloo group
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        for shrink in (1.0, 4.0):
            side = round(512 / shrink**0.5)
            model = nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in range(30)))  # whole 1 MiB each
            collective = TorchDdp()
            collective.connect(group)
            optimizer, members = torch.optim.SGD(model.parameters(), lr=0.1), Members.all_of(group)
            context = Context(
                model,
                optimizer,
                collective,
                NoCompression,
                group,
                None,
                None,
                members,
                shrink=shrink,  # type: ignore[arg-type]
            )
            averaged: list[int] = []
            running = DdpExchange(context, asked_bytes, (averaged, note_size))
            for _ in range(2):
                averaged.clear()
                running.begin_step()
                torch.autograd.backward(running.module(torch.ones(1, side)).sum())
            found.append((running.bucket_bytes, averaged))
        return found

    before = dist._DEFAULT_FIRST_BUCKET_BYTES
    ((whole, of_torch), (shrunk, of_torch_shrunk)) = run_ranks(1, work)[0]
    mib = 2**20
    assert whole == ([mib, 25 * mib, 4 * mib] if asked_bytes is None else 15 * [2 * mib])
    assert of_torch == whole and of_torch_shrunk == shrunk
    assert [4 * size for size in shrunk] == whole
    assert before == dist._DEFAULT_FIRST_BUCKET_BYTES


def test_what_torch_cannot_carry_on_gloo_is_refused_with_the_reason() -> None:
    accepted = {name for name in COMPRESSIONS.names() if TorchDdp.accepts(COMPRESSIONS.load(name)) is None}
    assert accepted == {"none", "fp16", "powersgd"}
    assert "bf16" in str(TorchDdp.accepts(COMPRESSIONS.load("threshold")))
    assert "chain" in str(TorchDdp().check(4, [PowerSgd, Fp16]))
    assert TorchDdp().check(4, [PowerSgd, NoCompression]) is None


def test_post_local_sgd_is_torchs_alone() -> None:
    accepted = [name for name in COLLECTIVES.names() if TorchPostLocalSgd.accepts(COLLECTIVES.load(name)) is None]
    assert accepted == ["torch"]
    assert TorchPostLocalSgd.accepts_codec(Fp16) and TorchPostLocalSgd.accepts_codec(NoCompression) is None


@pytest.mark.parametrize(("step", "expected"), [(1, 1), (10, 10), (11, 11), (12, 15), (15, 15), (16, 19)])
def test_ranks_stop_where_all_have_heard_of_it(step: int, expected: int) -> None:
    assert next_agreement(step, warmup=10, period=4) == expected


def test_post_local_sgd_sends_all_parameters_once_a_period() -> None:
    algorithm = TorchPostLocalSgd(TorchPostLocalSgdConfig(warmup=10, period=4))
    traffic = algorithm.traffic(SHAPES, 4, TorchDdp(), NoCompression)
    assert traffic.payload_bytes_per_rank == pytest.approx((1.5 * 4 * sum(ELEMENTS) / 4,) * 4)
