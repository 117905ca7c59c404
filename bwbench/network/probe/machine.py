"""What this machine can do: each check tries the thing itself instead of guessing from versions.

How much the relay carries is measured: every node sends to the next one over TCP as fast as it goes. And what earlier
runs have left: processes of bwbench that have outlived their owner. There should be none; this is how one finds out.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import psutil

from bwbench.base.errors import BwbenchError, UnfitMachineError
from bwbench.base.ownership import is_orphan
from bwbench.base.units import BANDWIDTH
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.namespaces.backend import lateness_between
from bwbench.network.namespaces.congestion import BY_ROUTE, USUAL, taken_here
from bwbench.network.namespaces.isolation import sysctl
from bwbench.network.netem.netem_check import netem_available
from bwbench.network.network import open_network

_COMFORTABLE_CORES = 2

NUM_NODES = 4
LATE_S = 0.001  # the 99th percentile of lateness up to which the relay keeps up
# All nodes together, in the order of trying: from the middle up while it goes well, else down.
_SINGLE_BPS = (50e6, 100e6, 200e6, 400e6, 800e6)
_SUPER_BPS = (1e9, 2e9, 4e9, 8e9)
LIGHTEST_BPS = _SINGLE_BPS[0]
_LATENCY, _QUEUE = "1 ms", "50 bdp"  # so long that TCP needs not recover from losses meanwhile
_SINGLY = {"loss": 1e-9}  # packets go one by one where each could be lost by itself
_RAMP_S, _MEASURED_S = 0.7, 0.8
_TRAFFIC = """
import os, socket, sys, time
server = socket.create_server((sys.argv[1], 5001))
if os.fork() == 0:
    deadline = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection((sys.argv[2], 5001), 10)
            break
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(1)
            time.sleep(0.01)
    data = bytes(1 << 17)
    while True:
        connection.sendall(data)
connection, buffer = server.accept()[0], bytearray(1 << 17)
while connection.recv_into(buffer):
    pass
