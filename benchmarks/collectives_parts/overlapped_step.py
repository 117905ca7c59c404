"""One rank of the overlap benchmark: a model whose backward pass sleeps, exchanged behind it and beside it."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.registry import COLLECTIVES
from bwbench.base.units import MEMORY
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.every_step import EveryStep, EveryStepConfig
from bwbench.methods.collectives import Members
from bwbench.methods.compression.codec import NoCompression
from collectives_parts.setting import link_of

LAYERS = 24
BUCKETS = 8


class _Layer(torch.autograd.Function):
    """Passes its input on; the backward pass takes ``seconds`` and gives every weight a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, seconds: list[float]) -> torch.Tensor:
        ctx.save_for_backward(weight)
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        time.sleep(ctx.seconds[0])
        (weight,) = ctx.saved_tensors
        return gradient, torch.ones_like(weight), None


class Model(nn.Module):
    """Layers of equal size and duration; ``seconds`` holds that of one layer."""

    def __init__(self, num_elements: int) -> None:
        super().__init__()
        self.seconds = [0.0]
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(num_elements // LAYERS)) for _ in range(LAYERS)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = _Layer.apply(x, weight, self.seconds)
        return x


class Control:
    """Nothing is averaged and nothing diverges here."""

    def barrier(self) -> None:
        dist.barrier()

    def average(self, values: torch.Tensor) -> None:
        """Not used."""

    def diverged(self, reason: str) -> None:
        raise RuntimeError(reason)


class Clock:
    def held(self) -> Any:
        return nullcontext()


def main() -> None:
    """Median waits of the slowest rank, behind a backward pass and beside one of equal length."""
    out, rate_bps, payload_bytes, runs = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["CONTROL"]
    dist.init_process_group("gloo")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["DATA"]
    data = dist.new_group(backend="gloo")
    model = Model(payload_bytes // 4)
    collective = COLLECTIVES.load("ring")()
    collective.connect(data, link_of(rate_bps))
    algorithm = EveryStep(EveryStepConfig.model_validate({"bucket": MEMORY.format(payload_bytes / BUCKETS)}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    running = algorithm.attach(
        Context(model, optimizer, collective, NoCompression, data, Control(), Clock(), Members.all_of(data))
    )
    found: dict[str, list[float]] = {"behind": [], "beside": []}
    for run in range(runs + 1):
        for place, waits in found.items():
            behind = place == "behind"
            model.seconds[0] = 0.0 if behind else statistics.median(found["behind"] or [1.0]) / LAYERS
            dist.barrier()
            running.begin_step()
            with running.micro_step(last=not behind):
                torch.autograd.backward(running.module(torch.ones(1, requires_grad=True)).sum())
            report = running.finish()
            waited = torch.tensor(report.exposed_s + report.codec_s, dtype=torch.float64)
            dist.all_reduce(waited, dist.ReduceOp.MAX)
            if run:  # the first one opens connections and grows TCP's window
                waits.append(float(waited))
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps({place: statistics.median(waits) for place, waits in found.items()}))
    dist.barrier()
    os._exit(0)  # gloo's teardown aborts now and then


if __name__ == "__main__":
    main()
