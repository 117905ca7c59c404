"""The machines of a cluster: what each says of itself, and which of them is free for a cell."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.base.errors import BwbenchError
from bwbench.base.registry import DATASETS
from bwbench.experiment.plan.cell import Cell
from bwbench.network.link.trace_file import freeze_link
from bwbench.training.datasets.folder import data_folder


@dataclass(frozen=True)
class Machine:
    """One node of the cluster.

    Attributes:
        node: its id in the cluster.
        host: the same for all nodes on one physical machine.
        name: for messages.
        cpus: that the cluster may use there.
        shared: whether it sees the results folder.
        problem: why it cannot be used; None where it can.
    """

    node: str
    host: str
    name: str
    cpus: float
    shared: bool
    problem: str | None = None


def describe_here(marker: str, token: str, cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What this machine says of itself: called on every machine before it gets a cell.

    Args:
        marker: absolute path of a file in the results folder that holds ``token``.
        cells: contents of cell.json, one for every set of files (data, plugins, traces) that cells need.
    """
    try:
        shared = Path(marker).read_text(encoding="utf-8") == token
    except OSError:
        shared = False
    return {"host": _host(), "shared": shared, "problem": _problem(cells)}


def representatives(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Of cells that need the same files on a machine one each, as cell.json holds them."""
    found: dict[Any, Cell] = {}
    for cell in cells:
        config = cell.config
        link = config.link.model_dump_json() if _traces(cell) else ""
        found.setdefault((config.dataset.source.name, config.plugins, link), cell)
    return [cell.to_json() for cell in found.values()]


def free_machines(machines: Iterable[Machine], busy: Iterable[Machine], cells_per_machine: int) -> list[Machine]:
    """The usable machines that may take one more cell, those with the fewest first.

    Nodes on one physical machine share its cores, and so its ``cells_per_machine``.
    """
    busy = list(busy)
    on_host, on_node = Counter(m.host for m in busy), Counter(m.node for m in busy)
    free = [m for m in machines if m.problem is None and on_host[m.host] < cells_per_machine]
    return sorted(free, key=lambda m: (on_host[m.host], on_node[m.node]))


def _problem(cells: Sequence[dict[str, Any]]) -> str | None:
    """Why cells cannot run here, for want of files; None where they can."""
    problems: list[str] = []
    for content in cells:
        try:
            cell = Cell.from_json(content)
            freeze_link(cell.config.link, Path("/"))
            missing = cell.config.dataset.source.build(DATASETS).missing(data_folder())
            problems += [] if missing is None else [str(missing)]
        except (BwbenchError, OSError) as error:
            problems.append(str(error))
    return "; ".join(dict.fromkeys(problems)) or None


def _traces(cell: Cell) -> bool:
    link = cell.config.link
    return any(trace is not None for trace in (link.trace, *(override.trace for override in link.overrides.values())))


def _host() -> str:
    """Of this boot of this kernel: containers on one machine have names of their own, but share its cores."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename
