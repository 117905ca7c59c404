"""Processes of bwbench that have outlived their parent. There should be none: this is how one finds out."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from bwbench.base.errors import UnfitMachineError

_MODULES = ("bwbench.network.agent", "bwbench.network.probe.node", "bwbench.training.loop.worker")
_END_LIMIT_S = 5.0


@dataclass(frozen=True)
class Leftover:
    """A process that nobody supervises any more."""

    pid: int
    command: str


def find_leftovers() -> list[Leftover]:
    """Agents, probes and workers that no living ``bwbench`` is an ancestor of."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or []
        if not any(module in command for module in _MODULES):
            continue
        try:
            ancestors = [" ".join(parent.cmdline()) for parent in process.parents()]
        except psutil.Error:
            continue
        if not any("bwbench" in ancestor for ancestor in ancestors) and not any("pytest" in a for a in ancestors):
            found.append(Leftover(process.pid, " ".join(command)))
    return found


def end_leftovers(leftovers: list[Leftover]) -> None:
    """Kill them; raises UnfitMachineError where one does not end."""
    processes = []
    for leftover in leftovers:
        try:
            process = psutil.Process(leftover.pid)
            process.kill()
            processes.append(process)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise UnfitMachineError(
                f"process {leftover.pid} belongs to another user; run clean as that user"
            ) from error
    _, alive = psutil.wait_procs(processes, timeout=_END_LIMIT_S)
    if alive:
        raise UnfitMachineError(f"processes {[process.pid for process in alive]} do not end; look at them with ps")
