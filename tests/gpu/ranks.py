"""One rank of several that share a GPU: trains with every method in turn, on the CPU and on the GPU.

``python -m tests.gpu.ranks FOLDER cpu,cuda NAME …`` with RANK and WORLD_SIZE set. COLLECTIVE, where it is set, is that
of all methods (JSON). Starting torch and CUDA takes longer than most trainings here, so that all of them have the same
processes. Rank 0 writes FOLDER/results.jsonl, a line for each training, as soon as it is over; every rank
FOLDER/rank<r>.log.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from bwbench import distribute
from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.method_names import PRESETS
from bwbench.training.loop.muon import Muon

STEPS = 20
TIMEOUT_S = 15.0  # of a message: a rank that has failed is not waited for longer
# What is rare by default happens within the steps; each where the algorithm has such an option.
SHORT = {"period": 4, "overlap": 0, "warmup": 5, "warmup_steps": 5, "fragments": 2, "sync_interval": "50 ms"}
OVERLAPPED = {"overlapped-local-sgd": "auto", "streaming-diloco": 2}
OWN = {"eager-diloco": {"outer_momentum": 0.0}}  # whose own late means do not bear a momentum in rounds this short
RATES = {"demo": 0.001}  # its steps are as large as the rate in every entry
WITHOUT_MOMENTUM = ("dgc", "dgc-int4", "ef-signsgd", "random-k", "demo", "cocktail-sgd")


def spelling(name: str) -> Any:
    config = ALGORITHMS.load(PRESETS[name].algorithm).Config
    known = {field.alias or key for key, field in config.model_fields.items()}
    short = {**SHORT, "overlap": OVERLAPPED.get(name, 0)}
    options = {key: value for key, value in short.items() if key in known} | OWN.get(name, {})
    return {name: options} if options else name


def model_on(device: torch.device) -> nn.Module:
    """Some 600,000 parameters in two buckets, the same ones everywhere."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 700), nn.Tanh(), nn.Linear(700, 700), nn.Tanh(), nn.Linear(700, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / max(1, parameter.shape[-1]) ** 0.5)
    return model.to(device)


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(32, 64, generator=generator)
    return inputs, inputs[:, :10].sin()


def train(name: str, device: torch.device, rank: int) -> tuple[list[float], bool]:
    """The mean loss over all ranks after each step, before its update; whether a host speaks from GPU to GPU."""
    model = model_on(device)
    known = ALGORITHMS.load(PRESETS[name].algorithm).optimizers
    optimizer: torch.optim.Optimizer = (
        (Muon if "muon" in known else torch.optim.Adam)(model.parameters(), lr=0.002)
        if known and "sgd" not in known
        else torch.optim.SGD(
            model.parameters(), lr=RATES.get(name, 0.05), momentum=0.0 if name in WITHOUT_MOMENTUM else 0.9
        )
    )
    losses = []
    collective = json.loads(os.environ.get("COLLECTIVE", "null"))
    with distribute(model, optimizer, spelling(name), collective=collective, timeout_s=TIMEOUT_S) as handle:
        by_devices = handle._running._context.collective.devices is not None
        for step in range(STEPS):
            inputs, targets = (one.to(device) for one in batch(rank, step))
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        handle.drain()
        assert all(parameter.device == device for parameter in model.parameters())
        mean = torch.stack(losses).cpu()
        dist.all_reduce(mean)
    return [float(value) for value in mean / dist.get_world_size()], by_devices


def main() -> None:
    folder, kinds, *names = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(2)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    devices = [torch.device("cuda", rank % torch.cuda.device_count()) if k == "cuda" else torch.device(k)
               for k in kinds.split(",")]  # fmt: skip
    for name in names:
        for device in devices:
            began_s = time.monotonic()
            found: dict[str, Any] = {"name": name, "device": device.type}
            # As on a machine without a GPU, which torch's PowerSGD hook waits for wherever there is one.
            hidden = patch.object(torch.cuda, "is_available", return_value=False)
            try:
                with hidden if device.type == "cpu" else nullcontext():
                    found["losses"], found["by_devices"] = train(name, device, rank)
            except Exception as error:
                traceback.print_exc()
                found["error"] = f"rank {rank}: {type(error).__name__}: {error}"
            found["seconds"] = round(time.monotonic() - began_s, 2)
            if rank == 0:
                with (Path(folder) / "results.jsonl").open("a") as file:
                    file.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # gloo's teardown aborts now and then


if __name__ == "__main__":
    main()
