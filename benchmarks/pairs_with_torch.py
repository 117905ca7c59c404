"""Steps of a user's own script: ours over torch's own ways of averaging gradients, in interleaved pairs.

Four ranks train linear layers of 3.2 and 25 million parameters: DDP beside our ring, its fp16 hook beside our ring in
fp16, its PowerSGD hook (one bucket, since gloo mixes the messages of several) beside ours, with the rank and the least
gain of matrices that ours has. All have a model of their own in the same processes and take turns; within a pair, who
is first alternates. What counts is the geometric mean of the ratios, ours over torch's, of the slowest rank's mean
step, with its 95 % interval. On the loopback the ranks are ordinary processes, on a link they are on nodes of the
emulated network, and ours is measured there as users call it, without a word of the link, and told it (`paced`).

Usage: python benchmarks/pairs_with_torch.py [--pairs 5] [--link loopback|'100 Mbit/s'|'1 Gbit/s']…
                                             [--parameters 3.2|25]… [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distribute_parts.ranks_of_script import ask_ranks, run_script, tell

from bwbench.network.link import Link
from bwbench.results.analysis.statistics import geometric_interval

RANKS = 4
LATENCY = "0.5 ms"
LINKS = ("loopback", "100 Mbit/s", "1 Gbit/s")
SIZES = {3.2: (20, 400), 25.0: (16, 1250)}  # millions of parameters: layers and their width
PAIRS = (("ddp", "ring"), ("ddp fp16", "ring-fp16"), ("ddp powersgd", "powersgd"))  # torch's, ours
PACED = ", paced"
WARM_STEPS = 4  # torch's PowerSGD compresses from the third on
ABOUT_S = 2.0  # that one side of a pair takes
LIMIT_S = 1500.0


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--link", choices=LINKS, action="append")
    parser.add_argument("--parameters", type=float, choices=list(SIZES), action="append", help="millions of them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="two pairs of the small model on the loopback")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.link, options.parameters = 2, ["loopback"], [3.2]
    rows: list[dict[str, Any]] = []
    print(f"{'link':12} {'parameters':>11} {'torch':>14} {'ms':>8} {'ours':>12} {'ms':>8}   ours over torch's")
    for name in options.link or LINKS:
        for millions in options.parameters or SIZES:
            link = None if name == "loopback" else Link(bandwidth=name, latency=LATENCY)
            asked = {"pairs": options.pairs, "millions": millions, "link": link and name}
            told = ask_ranks(__file__, link, RANKS, asked, LIMIT_S)
            for theirs, ours in arms(link and name):
                row = row_of(theirs, ours, told)
                rows.append({"link": name, "parameters_millions": millions, **row, "load": os.getloadavg()})
                print(
                    f"{name:12} {millions:10} M {theirs:>14} {row['torch_ms']:8.1f} {ours:>12} {row['ours_ms']:8.1f}   "
                    f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})",
                    flush=True,
                )
            if options.json:
                facts = {"ranks": RANKS, "latency": LATENCY, "processors": os.cpu_count(), "pairs": options.pairs}
                facts |= {"torch": version("torch")}
                options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


def arms(link: object) -> list[tuple[str, str]]:
    """All pairs: on a link each of torch's ways beside ours without and with a pace."""
    return [pair for theirs, ours in PAIRS for pair in ((theirs, ours), (theirs, ours + PACED))[: 1 + bool(link)]]


def row_of(theirs: str, ours: str, told: list[dict[str, Any]]) -> dict[str, Any]:
    """One pair of arms: medians of their steps, and the mean ratio with its interval."""
    torch_s, ours_s = (
        [max(each) for each in zip(*(one["step_s"][f"{ours}: {name}"] for one in told), strict=True)]
        for name in (theirs, ours)
    )
    ratios = [mine / other for mine, other in zip(ours_s, torch_s, strict=True)]
    ratio, low, high = geometric_interval(ratios)
    return {
        "torch": theirs,
        "ours": ours,
        "torch_ms": 1e3 * statistics.median(torch_s),
        "ours_ms": 1e3 * statistics.median(ours_s),
        "ratio": ratio,
        "low": low,
        "high": high,
        "ratios": ratios,
        "steps": told[0]["steps"][ours],
    }


def train(asked: dict[str, Any]) -> None:
    """One rank: all arms in turn; tells the time of a step of each, a number a pair."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    layers, width = SIZES[asked["millions"]]
    inputs = torch.randn(1, width, generator=torch.Generator().manual_seed(dist.get_rank()))
    pairs = arms(asked["link"])
    steps: dict[str, Callable[[], None]] = {}
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        steps[name] = step_of(name, model, inputs, asked["link"])
        timed(steps[name], WARM_STEPS)
    many = {ours: number_of_steps(steps[theirs], steps[ours]) for theirs, ours in pairs}
    step_s: dict[str, list[float]] = {}
    for number in range(asked["pairs"]):
        for theirs, ours in pairs:
            for name in (theirs, ours) if number % 2 else (ours, theirs):
                step_s.setdefault(f"{ours}: {name}", []).append(timed(steps[name], many[ours]))
    tell(asked, {"step_s": step_s, "steps": many})
    dist.barrier()
    os._exit(0)  # gloo's teardown with several groups aborts now and then


def step_of(name: str, model: Any, inputs: Any, link: str | None) -> Callable[[], None]:
    """A step of an arm; ours keep what ``distribute`` returns for as long as the process lives."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    from bwbench import distribute

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    called = model
    if name.startswith("ddp"):
        one_bucket = {"bucket_cap_mb": 1024} if "powersgd" in name else {}
        group = torch.distributed.new_group(backend="gloo")
        called = ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group, **one_bucket)
        if "fp16" in name:
            ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)
        elif "powersgd" in name:
            state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        distribute(model, optimizer, name.removesuffix(PACED), link=link if name.endswith(PACED) else "unpaced")

    def step() -> None:
        optimizer.zero_grad()
        called(inputs).pow(2).mean().backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], steps: int) -> float:
    """Seconds of a step here, after all ranks have come."""
    import torch.distributed as dist

    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began_s) / steps


def number_of_steps(*both: Callable[[], None]) -> int:
    """How many both of a pair take at a time; the same on all ranks."""
    import torch
    import torch.distributed as dist

    said = torch.tensor(max(1, math.ceil(ABOUT_S / max(timed(step, 2) for step in both))))
    dist.all_reduce(said, dist.ReduceOp.MIN)
    return int(said)


if __name__ == "__main__":
    run_script(main, train)
