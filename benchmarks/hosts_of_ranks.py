"""Hosts with several ranks behind one link each: a step with a flat ring, through one leader a host, and sharded.

Two nodes of an emulated network are the hosts; in each, processes train a model of linear layers by ``distribute``. All
arms take turns in the same processes, round after round, so that a disturbance meets all. Told are the time of a step
(median over the rounds of the mean of a round, the slowest rank's), the bytes that leave a host in a step with all
headers and acknowledgements, and what the link alone would need for the payload.

Usage: python benchmarks/hosts_of_ranks.py [--bandwidth '200 Mbit/s'] [--latency '10 ms'] [--per-host 4]
                                           [--parameters 3.2] [--rounds 3] [--steps 6] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

from distribute_parts.ranks_of_script import ask_ranks, run_script, tell

from bwbench.base.units import BANDWIDTH
from bwbench.network.link import Link

HOSTS = 2
LIMIT_S = 1500.0
WIDTH = 400  # of a layer: 160,000 parameters
# Name, arguments of ``distribute``, whether it is told the link.
ARMS: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("ddp", {"algorithm": "ddp"}, False),
    ("flat", {"algorithm": "every-step", "collective": "ring"}, False),
    ("leaders", {"algorithm": "every-step", "collective": "hierarchical"}, False),
    ("sharded", {"algorithm": "every-step", "collective": "sharded"}, False),
    ("flat, paced", {"algorithm": "every-step", "collective": "ring"}, True),
    ("leaders, paced", {"algorithm": "every-step", "collective": "hierarchical"}, True),
    ("sharded, paced", {"algorithm": "every-step", "collective": "sharded"}, True),
    ("flat, fp16", {"algorithm": "every-step", "collective": "ring", "compression": "fp16"}, False),
    ("leaders, fp16", {"algorithm": "every-step", "collective": "hierarchical", "compression": "fp16"}, False),
    ("sharded, fp16", {"algorithm": "every-step", "collective": "sharded", "compression": "fp16"}, False),
)


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", default="200 Mbit/s")
    parser.add_argument("--latency", default="10 ms")
    parser.add_argument("--per-host", type=int, default=4)
    parser.add_argument("--parameters", type=float, default=3.2, help="millions of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="of a round, after two that do not count")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of two steps, 0.3 million parameters")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps, options.parameters = 1, 2, 0.3
    layers = max(1, round(options.parameters * 1e6 / WIDTH**2))
    asked = {"bandwidth": options.bandwidth, "layers": layers, "rounds": options.rounds, "steps": options.steps}
    link = Link(bandwidth=options.bandwidth, latency=options.latency)
    told = ask_ranks(__file__, link, HOSTS, asked, LIMIT_S, options.per_host)
    gradient_bytes = 4 * layers * (WIDTH**2 + WIDTH)
    rows = [row_of(name, told, gradient_bytes, BANDWIDTH.parse(options.bandwidth)) for name, _, _ in ARMS]
    print(f"{HOSTS} hosts of {options.per_host} ranks, {options.bandwidth}, {options.latency} one way, ", end="")
    print(f"{gradient_bytes / 4e6:.2f} million parameters, {os.cpu_count()} processors for all ranks")
    print(f"{'':16} {'ms a step':>10} {'rounds':>24} {'MB a host and step':>20} {'of them at the rate, ms':>24}")
    for row in rows:
        rounds = " ".join(f"{value:.0f}" for value in row["rounds_ms"])
        print(f"{row['arm']:16} {row['step_ms']:10.0f} {rounds:>24} {row['sent_mb']:20.2f} {row['link_ms']:24.0f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        facts = {"hosts": HOSTS, "per_host": options.per_host, "processors": os.cpu_count(), "load": os.getloadavg()}
        asked_link = {"bandwidth": options.bandwidth, "latency": options.latency}
        content = {**facts, **asked_link, "gradient_bytes": gradient_bytes, "steps": options.steps, "rows": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def row_of(name: str, told: list[dict[str, Any]], gradient_bytes: int, rate_bps: float) -> dict[str, Any]:
    """What an arm came to."""
    rounds_ms = [1e3 * max(each) for each in zip(*(one["step_s"][name] for one in told), strict=True)]
    sent = [statistics.median(one["sent_bytes"][name]) for one in told if one["sent_bytes"]]
    most = max(sent)
    return {
        "arm": name,
        "step_ms": statistics.median(rounds_ms),
        "rounds_ms": rounds_ms,
        "sent_mb": most / 1e6,
        "of_gradient": most / gradient_bytes,
        "link_ms": 1e3 * 8 * most / rate_bps,
    }


def train(asked: dict[str, Any]) -> None:
    """One rank: every arm in turn; writes its times, and of the first rank of a host what left by its interface."""
    import torch
    from torch import nn

    from bwbench import distribute
    from bwbench.training.loop.interfaces import counters_of

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank, first = int(os.environ["RANK"]), os.environ["LOCAL_RANK"] == "0"
    torch.distributed.init_process_group("gloo")
    step_s: dict[str, list[float]] = {name: [] for name, _, _ in ARMS}
    sent_bytes: dict[str, list[float]] = {name: [] for name, _, _ in ARMS}
    for _ in range(asked["rounds"]):
        for name, method, told in ARMS:
            torch.manual_seed(0)
            model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(asked["layers"])))
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            inputs = torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(rank))
            with distribute(model, optimizer, **method, link=asked["bandwidth"] if told else "unpaced"):
                for number in range(asked["steps"] + 2):
                    if number == 2:  # buffers are there, connections have found their pace
                        torch.distributed.barrier()
                        began_s, before = time.perf_counter(), counters_of(os.environ["INTERFACE"])[0]
                    optimizer.zero_grad()
                    model(inputs).pow(2).mean().backward()
                    optimizer.step()
                step_s[name].append((time.perf_counter() - began_s) / asked["steps"])
                torch.distributed.barrier()
                sent = counters_of(os.environ["INTERFACE"])[0] - before
                sent_bytes[name].append(sent / asked["steps"])
    tell(asked, {"step_s": step_s, "sent_bytes": sent_bytes if first else {}})
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_script(main, train)
