"""What a worker does itself where no launcher of ours has started it: torchrun or Slurm has, on any hosts.

Its companion, a process beside it, claims the cell, watches the network, and writes the result once the worker has
ended, however that was. Ranks meet at the store; what they tell one another there is JSON.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.errors import CellTakenError, ConfigError, LinkError
from bwbench.base.interruption import handle
from bwbench.base.plain_data import Json
from bwbench.base.start_module import module_command
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.plugin_sources import sources_of
from bwbench.methods.native import are_compiled
from bwbench.network.link import Link
from bwbench.records.environment import capture_environment, tcp_settings
from bwbench.records.schema import ComparedClock, Environment, JsonObject, parse_content
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.interfaces import counters_of, interface_towards, named_interface
from bwbench.training.loop.network_probe import METHOD, measure
from bwbench.training.loop.process_groups import Groups, WorkerEnvironment
from bwbench.training.loop.recorder import Channel

_SAME = "all hosts need the same bwbench"


@dataclass(frozen=True)
class HostFacts:
    """One rank's host.

    Attributes:
        address, interface: towards the other ranks; empty on one node.
        cell: id of the cell that this rank was given.
        environment: as ``environment.json`` has it.
    """

    address: str
    interface: str
    cell: str
    environment: Environment

    @property
    def host(self) -> str:
        """Its name."""
        return self.environment.host or self.address

    def to_json(self) -> str:
        """What travels."""
        about = {"address": self.address, "interface": self.interface, "cell": self.cell}
        return json.dumps({**about, "environment": self.environment.to_json()})

    @classmethod
    def from_json(cls, text: str) -> HostFacts:
        """What another rank sent."""
        content = json.loads(text)
        environment = parse_content(Environment, content["environment"], "another rank's environment", _SAME)
        return cls(str(content["address"]), str(content["interface"]), str(content["cell"]), environment)

    def to_record(self) -> Environment:
        """What is recorded of it."""
        return self.environment.model_copy(update={"address": self.address, "interface": self.interface})


def unlike(hosts: Sequence[HostFacts]) -> str | None:
    """What two ranks must have alike and do not, by rank and host; None where all agree.

    Two builds of one release of torch, for processors and for GPUs, count as alike.
    """
    for name, of in (
        ("the cell", lambda facts: facts.cell),
        ("bwbench", lambda facts: facts.environment.bwbench),
        ("the source of bwbench", lambda facts: str(facts.environment.source_sha256)[:12]),
        ("torch", lambda facts: str(facts.environment.packages.get("torch")).partition("+")[0]),
        ("its plugins", lambda facts: ", ".join(sorted(map(str, facts.environment.plugins_sha256.values()))) or "none"),
    ):
        values = [of(facts) for facts in hosts]
        for rank, value in enumerate(values):
            if value != values[0]:
                return (
                    f"rank {rank} on {hosts[rank].host} differs from rank 0 on {hosts[0].host} in {name}: "
                    f"{value} and {values[0]}; all hosts need the same, so install it there"
                )
    return None


def counts_interface(hosts: Sequence[HostFacts], rank: int) -> bool:
    """Whether ``rank`` says what has left by its interface: of several ranks that send by one, the first does."""
    interfaces = [(facts.address, facts.interface) for facts in hosts]
    return interfaces[rank] not in interfaces[:rank]


QUESTIONS = 20  # to each rank; the first one opens the connection
_ASK_TAG, _TELL_TAG = 9011, 9012


def compare_clocks(data: dist.ProcessGroup, control: ControlPath) -> list[ComparedClock]:
    """Ask every rank for its time; on all ranks at the same point, while nothing is sent.

    Returns on rank 0 what it found of every other rank; nothing on other ranks.
    """
    if control.rank == 0:
        return [_ask(data, rank) for rank in range(1, control.size)]
    question, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for _ in range(QUESTIONS):
        data.recv([question], 0, _ASK_TAG).wait()
        answer[0] = time.monotonic()
        data.send([answer], 0, _TELL_TAG).wait()
    return []


def _ask(data: dist.ProcessGroup, rank: int) -> ComparedClock:
    question, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    rounds: list[tuple[float, float, float]] = []  # how long it took, its middle, what the other clock said
    for _ in range(QUESTIONS):
        asked_s = time.monotonic()
        data.send([question], rank, _ASK_TAG).wait()
        data.recv([answer], rank, _TELL_TAG).wait()
        heard_s = time.monotonic()
        rounds.append((heard_s - asked_s, (asked_s + heard_s) / 2, float(answer)))
    taken_s, middle_s, told_s = min(rounds)
    return ComparedClock(rank=rank, mono_s=middle_s, offset_s=told_s - middle_s, uncertainty_s=taken_s / 2)


AGAIN_S = 300.0  # from one probe to the next, at the evaluation after that
VERIFY_TRIES = 3  # a probe disturbed by something else is repeated; how often is recorded
_TELL_LIMIT_S = 2.0  # to leave word at the store, which may be gone
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:]{2,}")


def on_own_interfaces(environment: WorkerEnvironment) -> WorkerEnvironment:
    """``environment`` with the interfaces that lead to rank 0, where none are named. Raises ConfigError."""
    if environment.world_size == 1:
        return environment
    found = (
        named_interface(environment.data_interface)
        if environment.data_interface
        else interface_towards(environment.master_address)
    )
    os.environ["BWBENCH_DATA_INTERFACE"] = found.name  # for algorithms that open connections of their own
    control = environment.control_interface or found.name
    return replace(environment, data_interface=found.name, control_interface=control)


class ExternalRun:
    """One rank's part in an attempt at a cell that nobody of ours launched.

    Attributes:
        attempt: folder of this rank's records, by the same name on all hosts.
        channel: to the companion.
    """

    def __init__(
        self, groups: Groups, channel: Channel, attempt: Path, hosts: list[HostFacts], interface: str | None, link: Link
    ) -> None:
        self.attempt, self.channel, self._link = attempt, channel, link
        self._groups, self._control, self._hosts, self._interface = groups, groups.control, hosts, interface
        self._counts = counts_interface(hosts, groups.control.rank)
        self._before: torch.Tensor | None = None
        self._probed = torch.zeros(3, dtype=torch.int64)  # by probes during the training
        self._measured_s = time.monotonic()
        channel.before_phase = self._count

    @classmethod
    def begin(cls, cell: Cell, cell_file: Path, environment: WorkerEnvironment, groups: Groups) -> ExternalRun | None:
        """Agree with the other ranks on an attempt; None, on all of them, where the cell is done already.

        Raises:
            ConfigError: the hosts do not have the same program or the same cell.
            CellTakenError: another process runs this cell.
        """
        own = None
        if environment.data_interface is not None:
            own = named_interface(environment.data_interface)
        made_by = capture_environment(sources_of(cell.config), compiled_codecs=are_compiled())
        facts = HostFacts(
            address=own.address if own else "",
            interface=own.name if own else "",
            cell=cell.id,
            environment=made_by.model_copy(update={"tcp": tcp_settings()}),
        )
        hosts = [HostFacts.from_json(text) for text in _exchange(groups, "facts", facts.to_json())]
        groups.control.barrier()  # the store may end with rank 0, and every rank has to know what differs
        if (problem := unlike(hosts)) is not None:
            raise ConfigError(problem)
        channel = _start_companion(cell_file, environment.rank)
        with contextlib.suppress(OSError):  # end once torchrun has, be it killed: nobody would end this process
            die_with_parent()
        _die_by_signals(channel)
        asked: JsonObject = {"event": "phase", "phase": "claim"}
        asked["hosts"] = [host.to_record().to_json() for host in hosts]
        agreed: JsonObject = {}
        if environment.rank == 0:
            agreed = channel.ask({**asked, "attempt": None})
        agreed = json.loads(_exchange(groups, "attempt", json.dumps(agreed))[0])
        groups.control.barrier()
        if "refused" in agreed:
            raise CellTakenError(f"{cell.slug}: {agreed['refused']}")
        if "attempt" not in agreed:
            return None
        if environment.rank != 0:
            channel.ask({**asked, **agreed})
        attempt = cell_file.parent / str(agreed["attempt"])
        return cls(groups, channel, attempt, hosts, environment.data_interface, cell.config.link)

    def measure(self, when: str, clock_s: float | None = None) -> None:
        """Compare the ranks' clocks, probe the network, and have both recorded as ``when``.

        Raises LinkError, on all ranks, where it is not what was asked.
        """
        self._measured_s = time.monotonic()
        if self._groups.data is None:
            return
        clocks: list[Json] = [found.to_json() for found in compare_clocks(self._groups.data, self._control)]
        rejected: list[Json] = []
        for number in range(1, VERIFY_TRIES + 1):
            found = measure(self._groups.data, self._control, self._link)
            content = {**found.to_json(), "method": METHOD, "tries": number, "rejected": rejected, "clocks": clocks}
            self.channel.send({"event": "measured", "when": when, "clock_s": clock_s, "measurement": content})
            if found.verdict == "ok":
                return
            rejected = [*rejected, [*found.reasons]]
        raise LinkError("; ".join(found.reasons))

    def look_again(self, clock_s: float) -> None:
        """Between evaluations: probe the network where that was last done a while ago, by rank 0's clock.

        Raises LinkError, on all ranks, where it is not what was asked.
        """
        if not self._control.any(self._control.rank == 0 and time.monotonic() - self._measured_s > AGAIN_S):
            return
        before = self._counters()
        self.measure("achieved_during", clock_s)
        if before is not None and (after := self._counters()) is not None:
            self._probed += after - before

    def _count(self, phase: str) -> None:
        """Read the interface at the begin of the training; at its end say what has left by all hosts' interfaces.

        Both while every rank stands still, so that one rank of a host speaks for all that share its interface.
        """
        if phase not in ("training", "drained") or (now := self._counters()) is None:
            return
        if self._before is None or phase == "training":
            self._before = now
            return
        total = self._control.total(now - self._before - self._probed)
        sent = dict(zip(("bytes", "frames", "drops"), total.tolist(), strict=True))
        self.channel.send({"event": "traffic", **sent})

    def _counters(self) -> torch.Tensor | None:
        """Bytes, frames and drops of the interface, int64 ``[3]``; zeros where another rank counts it."""
        if self._interface is None:
            return None
        return torch.tensor(counters_of(self._interface) if self._counts else (0, 0, 0), dtype=torch.int64)

    def finish(self) -> None:
        """Measure again, bring all records to rank 0, and have the companion know that they are complete."""
        with contextlib.suppress(LinkError):  # the companion has heard of it, and the records are wanted all the same
            self.measure("achieved_after")
        for rank in range(1, self._control.size):
            self._bring(rank)
        self.channel.phase("recorded")

    def explain(self, error: BaseException) -> str:
        """``error`` with the ranks and hosts whose addresses it names, and with what another rank has met before."""
        text = str(error) or type(error).__name__
        named = set(_ADDRESS.findall(text))
        peers = [f"rank {rank} on {host.host}" for rank, host in enumerate(self._hosts) if host.address in named]
        if peers:
            text += f" (that is {' or '.join(peers)})"
        own = f"rank {self._control.rank} on {self._hosts[self._control.rank].host}: {text}"
        first: list[str] = []  # what the first rank with an error has left at the store: ``own`` where there was none

        def ask() -> None:
            if self._groups.store is not None:
                first.append(self._groups.store.compare_set("bwbench/error", "", own).decode())

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_TELL_LIMIT_S)
        return f"{first[0]}; {own}" if first and first[0] != own else own

    def _bring(self, rank: int) -> None:
        """One rank's events to rank 0, which writes them where they are not there already, on a shared disk."""
        group, file = self._groups.data, self.attempt / f"rank{rank}.jsonl"
        assert group is not None
        if self._control.rank == rank:
            packed = torch.frombuffer(bytearray(gzip.compress(file.read_bytes(), 6)), dtype=torch.uint8)
            group.send([torch.tensor([packed.numel()])], 0, rank).wait()
            group.send([packed], 0, rank).wait()
        elif self._control.rank == 0:
            length = torch.zeros(1, dtype=torch.int64)
            group.recv([length], rank, rank).wait()
            packed = torch.empty(int(length), dtype=torch.uint8)
            group.recv([packed], rank, rank).wait()
            if not file.exists():
                file.write_bytes(gzip.decompress(packed.numpy().tobytes()))


