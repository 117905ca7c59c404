"""Shaping one real interface: look, arm the revert, apply, read back. Whatever goes wrong, nothing of it stays.

The order is the point. The state file and the revert exist before the first packet is concerned, so that ending this
process at any moment leaves at worst something that is taken back by itself. Connections through which this machine is
being controlled are never shaped, and the kernel itself is asked whether everything is there as it was asked for.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bwbench.base.errors import BwbenchError, ConfigError, LinkError, UnfitMachineError
from bwbench.network.interface.kernel import Device, Kernel
from bwbench.network.interface.remove import not_restored, recognise, undo
from bwbench.network.interface.revert import Guard, answers, arm
from bwbench.network.interface.run_state import QdiscSnapshot, RunState, StateFolder, now_s, read_state, write_state
from bwbench.network.interface.shaping_request import Address, PeerTraffic, check_link
from bwbench.network.interface.steps import INGRESS, ROOT, Add, Filter, HtbClass, MakeIfb, Names, Qdisc, Step, plan
from bwbench.network.link import Link
from bwbench.network.netem.netem_check import netem_available

APPLY_LIMIT_S = 60.0  # an apply that takes longer is taken back, and fails
MARGIN_S = 5.0  # before that it gives up by itself
LEASE_S = 15.0  # of a held run: taken back when its holder has been silent for so long
BEAT_S = 3.0

_SERVERS = ("sshd", "dropbear")  # sshd-session of newer OpenSSH begins alike
# Where the peer's address, its port and ours are. sudo drops these variables; the ancestors still have them.
_VARIABLES = {"SSH_CONNECTION": (0, 1, 3), "SSH_CLIENT": (0, 1, 2)}


@dataclass(frozen=True)
class Prepared:
    """What would be done to an interface, after all checks that need no rights."""

    device: Device
    link: Link
    traffic: PeerTraffic
    both: bool
    names: Names
    before: QdiscSnapshot
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line for people."""
        return f"{self.link.describe()}, with {self.traffic}" + ("" if self.both else ", outgoing alone")


@dataclass(frozen=True)
class AppliedRun:
    """A run that is applied; ``armed_by`` says what takes it back."""

    prepared: Prepared
    state_file: Path
    armed_by: str


def prepare(kernel: Kernel, dev: str, traffic: PeerTraffic, link: Link, *, both: bool) -> Prepared:
    """Look at the machine and decide; changes nothing.

    Raises ConfigError or LinkError where it must not or cannot be done.
    """
    check_link(link, netem=netem_available())
    device = kernel.device(dev)
    before = QdiscSnapshot.of(kernel.described(device.index))
    if recognise(kernel, device.index) is not None:
        raise LinkError(f"{dev} is shaped by bwbench already; first: bwbench link clear --dev {dev}")
    if device.loopback:
        raise ConfigError(f"--dev {dev}: nothing of another machine comes this way; name the interface towards it")
    if not device.up:
        raise LinkError(f"{dev} is down; bring it up first: ip link set {dev} up")
    before.refuse_unless_default(dev, both=both)
    hosts = [str(peer.network_address) for peer in traffic.peers if peer.prefixlen == peer.max_prefixlen]
    for address in hosts:
        if address in device.addresses:
            raise ConfigError(f"--peer {address}: that is {dev} itself; name the other machines")
    refuse_control_sessions(traffic)
    names = Names(secrets.token_hex(4))
    steps = plan(dev, traffic, link, names, mtu=device.mtu, leaf=before.leaf, both=both)
    notes = []
    for address in hosts:
        if (way := kernel.route_to(address)) != dev:
            instead = f"is reached through {way}" if way else "cannot be reached at all"
            notes.append(f"{address} {instead}: what {dev} does will not matter to it")
    return Prepared(device, link, traffic, both, names, before, steps, tuple(notes))


@contextlib.contextmanager
def applied(kernel: Kernel, prepared: Prepared, duration_s: float, *, held: bool) -> Iterator[AppliedRun]:
    """The interface shaped within the block; after it, too, until ``duration_s`` are over, unless it is ``held``.

    Raises LinkError or UnfitMachineError with everything taken back where it cannot be done.
    """
    folder = StateFolder.open()
    dev = prepared.device.name
    state_file = folder.file_of(dev)
    with contextlib.ExitStack() as stack:
        with folder.locked():
            _refuse_second_run(kernel, state_file, prepared)
            end_s = now_s() + APPLY_LIMIT_S
            state = RunState(
                run=prepared.names.run,
                dev=dev,
                index=prepared.device.index,
                phase="applying",
                deadline_s=end_s,
                both=prepared.both,
                before=prepared.before,
                summary=prepared.summary,
            )
            write_state(state_file, state)
            try:
                guard = stack.enter_context(arm(state_file, state.run))
                for step in prepared.steps:
                    kernel.take(step)
                _check(kernel, prepared, guard, end_s)
                lasts_s = min(LEASE_S, duration_s) if held else duration_s
                state = replace(state, phase="held" if held else "applied", deadline_s=now_s() + lasts_s)
                write_state(state_file, state)
            except BwbenchError as error:
                undo(kernel, state, state_file)
                left = not_restored(kernel, state) or "Everything is as it was"
                raise type(error)(f"{error}. {left}") from error
            except BaseException:
                undo(kernel, state, state_file)
                raise
        try:
            yield AppliedRun(prepared, state_file, guard.how)
        finally:
            if held:
                with folder.locked():
                    found = read_state(state_file)
                    if found is not None and found.run == state.run:  # else that is done already
                        undo(kernel, state, state_file)