"""

_END_LIMIT_S = 5.0
_ANSWER_LIMIT_S = 10.0


@dataclass(frozen=True)
class MachineFinding:
    """One thing looked at: ``ok``, ``limited`` (works, with what restriction) or ``unfit`` (with what to do)."""

    check: str
    verdict: Literal["ok", "limited", "unfit"]
    text: str


def examine_machine() -> list[MachineFinding]:
    """All findings; takes some ten seconds, because the relay is really loaded."""
    system = f"Linux {platform.release()}, Python {platform.python_version()} at {sys.prefix}"
    findings = [MachineFinding("system", "ok", system), _namespaces()]
    if findings[-1].verdict != "unfit":
        if netem_available():
            findings.append(MachineFinding("netem", "ok", "the kernel has sch_netem: backend auto takes it"))
        else:
            instead = "the relay in user space does the shaping (the same links, measured alike)"
            findings.append(MachineFinding("netem", "limited", f"the kernel has no sch_netem: {instead}"))
        findings.append(_relay())
    return [*findings, *_settings()]


def _namespaces() -> MachineFinding:
    try:
        with open_network(UNSHAPED, 1) as network:
            text = f"can be made {'as root' if os.geteuid() == 0 else 'without root, in a user namespace'}"
            shown = f"/sys/class/net/{network.nodes[0].data_interface}"
            if network.spawn(0, ["sh", "-c", f"test -e {shown}"]).wait(_ANSWER_LIMIT_S) == 0:
                return MachineFinding("namespaces", "ok", text)
            beside = "in them /sys/class/net shows this machine's interfaces, so name data0 to programs that look there"
            return MachineFinding("namespaces", "limited", f"{text}; {beside}")
    except BwbenchError as error:
        return MachineFinding("namespaces", "unfit", str(error))


def _relay() -> MachineFinding:
    try:
        single, super_packets = relay_capacity()
    except BwbenchError as error:
        return MachineFinding("relay", "unfit", str(error))
    how = f"of all nodes together (99 % of the packets within {LATE_S * 1e3:g} ms, scheduling {single.priority})"
    if not single.kept_up:
        lightest = BANDWIDTH.show(LIGHTEST_BPS, 2)
        text = f"not on time even at {lightest} {how}: the machine is busy, or too slow for many nodes"
        return MachineFinding("relay", "limited", text)
    most = BANDWIDTH.show(single.wire_bps, 2)
    if super_packets.kept_up:
        most += f" packet by packet, and {BANDWIDTH.show(super_packets.wire_bps, 2)} on fast links"
    return MachineFinding("relay", "ok", f"carries {most} {how}")


def _settings() -> Iterator[MachineFinding]:
    cores = len(os.sched_getaffinity(0))
    if cores >= _COMFORTABLE_CORES:
        most = f"{cores}: they carry as many nodes of one thread; with more, steps take longer than compute.step_time"
        yield MachineFinding("cores", "ok", f"{most} declares, and bwbench plan says how much")
    else:
        text = f"{cores}: workers, relay and probe share it; declare a generous compute.step_time"
        yield MachineFinding("cores", "limited", text)
    limit = int(sysctl("net/core/rmem_max") or 0)
    if limit >= 1 << 20 or os.geteuid() == 0:
        yield MachineFinding("socket buffers", "ok", f"net.core.rmem_max {limit} B")
    else:
        advice = "fast links may drop frames in the relay; sysctl -w net.core.rmem_max=4194304 helps"
        yield MachineFinding("socket buffers", "limited", f"net.core.rmem_max {limit} B: {advice}")
    yield _congestion_control()
    if pids := ", ".join(str(leftover.pid) for leftover in find_leftovers()):
        text = f"processes {pids} have lost their owner; bwbench clean ends them"
        yield MachineFinding("leftovers", "limited", text)
    else:
        yield MachineFinding("leftovers", "ok", "none")


def _congestion_control() -> MachineFinding:
    taken, how = taken_here()
    allowed = (sysctl("net/ipv4/tcp_allowed_congestion_control") or "").replace(" ", ", ")
    by = f"by the routes of the nodes, as namespaces may take {allowed} alone" if how == BY_ROUTE else "in all nodes"
    if taken == USUAL[0]:
        return MachineFinding("congestion control", "ok", f"{taken} is used on links, {by}")
    text = f"{taken} is used on links, {by}: this kernel has no {USUAL[0]}; sudo modprobe tcp_{USUAL[0]} may load it"
    return MachineFinding("congestion control", "limited", text)


class Load(NamedTuple):
    """What one load made of the relay: bits carried a second, of all nodes together, acknowledgements included.

    Attributes:
        late_s: the 99th percentile of lateness.
        priority: how the relay's process is scheduled.
    """

    wire_bps: float
    late_s: float
    lost: int
    priority: str

    @property
    def kept_up(self) -> bool:
        """Whether the frames left when the link says, and all of them did."""
        return self.late_s <= LATE_S and not self.lost


def relay_capacity() -> tuple[Load, Load]:
    """The most that the relay carries here, packet by packet and as super-packets; takes some 10 s.

    Where it did not keep up even with the least that was tried, that. Raises a BwbenchError where no network can be
    opened.
    """
    return _most(_SINGLE_BPS, _SINGLY), _most(_SUPER_BPS, {})


def _most(ladder_bps: tuple[float, ...], keys: Mapping[str, float]) -> Load:
    """The heaviest load of the ladder with which the relay kept up; the lightest where it kept up with none."""
    step = len(ladder_bps) // 2
    best = _try(ladder_bps[step], keys)
    goes_well = best.kept_up
    for total_bps in ladder_bps[step + 1 :] if goes_well else ladder_bps[:step][::-1]:
        load = _try(total_bps, keys)
        if load.kept_up or not goes_well:
            best = max(best, load) if goes_well else load
        if load.kept_up is not goes_well:
            break
    return best


def _try(total_bps: float, keys: Mapping[str, float]) -> Load:
    """A load, twice where the relay did not keep up at first: something else on the machine may have disturbed it."""
    load = _load(total_bps, keys)
    return load if load.kept_up else _load(total_bps, keys)


def _load(total_bps: float, keys: Mapping[str, float]) -> Load:
    rate = BANDWIDTH.format(total_bps / NUM_NODES)
    asked = {"bandwidth": rate, "latency": _LATENCY, "queue": _QUEUE, "backend": "relay", **keys}
    with open_network(Link.model_validate(asked), NUM_NODES) as network:
        for node in range(NUM_NODES):
            own, following = (network.nodes[number % NUM_NODES].data_address for number in (node, node + 1))
            network.spawn(node, [sys.executable, "-ISc", _TRAFFIC, own, following])
        time.sleep(_RAMP_S)
        begun_s, before, counters = time.monotonic(), network.health(), network.counters()
        time.sleep(_MEASURED_S)
        taken_s = time.monotonic() - begun_s
        after, wire = network.health(), network.counters().minus(counters).total()
        lateness = lateness_between(before, after)
        return Load(
            wire_bps=wire.bytes * 8 / taken_s,
            late_s=lateness["p99_s"] or 0.0,
            lost=sum(after[name] - before[name] for name in ("overruns", "unsent")),
            priority=str(network.applied["priority"]),
        )


def find_leftovers() -> list[psutil.Process]:
    """Processes whose recorded owner has ended, with ``pid`` and ``cmdline`` as info.

    Neither their names nor those of their owners count, and what has no record of an owner is left alone.
    """
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        with contextlib.suppress(psutil.Error, OSError):  # it has ended meanwhile, or is another user's
            if is_orphan(process.environ()):
                found.append(process)
    return found


def end_leftovers(leftovers: list[psutil.Process]) -> None:
    """Kill them; raises UnfitMachineError where one does not end."""
    for process in leftovers:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            message = f"process {process.pid} belongs to another user; run clean as that user"
            raise UnfitMachineError(message) from error
    _, alive = psutil.wait_procs(leftovers, timeout=_END_LIMIT_S)
    if alive:
        raise UnfitMachineError(f"processes {[process.pid for process in alive]} do not end; look at them with ps")
