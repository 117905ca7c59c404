"""What every host must have before anything starts: asked of all at a time, told in one table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from bwbench.base.errors import UnfitMachineError
from bwbench.experiment.config.hosts import Host
from bwbench.experiment.plan.cell import Cell
from bwbench.network.link import Link
from bwbench.records.environment import capture_environment
from bwbench.records.schema import Environment, JsonObject
from bwbench.running.launch.ssh.connection import HostError, ask, command_line, connected, run_to_its_end
from bwbench.running.launch.ssh.host_facts import PreflightFacts
from bwbench.running.launch.ssh.host_shaping import SHAPER, ShapingRequest, host_link

FACTS = "bwbench.running.launch.ssh.host_facts"
SSH_PORT = 22
FREE_BYTES = 500_000_000
MEMORY_BYTES = 500_000_000  # of a worker: torch and a small model
CLOCK_LIMIT_S = 60.0  # clocks are never compared; one that is so wrong spoils logs, and certificates
LISTEN_LIMIT_S = 30.0


@dataclass(frozen=True)
class HostReport:
    """What one host said of itself, and what it lacks."""

    host: Host
    facts: PreflightFacts | None = None
    problems: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where the other hosts reach it."""
        if self.host.network is not None:
            return self.host.network
        if self.facts is None:
            return self.host.address
        own = self.facts.addresses.get(self.host.interface or "")
        return own[0] if own else self.facts.ssh_address or self.host.address

    @property
    def rendezvous_port(self) -> int:
        """That is free there, for all workers to meet at."""
        assert self.facts is not None, "a host that has said nothing takes no part"
        return self.facts.port


def refuse_unfit(reports: Sequence[HostReport]) -> None:
    """Raise UnfitMachineError with a line for each problem of each host; nothing where there is none."""
    lines = [(report.host.name, problem) for report in reports for problem in report.problems]
    if not lines:
        return
    width = max(len(name) for name, _ in lines)
    table = "\n".join(f"  {name:<{width}}  {problem}" for name, problem in lines)
    unfit = len({name for name, _ in lines})
    raise UnfitMachineError(f"{unfit} of {len(reports)} hosts cannot take part; nothing was started\n{table}")


def shaping_requests(reports: Sequence[HostReport], link: Link) -> list[ShapingRequest]:
    """What to ask of each host; the ports of all ssh servers are left alone on all of them."""
    named = {report.host.port for report in reports} | {report.facts.ssh_port for report in reports if report.facts}
    spared = tuple(sorted({SSH_PORT, *(port for port in named if port is not None)}))
    return [
        ShapingRequest(
            link=host_link(link, rank).model_dump(mode="json", by_alias=True),
            interface=report.host.interface,
            peers=tuple(other.address for other in reports if other is not report),
            spared=spared,
        )
        for rank, report in enumerate(reports)
    ]


def check_hosts(hosts: Sequence[Host], cells: Sequence[Cell]) -> list[HostReport]:
    """Preflight alone: what each host says, and lacks. Raises ConfigError where asyncssh is not installed."""

    async def examined() -> list[HostReport]:
        async with connected(hosts) as connections:
            return await examine(connections, hosts, cells)

    return run_to_its_end(examined())


async def examine(connections: Mapping[Host, Any], hosts: Sequence[Host], cells: Sequence[Cell]) -> list[HostReport]:
    """Ask all hosts, and try the port that they will meet at.

    Args:
        connections: to the hosts that could be reached; for others, the HostError that says why not.
        cells: that will run.
    """
    own = capture_environment()
    asked = representatives(cells)
    reports = await asyncio.gather(*(_examine(connections[host], host, own, asked) for host in hosts))
    first = reports[0]
    if first.problems or len(hosts) == 1:
        return list(reports)
    return await _with_shaping(connections, await _with_reach(connections, list(reports)), cells)


def representatives(cells: Iterable[Cell]) -> list[JsonObject]:
    """cell.json of one cell for each data set, and for each model of shapes, whose file a host may lack."""
    found: dict[tuple[str, str], JsonObject] = {}
    for cell in cells:
        config = cell.config
        model = str(config.model) if config.learns_nothing else ""
        found[config.dataset.source.name, model] = cell.to_json()
    return list(found.values())


async def _examine(connection: Any, host: Host, own: Environment, cells: Sequence[Any]) -> HostReport:
    if isinstance(connection, HostError):
        return HostReport(host, problems=(str(connection),))
    asked_s = time.time()
    try:
        said = await ask(connection, host, FACTS, ["facts"], {"cells": cells, "data": host.data})
        found = PreflightFacts.model_validate(said)
    except HostError as error:
        return HostReport(host, problems=(str(error),))
    except ValidationError:
        return HostReport(host, problems=(f"it answers as another version than {own.bwbench} does; install the same",))
    clock_off_s = found.time_unix_s - (asked_s + time.time()) / 2
    return HostReport(host, found, tuple(_problems(host, found, clock_off_s, own)))


def _problems(host: Host, found: PreflightFacts, clock_off_s: float, own: Environment) -> list[str]:
    there, problems = found.environment, []
    if there.bwbench != own.bwbench:
        problems.append(f"bwbench {there.bwbench} there, {own.bwbench} here; install the same")
    elif there.source_sha256 != own.source_sha256:
        problems.append(f"bwbench {own.bwbench} has other source files there than here; bring both to one commit")
    release = str(there.packages.get("torch")).partition("+")[0]
    if release != (ours := str(own.packages.get("torch")).partition("+")[0]):
        problems.append(f"torch {release} there, {ours} here; install the same release")
    if found.proc_problem is not None:
        problems.append(found.proc_problem)
    if abs(clock_off_s) > CLOCK_LIMIT_S:
        problems.append(f"its clock is off by {clock_off_s:.0f} s; switch on time synchronisation")
    if found.free_bytes < FREE_BYTES:
        problems.append(f"{found.free_bytes / 1e6:.0f} MB of disk are free; {FREE_BYTES / 1e6:.0f} MB are needed")
    if found.memory_bytes < MEMORY_BYTES * host.workers:
        problems.append(
            f"{found.memory_bytes / 1e6:.0f} MB of memory are free; a worker needs {MEMORY_BYTES / 1e6:.0f} MB"
        )
    if host.interface is not None and host.interface not in found.addresses:
        names = ", ".join(sorted(found.addresses))
        problems.append(f"no interface {host.interface!r}; it has {names}")
    elif host.interface is not None and not found.addresses[host.interface]:
        problems.append(f"interface {host.interface!r} has no IPv4 address")
    return [*problems, *found.missing_data]


async def _with_shaping(
    connections: Mapping[Host, Any], reports: list[HostReport], cells: Sequence[Cell]
) -> list[HostReport]:
    """Whether every host can shape its interface as the first cell with a link has it; nothing is changed.

    Other links of a sweep differ in their numbers, which each cell's own preflight looks at.
    """
    link = next((cell.config.link for cell in cells if cell.config.link.shaped), None)
    if link is None or any(report.problems for report in reports):
        return reports
    asked = shaping_requests(reports, link)

    async def check(report: HostReport, request: ShapingRequest) -> HostReport:
        try:
            found = await ask(connections[report.host], report.host, SHAPER, ["check"], request.to_json())
            problem = found["problem"]
        except HostError as error:
            problem = str(error)
        return report if problem is None else replace(report, problems=(str(problem),))

    return list(await asyncio.gather(*map(check, reports, asked)))


async def _with_reach(connections: Mapping[Host, Any], reports: list[HostReport]) -> list[HostReport]:
    """Whether every host reaches the port at the first one that workers will meet at."""
    first, port = reports[0], reports[0].rendezvous_port
    words = ["listen", first.address, str(port)]
    listening = await connections[first.host].create_process(command_line(first.host, FACTS, words))
    try:
        await asyncio.wait_for(listening.stdout.readline(), LISTEN_LIMIT_S)

        async def reach(report: HostReport) -> HostReport:
            if report.problems or report is first:
                return report
            try:
                found = await ask(connections[report.host], report.host, FACTS, ["reach", first.address, str(port)])
            except HostError as error:
                return HostReport(report.host, report.facts, (str(error),))
            if found["problem"] is None:
                return report
            text = f"port {port} of {first.address} ({first.host.name}) cannot be reached from it: {found['problem']}"
            return HostReport(report.host, report.facts, (f"{text}; a firewall, or another network?",))

        return list(await asyncio.gather(*map(reach, reports)))
    except asyncio.TimeoutError:
        return [HostReport(first.host, first.facts, ("it does not listen when told to",)), *reports[1:]]
    finally:
        listening.stdin.write_eof()
        listening.close()