def hold(kernel: Kernel, run: AppliedRun, duration_s: float, wait: Callable[[float], bool]) -> None:
    """Keep a held run alive until ``duration_s`` are over.

    Args:
        wait: lets a time pass; True ends it early.

    Raises LinkError where somebody takes it back or changes it meanwhile.
    """
    end_s = now_s() + duration_s
    folder = StateFolder(run.state_file.parent)
    while (left_s := end_s - now_s()) > 0:
        lacking = missing(kernel, run.prepared.steps)
        with folder.locked():  # for a moment only: whoever is stopped while holding it keeps all others out
            state = read_state(run.state_file)
            if state is None or state.run != run.prepared.names.run:
                raise LinkError(f"{run.prepared.device.name}: somebody has cleared it meanwhile")
            if lacking:
                raise LinkError(f"{run.prepared.device.name}: somebody has changed it meanwhile; missing: {lacking[0]}")
            write_state(run.state_file, replace(state, deadline_s=now_s() + min(LEASE_S, left_s + BEAT_S)))
        if wait(min(BEAT_S, left_s)):
            return


def _check(kernel: Kernel, prepared: Prepared, guard: Guard, end_s: float) -> None:
    if lacking := missing(kernel, prepared.steps):
        raise LinkError(f"the kernel has made something else of it; missing: {'; '.join(lacking)}")
    if now_s() > end_s - MARGIN_S:
        raise UnfitMachineError("applying took too long; this machine is too busy")
    if not guard.alive():
        raise UnfitMachineError("its revert has ended before its time; look at the system's log")


def _refuse_second_run(kernel: Kernel, state_file: Path, prepared: Prepared) -> None:
    """Under the lock: look once more at what may have changed since ``prepare``, and forget a run that is over."""
    state = read_state(state_file)
    if state is not None and answers(state.run):
        raise LinkError(
            f"{state.dev} is being shaped by another bwbench (run {state.run}: {state.summary}); "
            f"first: bwbench link clear --dev {state.dev}"
        )
    if state is not None:
        undo(kernel, state, state_file)
    now = QdiscSnapshot.of(kernel.described(prepared.device.index))
    if now != prepared.before:
        raise LinkError(f"{prepared.device.name} is being changed by somebody else ({now}); nothing was applied")


@dataclass(frozen=True)
class Session:
    """A connection from ``remote``, and how we know."""

    remote: Address
    remote_port: int
    local_port: int
    known_from: str


def refuse_control_sessions(traffic: PeerTraffic) -> None:
    """Raise ConfigError where a control session of this machine belongs to ``traffic``."""
    for session in control_sessions():
        if not traffic.has(session.remote, session.remote_port, session.local_port):
            continue
        advice = (
            f"leave it out with --except-port {session.local_port}, or name the experiment's: --port 5001-5010"
            if not traffic.ports
            else f"choose --port so that neither {session.local_port} nor {session.remote_port} is among them"
        )
        raise ConfigError(
            f"--peer {session.remote}: this machine is controlled from there by ssh (port {session.remote_port} there, "
            f"{session.local_port} here; {session.known_from}), and that session would be shaped too. Nothing was "
            f"changed; {advice}"
        )


def control_sessions() -> set[Session]:
    """What the environment of this process and its ancestors tells, and what ssh servers are connected to."""
    sessions = {*_from_environment(os.environ, "of this shell"), *_from_servers()}
    for process in psutil.Process().parents():
        with contextlib.suppress(psutil.Error, OSError):
            sessions |= {*_from_environment(process.environ(), f"of process {process.pid}")}
    return sessions


def _from_environment(environment: Mapping[str, str], known_from: str) -> Iterator[Session]:
    for name, positions in _VARIABLES.items():
        with contextlib.suppress(KeyError, ValueError, IndexError):
            words = environment[name].split()
            remote, remote_port, local_port = (words[position] for position in positions)
            yield Session(_address(remote), int(remote_port), int(local_port), f"{name} {known_from}")


def _from_servers() -> Iterator[Session]:
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return
    for connection in connections:
        local, remote = connection.laddr, connection.raddr
        if connection.status != psutil.CONN_ESTABLISHED or connection.pid is None or not (local and remote):
            continue
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            name = psutil.Process(connection.pid).name()
            if name.startswith(_SERVERS):
                yield Session(_address(remote.ip), remote.port, local.port, f"process {connection.pid}, {name}")


def _address(text: str) -> Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def missing(kernel: Kernel, steps: Sequence[Step]) -> list[str]:
    """What of ``steps`` is not there as it was asked for, in the words of ``tc``; empty where all is."""
    lacking = []
    found: dict[str, list[Qdisc | HtbClass | Filter]] = {}
    for step in steps:
        name = step.name if isinstance(step, MakeIfb) else step.dev
        index = kernel.index_of(name)
        if index is not None and name not in found:
            qdiscs = kernel.qdiscs(index)
            parents = {qdisc.handle for qdisc in qdiscs if qdisc.handle == INGRESS or qdisc.parent == ROOT} - {0}
            filters = [one for parent in parents for one in kernel.filters(index, parent)]
            found[name] = [*qdiscs, *kernel.classes(index), *filters]
        there = name in found
        if there and isinstance(step, Add):
            what = step.what
            there = any(what.same_as(one) if isinstance(what, Qdisc) else what == one for one in found[name])
        if not there:
            lacking.append(step.commands()[0])
    return lacking
