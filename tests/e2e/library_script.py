"""Run by test_library.py, once a process, with torchrun's environment. Prints one line of JSON.

python library_script.py CASE
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.training.loop.replica import digest

CASE, RANK = sys.argv[1], int(os.environ["RANK"])
report: dict[str, Any] = {"rank": RANK}


def train(algorithm: str, num_steps: int, **options: Any) -> nn.Module:
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = distribute(model, optimizer, algorithm, **options)
    report["begun"] = digest(enumerate(model.parameters())).hex()
    for step in range(num_steps):
        if CASE == "death" and step == 3 and RANK == 1:
            os._exit(9)
        inputs = torch.randn(8, 12)
        began = time.monotonic()
        try:
            (model(inputs) - inputs[:, :4]).pow(2).mean().backward()
            optimizer.step()
        except RuntimeError as error:
            report["error"] = str(error)
            report["waited_s"] = time.monotonic() - began
            break
        optimizer.zero_grad()
    report["payload_bytes"] = handle.payload_bytes
    report["ended"] = digest(enumerate(model.parameters())).hex()
    if "error" not in report:
        handle.close()
    return model


def differ() -> None:
    """What rank 1 has is another model, or it asks for another method."""
    odd = RANK == 1
    shapes = {"unequal-shapes": (40, 12), "unequal-sizes": (12, 41)}
    model = nn.Linear(*(shapes.get(CASE, (12, 40)) if odd else (12, 40)), bias=False)
    if CASE == "unequal-wrapping" and odd:
        model = nn.DataParallel(model)
    method = "ring-fp16" if CASE == "unequal-methods" and odd else "ring"
    began = time.monotonic()
    try:
        distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), method)
    except ConfigError as error:
        report["error"] = str(error)
    report["waited_s"] = time.monotonic() - began
    report["left"] = not dist.is_initialized()


if CASE.startswith("unequal"):
    differ()
elif CASE == "subgroups":  # two models, each on half of the processes
    dist.init_process_group("gloo")
    halves = [dist.new_group([0, 1], backend="gloo"), dist.new_group([2, 3], backend="gloo")]
    train("ring", 5, group=halves[RANK // 2])
elif CASE == "silence":
    if RANK == 0:
        train("ring", 1, timeout_s=3)
    else:
        train("ring", 0, timeout_s=3)
        time.sleep(8)
else:
    train("ring-fp16", 8)
print("\n" + json.dumps(report), flush=True)
