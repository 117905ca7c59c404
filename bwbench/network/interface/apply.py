"""Shaping one real interface: look, arm the revert, apply, read back. Whatever goes wrong, nothing of it stays.

The order is the point. The state file and the revert exist before the first packet is concerned, so that ending this
process at any moment leaves at worst something that is taken back by itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bwbench.base.errors import BwbenchError, ConfigError, LinkError, UnfitMachineError
from bwbench.network.interface.control_session import refuse_control_sessions
from bwbench.network.interface.guard import Guard, answers, arm
from bwbench.network.interface.kernel import Device, Kernel
from bwbench.network.interface.plan import Names, Step, plan
from bwbench.network.interface.read_back import missing
from bwbench.network.interface.remove import not_restored, recognise, remove
from bwbench.network.interface.request import Traffic, check_link
from bwbench.network.interface.run_state import RunState, StateFolder, forget_state, now_s, read_state, write_state
from bwbench.network.interface.snapshot import Snapshot
from bwbench.network.link import Link
from bwbench.network.netem.check import netem_available

APPLY_LIMIT_S = 60.0  # an apply that takes longer is taken back, and fails
MARGIN_S = 5.0  # before that it gives up by itself
LEASE_S = 15.0  # of a held run: taken back when its holder has been silent for so long
BEAT_S = 3.0


@dataclass(frozen=True)
class Prepared:
    """What would be done to an interface, after all checks that need no rights."""

    device: Device
    link: Link
    traffic: Traffic
    both: bool
    names: Names
    before: Snapshot
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line for people."""
        return f"{self.link.describe()}, with {self.traffic}" + ("" if self.both else ", outgoing alone")


@dataclass(frozen=True)
class Applied:
    """A run that is applied; ``armed_by`` says what takes it back."""

    prepared: Prepared
    state_file: Path
    armed_by: str


def prepare(kernel: Kernel, dev: str, traffic: Traffic, link: Link, both: bool) -> Prepared:
    """Look at the machine and decide; changes nothing.

    Raises ConfigError or LinkError where it must not or cannot be done.
    """
    check_link(link, netem_available())
    device = kernel.device(dev)
    before = Snapshot.of(kernel.described(device.index))
    if recognise(kernel, device.index) is not None:
        raise LinkError(f"{dev} is shaped by bwbench already; first: bwbench link clear --dev {dev}")
    if device.loopback:
        raise ConfigError(f"--dev {dev}: nothing of another machine comes this way; name the interface towards it")
    if not device.up:
        raise LinkError(f"{dev} is down; bring it up first: ip link set {dev} up")
    before.refuse_unless_default(dev, both)
    _refuse_own_addresses(kernel, traffic, device)
    refuse_control_sessions(traffic)
    names = Names.new()
    steps = plan(dev, traffic, link, names, mtu=device.mtu, leaf=before.leaf, both=both)
    return Prepared(device, link, traffic, both, names, before, steps, tuple(_other_ways(kernel, traffic, dev)))


@contextlib.contextmanager
def applied(kernel: Kernel, prepared: Prepared, duration_s: float, held: bool) -> Iterator[Applied]:
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
                _undo(kernel, state, state_file)
                left = not_restored(kernel, state) or "Everything is as it was"
                raise type(error)(f"{error}. {left}") from error
            except BaseException:
                _undo(kernel, state, state_file)
                raise
        try:
            yield Applied(prepared, state_file, guard.how)
        finally:
            if held:
                release(kernel, folder, state)


def sleep(limit_s: float) -> bool:
    """Wait; nothing ends it early."""
    time.sleep(limit_s)
    return False


def hold(kernel: Kernel, run: Applied, duration_s: float, wait: Callable[[float], bool] = sleep) -> None:
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


def release(kernel: Kernel, folder: StateFolder, state: RunState) -> None:
    """Take a run off and forget it; nothing happens where that is done already."""
    with folder.locked():
        state_file = folder.file_of(state.dev)
        found = read_state(state_file)
        if found is not None and found.run == state.run:
            remove(kernel, state.dev, state.index, state.names, state.both)
            forget_state(state_file)


def _check(kernel: Kernel, prepared: Prepared, guard: Guard, end_s: float) -> None:
    if lacking := missing(kernel, prepared.steps):
        raise LinkError(f"the kernel has made something else of it; missing: {'; '.join(lacking)}")
    if now_s() > end_s - MARGIN_S:
        raise UnfitMachineError("applying took too long; this machine is too busy")
    if not guard.alive():
        raise UnfitMachineError("its revert has ended before its time; look at the system's log")


def _undo(kernel: Kernel, state: RunState, state_file: Path) -> None:
    remove(kernel, state.dev, state.index, state.names, state.both)
    forget_state(state_file)


def _refuse_second_run(kernel: Kernel, state_file: Path, prepared: Prepared) -> None:
    """Under the lock: look once more at what may have changed since ``prepare``, and forget a run that is over."""
    state = read_state(state_file)
    if state is not None and answers(state.run):
        raise LinkError(
            f"{state.dev} is being shaped by another bwbench (run {state.run}: {state.summary}); "
            f"first: bwbench link clear --dev {state.dev}"
        )
    if state is not None:
        remove(kernel, state.dev, state.index, state.names, state.both)
        forget_state(state_file)
    now = Snapshot.of(kernel.described(prepared.device.index))
    if now != prepared.before:
        raise LinkError(f"{prepared.device.name} is being changed by somebody else ({now}); nothing was applied")


def _refuse_own_addresses(kernel: Kernel, traffic: Traffic, device: Device) -> None:
    for peer in traffic.peers:
        if peer.prefixlen == peer.max_prefixlen and str(peer.network_address) in device.addresses:
            raise ConfigError(f"--peer {peer.network_address}: that is {device.name} itself; name the other machines")


def _other_ways(kernel: Kernel, traffic: Traffic, dev: str) -> Iterator[str]:
    """What will have no effect."""
    for peer in traffic.peers:
        if peer.prefixlen == peer.max_prefixlen:
            way = kernel.route_to(str(peer.network_address))
            if way != dev:
                instead = f"is reached through {way}" if way else "cannot be reached at all"
                yield f"{peer.network_address} {instead}: what {dev} does will not matter to it"
