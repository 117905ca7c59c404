"""Our collectives and gloo's all-reduce, taking turns in the same four processes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import CONTROL_INTERFACE, control_address
from bwbench.network.network import Network

TIME_LIMIT_S = 550.0
# torch's collective averages by gloo's all-reduce.
SPELLED: dict[str, Any] = {"gloo": "torch", "ring-unpaced": {"ring": {"paced": False}}}


def times_of(
    network: Network,
    collectives: Sequence[str],
    payloads: Sequence[int],
    runs: int,
    link: Link,
    folder: Path,
    dilation: float = 1.0,
) -> dict[str, list[float]]:
    """Seconds of the link's time of the slowest rank, in each run, under ``"<collective> <payload bytes>"``."""
    out, keys = folder / "times.json", link.model_dump(mode="json", by_alias=True)
    asked = json.dumps([str(out), list(collectives), list(payloads), runs, keys, dilation])
    run_module(network, "collectives_parts.ranks", asked)
    times: dict[str, list[float]] = json.loads(out.read_text())
    return times


def run_module(network: Network, module: str, argument: str) -> None:
    """Run a module on every node, as torchrun would, and wait. SystemExit where a rank fails or takes too long."""
    processes = []
    for rank, node in enumerate(network.nodes):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(network.nodes)),
            "MASTER_ADDR": control_address(0),
            "MASTER_PORT": "29500",
            "OMP_NUM_THREADS": "1",
            "CONTROL": CONTROL_INTERFACE,
            "DATA": node.data_interface,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")))),
        }
        processes.append(
            network.spawn(rank, [sys.executable, "-m", module, argument], env=environment, stdout=2, stderr=2)
        )
    deadline = time.monotonic() + TIME_LIMIT_S
    for process in processes:
        if process.wait(max(0.0, deadline - time.monotonic())) != 0:
            raise SystemExit(f"a rank of {module} failed or took longer than {TIME_LIMIT_S} s: {argument}")


def main() -> None:
    """One rank: time all collectives in turn, so that a disturbance meets all; rank 0 writes the times."""
    import torch
    import torch.distributed as dist

    from bwbench.base import emulated_time
    from bwbench.base.registry import COLLECTIVES
    from bwbench.experiment.config.component_parsing import parse_component
    from bwbench.methods.collectives import Members, Round
    from bwbench.methods.compression.codec import NoCompression

    out, names, payloads, runs, asked, dilation = json.loads(sys.argv[1])
    emulated_time.dilate(dilation)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["CONTROL"]
    dist.init_process_group("gloo")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["DATA"]
    # Connections of their own: what one collective makes TCP learn of the link is no other's.
    groups = {name: dist.new_group(backend="gloo") for name in names}
    codec, link = NoCompression(), Link.model_validate(asked).dilated(dilation)
    everybody = Round(0, Members(tuple(range(dist.get_world_size())), dist.get_rank()))
    collectives = {name: parse_component(SPELLED.get(name, name), COLLECTIVES).build(COLLECTIVES) for name in names}
    times: dict[str, list[float]] = {}
    for payload in payloads:
        for run in range(runs + 1):
            for name, collective in collectives.items():
                tensor = torch.full((payload // 4,), float(dist.get_rank()))
                collective.connect(groups[name], link)  # sets the pace of the connections, or lifts it
                dist.barrier()
                emulated_time.forget_computed()
                started = emulated_time.monotonic()
                collective.average(tensor, codec, everybody)
                emulated_time.catch_up(of_libraries=True)
                elapsed = torch.tensor(emulated_time.monotonic() - started, dtype=torch.float64)
                dist.all_reduce(elapsed, dist.ReduceOp.MAX)
                if run:  # the first one opens connections and grows TCP's window
                    times.setdefault(f"{name} {payload}", []).append(float(elapsed))
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(times))
    dist.barrier()
    os._exit(0)  # gloo's teardown aborts now and then


if __name__ == "__main__":
    main()
