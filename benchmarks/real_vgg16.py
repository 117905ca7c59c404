"""A step of the real VGG16 by a ring on four workers, beside the same step of its shapes and the closed form.

Four nodes of an emulated network train VGG16 on pictures of noise, by ``distribute``: first each by itself, which gives
the time of a step and the backward pass's share of it, then together. A cell of `model: {shapes: vgg16}` with these two
figures runs on the same link, in the machine's own time, as the real one does. Four nodes on two processors are short
of them: what sends takes time from what computes, in the real steps and not in the declared ones.

Usage: python benchmarks/real_vgg16.py [--bandwidth '1 Gbit/s'] [--nodes 4] [--batch 1] [--steps 3]
                                       [--unpaced] [--json FILE] [--quick] (five minutes, 12 GB of memory)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from distribute_parts.ranks_of_script import ask_ranks, run_script, tell
from real_size import closed_form_s

import bwbench
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.network.link import Link
from bwbench.records import iter_cells
from bwbench.records.schema import Step

LATENCY, LIMIT_S = "0.1 ms", 900.0
CONVOLUTIONS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0: halve the picture
HIDDEN, CLASSES, PIXELS = 4096, 1000, 224


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", default="1 Gbit/s")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3, help="that count, after one that does not")
    parser.add_argument("--unpaced", action="store_true", help="the real ring is not told its rate; its shapes are")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="hidden layers of 64, not 4096: 15 million parameters")
    options = parser.parse_args()
    hidden = 64 if options.quick else HIDDEN
    asked = {"batch": options.batch, "steps": options.steps, "hidden": hidden}
    asked["link"] = "unpaced" if options.unpaced else options.bandwidth
    ranks = ask_ranks(__file__, Link(bandwidth=options.bandwidth, latency=LATENCY), options.nodes, asked, LIMIT_S)
    alone_s = statistics.median(step for rank in ranks for step in rank["alone_s"])
    share = statistics.median(step for rank in ranks for step in rank["backward_s"]) / alone_s
    together = zip(*(rank["together_s"] for rank in ranks), strict=True)
    together_s = statistics.median(max(steps) for steps in together)
    print(f"{options.nodes} nodes, {options.bandwidth}, {ranks[0]['parameters'] / 1e6:.2f} million parameters")
    idle_s = statistics.median(ranks[0]["idle_s"])
    print(f"by itself {alone_s:.2f} s a step, {share:.0%} of it backward; together {together_s:.2f} s")
    print(f"processors were idle for {idle_s:.2f} of {os.cpu_count()} x {together_s:.2f} s of such a step")
    content = {"bandwidth": options.bandwidth, "nodes": options.nodes, "batch": options.batch, "ranks": ranks}
    content |= {"link": asked["link"], "idle_s": idle_s}
    content |= {"alone_s": alone_s, "backward": share, "together_s": together_s, "load": os.getloadavg()}
    if not options.quick:  # the shapes are those of the whole
        with tempfile.TemporaryDirectory() as folder:
            content |= of_shapes(options, alone_s, share, Path(folder))
        for name in ("shapes_s", "closed_form_s"):
            print(f"{name[:-2].replace('_', ' ')} {content[name]:.2f} s: {content[name] / together_s:.3f} of it")
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def of_shapes(options: argparse.Namespace, step_s: float, backward: float, folder: Path) -> dict[str, Any]:
    """The median step of a cell of shapes, and the closed form of it."""
    experiment: dict[str, object] = {
        "name": "real-vgg16",
        "nodes": options.nodes,
        "link": {"bandwidth": options.bandwidth, "latency": LATENCY},
        "model": {"shapes": {"of": "vgg16", "backward": round(backward, 4)}},
        "batch_size": 1,
        "compute": {"step_time": f"{1e3 * step_s:.1f} ms"},
        "limit": {"steps": options.steps + 1},
        "algorithm": "ring",
    }
    bwbench.run(experiment, results=folder / "results")
    (cell,) = iter_cells(folder / "results")
    steps_s = [event.duration_s for event in cell.events()[0] if isinstance(event, Step)][1:]
    config = CellConfig.model_validate(cell.cell.config)
    shapes_s, form_s = statistics.median(steps_s), closed_form_s(config)
    return {"shapes_s": shapes_s, "closed_form_s": form_s, "shapes_steps_s": steps_s}


def train(asked: dict[str, Any]) -> None:
    """One rank: its steps by itself, and then together; writes the times of both."""
    import torch
    from torch import nn

    from bwbench import distribute

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    layers: list[nn.Module] = []
    channels = 3
    for width in CONVOLUTIONS:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
    sizes = (channels * (PIXELS // 32) ** 2, asked["hidden"], asked["hidden"], CLASSES)
    dense = [module for pair in zip(sizes, sizes[1:], strict=False) for module in (nn.Linear(*pair), nn.ReLU())]
    torch.manual_seed(0)
    model = nn.Sequential(*layers, nn.Flatten(), *dense[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    random = torch.Generator().manual_seed(rank)
    pictures = torch.randn(asked["batch"], 3, PIXELS, PIXELS, generator=random)
    labels = torch.randint(CLASSES, (asked["batch"],), generator=random)
    backward_s: list[float] = []
    idle_s: list[float] = []

    def steps() -> list[float]:
        found = []
        for _ in range(asked["steps"] + 1):
            torch.distributed.barrier()
            began_s, began_idle_s = time.perf_counter(), seconds_idle()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), labels)
            forward_s = time.perf_counter()
            loss.backward()
            backward_s.append(time.perf_counter() - forward_s)
            optimizer.step()
            found.append(time.perf_counter() - began_s)
            idle_s.append(seconds_idle() - began_idle_s)
        return found[1:]

    alone_s, backward_alone_s = steps(), backward_s[1:]
    backward_s.clear()
    idle_s.clear()
    with distribute(model, optimizer, "ring", link=asked["link"]):
        together_s = steps()
    content = {"alone_s": alone_s, "backward_s": backward_alone_s, "together_s": together_s}
    content |= {"backward_together_s": backward_s[1:], "idle_s": idle_s[1:]}
    content["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    tell(asked, content)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def seconds_idle() -> float:
    """What all processors together have been idle since the machine started."""
    return int(Path("/proc/stat").read_text().split()[4]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run_script(main, train)
