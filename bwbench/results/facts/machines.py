"""The machines and the versions that some cells ran on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bwbench.records import CellFolder
from bwbench.records.schema import Environment, LinkRecord
from bwbench.results.analysis.provenance import commit_of, host_of


@dataclass(frozen=True)
class Machines:
    """Each distinct value once, sorted; empty where nothing was recorded."""

    hosts: tuple[str, ...]
    processors: tuple[str, ...]
    cores: tuple[int, ...]
    kernels: tuple[str, ...]
    torch: tuple[str, ...]
    commits: tuple[str, ...]
    backends: tuple[str, ...]
    congestion_control: tuple[str, ...]


def machines_of(folders: Iterable[CellFolder]) -> Machines:
    """What environment.json and link.json say; of composed cells, those of the timing run."""
    found: dict[str, set[str]] = {name: set() for name in Machines.__dataclass_fields__ if name != "cores"}
    cores: set[int] = set()
    for folder in folders:
        environment, link = folder.environment or Environment(), folder.link or LinkRecord()
        tcp = link.applied.tcp if link.applied is not None else {}
        found["hosts"].add(host_of(environment))
        found["commits"].add(commit_of(environment))
        found["processors"].add(environment.cpu or "")
        found["kernels"].add(environment.kernel or "")
        found["torch"].add(environment.packages.get("torch", ""))
        found["backends"].add(link.backend or "")
        found["congestion_control"].add(tcp.get("tcp_congestion_control", ""))
        if environment.cores:
            cores.add(environment.cores)
    words = {name: tuple(sorted(values - {""})) for name, values in found.items()}
    return Machines(cores=tuple(sorted(cores)), **words)
