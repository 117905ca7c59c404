"""One rank of ``gpu_overlap.py``: some steps, of which the last are profiled.

``python -m gpu_parts.overlapped_steps OUT METHOD MEETING_FILE``, with RANK and WORLD_SIZE set.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_parts.resnet50_like import ResNet50Sized
from gpu_parts.timeline import busy
from torch.profiler import ProfilerActivity, profile, record_function

from bwbench import distribute

WARM, SHOWN = 4, 3
BACKWARD = "a backward pass"


def main() -> None:
    out, method, meeting = sys.argv[1:]
    rank = int(os.environ["RANK"])
    torch.set_num_threads(2)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=int(os.environ["WORLD_SIZE"])
    )
    torch.manual_seed(0)
    model = ResNet50Sized(repeats=6).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    inputs = torch.randn(2048, model.width, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        torch.cuda.synchronize()  # so that what runs from here on is the backward pass
        with record_function(BACKWARD):
            loss.backward()
        optimizer.step()

    with distribute(model, optimizer, method):
        for _ in range(WARM):
            step()
        torch.cuda.synchronize()
        dist.barrier()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(SHOWN):
                step()
            torch.cuda.synchronize()
    if rank == 0:
        trace = Path(out).with_suffix(".trace.json")
        profiler.export_chrome_trace(str(trace))
        record = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "method": method,
            "ranks": dist.get_world_size(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "events": short(events_of(json.loads(trace.read_text())["traceEvents"])),
        }
        Path(out).write_text(json.dumps(record))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def short(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With close kernels as one."""
    return sorted([e for e in events if e["kind"] != "kernel"] + busy(events), key=lambda event: event["begin_us"])


def events_of(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a Chrome trace, in the words of ``timeline.py``. A backward pass is over when its last kernel is.

    The passes that the profiler names are calls on the host, which end once all gradients are averaged. Where a pass
    ends on the GPU is told by the last kernel of the stream that computes within that call.
    """
    found: list[dict[str, Any]] = []
    calls: list[tuple[float, float]] = []
    for event in trace:
        if event.get("ph") != "X":
            continue
        category, name = str(event.get("cat", "")), str(event.get("name", ""))
        begin, end = float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0.0))
        kind = None
        if category == "kernel":
            kind = "kernel"
        elif category == "gpu_memcpy":
            kind = "to host" if "DtoH" in name else "to device" if "HtoD" in name else None
        elif category == "user_annotation" and name == BACKWARD:
            calls.append((begin, end))
        if kind is not None:
            stream = event.get("args", {}).get("stream")
            found.append({"kind": kind, "name": name[:60], "begin_us": begin, "end_us": end, "stream": stream})
    kernels = [event for event in found if event["kind"] == "kernel"]
    if kernels:
        streams = [event["stream"] for event in kernels]
        computing = max(set(streams), key=streams.count)
        for begin, end in calls:
            inside = [e for e in kernels if e["stream"] == computing and begin <= e["begin_us"] < end]
            if inside:
                last = max(e["end_us"] for e in inside)
                found.append({"kind": "backward", "name": BACKWARD, "begin_us": begin, "end_us": last, "stream": None})
    origin = min((event["begin_us"] for event in found), default=0.0)
    for event in found:
        event["begin_us"] = round(event["begin_us"] - origin, 3)
        event["end_us"] = round(event["end_us"] - origin, 3)
    return sorted(found, key=lambda event: float(event["begin_us"]))


if __name__ == "__main__":
    main()
