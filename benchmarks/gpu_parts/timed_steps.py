"""One rank of ``gpu_steps.py``: every arm has a model of its own on the device, and their steps take turns."""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_parts.resnet50_like import ResNet50Sized
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from bwbench import distribute

PERIOD = 10  # local steps to a round, of DiLoCo
STEPS = 2  # timed at once, of the others
METHODS: dict[str, Any] = {"diloco": {"diloco": {"period": PERIOD}}}


def main() -> None:
    began_s = time.monotonic()
    out, arms, device_kind, rounds, limit_s, small = json.loads(sys.argv[1])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(2)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["CONTROL"]
    dist.init_process_group("gloo")
    device = torch.device("cpu")
    if device_kind == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model, batch, name = model_and_batch(device, small=small)
    steppers = {arm: prepared(arm, copy.deepcopy(model), batch) for arm in arms}
    times: dict[str, list[float]] = {}
    over = False
    for number in range(rounds + 1):
        turn = number % len(arms)
        for arm in [*arms[turn:], *arms[:turn]]:
            if over:
                break
            steps = PERIOD if arm == "diloco" else (1 if number == 0 else STEPS)
            dist.barrier()
            before_s = time.monotonic()
            for _ in range(steps):
                steppers[arm]()
            if device.type == "cuda":
                torch.cuda.synchronize()
            now_s = time.monotonic()
            slowest = torch.tensor([(now_s - before_s) / steps, now_s - began_s], dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)  # the same numbers everywhere, so that all stop alike
            if number:  # the first round makes connections, and chooses kernels
                times.setdefault(arm, []).append(float(slowest[0]))
            over = float(slowest[1]) > limit_s
    if rank == 0:
        record = {
            "gpu": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "model": name,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "diloco_period": PERIOD,
            "cut_short": over,
            "step_s": times,
        }
        Path(out).write_text(json.dumps(record))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's teardown aborts now and then


def model_and_batch(device: torch.device, *, small: bool) -> tuple[nn.Module, torch.Tensor, str]:
    """torchvision's ResNet-50 where it is installed, else one whose gradients have its sizes."""
    if small:
        model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256))
        return model.to(device), torch.randn(16, 256, device=device), "small"
    try:
        from torchvision.models import resnet50
    except Exception:  # of any kind: a torchvision of another torch ends in strange ways
        sized = ResNet50Sized().to(device)
        return sized, torch.randn(64, sized.width, device=device), "gradients of ResNet-50's sizes"
    return resnet50().to(device), torch.randn(16, 3, 128, 128, device=device), "torchvision's ResNet-50"


def prepared(arm: str, model: nn.Module, batch: torch.Tensor) -> Callable[[], None]:
    """An arm's optimizer step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.0 if arm == "top-k" else 0.9)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["DATA"]
    group = dist.new_group(backend="gloo")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["CONTROL"]
    called: nn.Module = model
    if arm.startswith("ddp"):
        called = ddp = nn.parallel.DistributedDataParallel(model, process_group=group, broadcast_buffers=False)
        if "fp16" in arm:
            ddp.register_comm_hook(group, fp16_compress_hook)
    else:
        distribute(model, optimizer, METHODS.get(arm, arm), group=group)

    def step() -> None:
        optimizer.zero_grad()
        called(batch).square().mean().backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