def _exchange(groups: Groups, key: str, own: str) -> list[str]:
    """What every rank has put under ``key``, in the order of the ranks."""
    if groups.store is None:
        return [own]
    groups.store.set(f"bwbench/{key}/{groups.control.rank}", own)
    return [groups.store.get(f"bwbench/{key}/{rank}").decode() for rank in range(groups.control.size)]


def _start_companion(cell_file: Path, rank: int) -> Channel:
    """Start the companion; it ends once this process has."""
    here, there = socket.socketpair()
    arguments = [str(there.fileno()), str(cell_file), str(rank)]
    command = [*module_command("bwbench.running.launch.companion"), *arguments]
    with there:
        # In a session of its own: it has to outlive the worker, whatever ends that.
        subprocess.Popen(command, pass_fds=[there.fileno()], start_new_session=True, stdin=subprocess.DEVNULL)
    return Channel(here)


def _die_by_signals(channel: Channel) -> None:
    """Say which signal ends this process, and end, also while it waits inside of torch for a message."""
    heard, hears = socket.socketpair()
    hears.setblocking(False)
    handle((signal.SIGTERM, signal.SIGINT), lambda *_: None)
    signal.set_wakeup_fd(hears.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        number = heard.recv(1)[0]
        hears.close()
        channel.send({"event": "signal", "signal": signal.Signals(number).name})
        os._exit(128 + number)

    threading.Thread(target=wait, daemon=True, name="signals").start()
