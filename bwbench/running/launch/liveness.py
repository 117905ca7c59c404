"""Whether workers still get on, from what can be seen of them from outside.

Three things tell: what TCP repeats without an answer (``DeadLinks``), what ranks compute and send (``Stalls``), and who
was stopped by a signal. The parent of a cell sees all ranks and the whole link; the companion of a worker that torchrun
or Slurm has started sees that worker and its host alone (``CompanionWatch``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from bwbench.network.namespaces.backend import WireCounters

# No acknowledgement for this long, and several repetitions: with TCP's waits between them, which grow up to 5 s
# (``network/namespaces/retransmission.py``), an outage of 10 s is over by then, and its end noticed.
DEAD_AFTER_S = 20.0
FEWEST_REPEATS = 3
WORTH_A_WORD_S = 3.0  # from then on an error of a rank may well come from it
STALL_AFTER_S = 25.0  # nothing sent and nothing computed by anyone for this long: nobody is going to
# Some ranks compute, all others wait, and nothing is sent: an uneven step, or a rank that will never be done with it.
ALONE_LIMIT_S = 300.0
STOPPED_AFTER_S = 20.0
COMPUTING_SHARE = 0.05  # of a processor: waiting threads wake up now and then, which takes far less
_SPAN_S = 2.0  # CPU time is told in steps of 10 ms, so that a share needs a while to be one
# Others may compute for long while this rank waits, and what they do cannot be seen from here.
IDLE_LIMIT_S = 300.0
STILL_BPS = 16_000.0  # bits a second over the interface: what other programs say in passing is less than any training
_NO_COUNTERS = WireCounters()  # whose end of a link is dead cannot be told from one host
_RETRANSMISSION_TIMER = 1  # the column ``tr``: data is on its way and not acknowledged yet
FOREIGN_PROC = (
    "/proc shows the processes of another PID namespace, so that none can be watched: mount its own proc there"
)


@dataclass(frozen=True)
class Unanswered:
    """A connection that has had to repeat data, and no acknowledgement since.

    Attributes:
        local, remote: address and port of either end.
        repeats: times that the retransmission timer has run out since the last acknowledgement of new data.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    repeats: int


def unanswered(pid: int) -> list[Unanswered]:
    """IPv4 connections in a process's network namespace that repeat data without an answer.

    A receiver that does not read is no such thing: it answers. Empty where the process has ended.
    """
    try:
        with open(f"/proc/{pid}/net/tcp") as file:
            return list(unanswered_in(file.read()))
    except OSError:
        return []


def unanswered_in(table: str) -> Iterator[Unanswered]:
    """The rows of /proc/net/tcp that wait for an acknowledgement of what they have sent more than once."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 7:
            continue
        repeats = int(fields[6], 16)
        if repeats and int(fields[5].partition(":")[0], 16) == _RETRANSMISSION_TIMER:
            yield Unanswered(_endpoint(fields[1]), _endpoint(fields[2]), repeats)


def _endpoint(text: str) -> tuple[str, int]:
    """``0100007F:1F90`` is 127.0.0.1, port 8080: the address is a word of this machine's byte order."""
    address, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)


@dataclass(frozen=True)
class _Silence:
    since_s: float
    repeats: int
    counters: WireCounters


class DeadLinks:
    """Told once a second what the nodes' kernels see; knows for how long nobody has answered whom.

    It is the kernels that repeat and acknowledge, whatever the ranks do meanwhile: a rank that computes for minutes, or
    is stopped, answers; a slow link answers each time a frame gets through.

    Args:
        addresses: of the nodes on the data network, in order.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._node_of = {address: node for node, address in enumerate(addresses)}
        self._silent: dict[tuple[tuple[str, int], tuple[str, int]], _Silence] = {}

    def look(self, now_s: float, seen: Sequence[Unanswered], counters: WireCounters) -> None:
        """Take in the connections of all nodes that repeat data, and the wire counters of the same moment."""
        silent = {}
        for connection in seen:
            if connection.local[0] not in self._node_of or connection.remote[0] not in self._node_of:
                continue  # on the control network, which is never dead
            key = (connection.local, connection.remote)
            before = self._silent.get(key)
            if before is None or before.repeats > connection.repeats:  # there was an answer in between
                silent[key] = _Silence(now_s, connection.repeats, counters)
            else:
                silent[key] = _Silence(before.since_s, connection.repeats, before.counters)
        self._silent = silent

    def forget(self) -> None:
        """Begin anew: nobody has looked for a while."""
        self._silent.clear()

    def verdict(self, now_s: float, counters: WireCounters, after_s: float = DEAD_AFTER_S) -> str | None:
        """Which links have been dead for ``after_s`` or longer, in words; None where all answer."""
        edges, longest_s = {}, 0.0
        for (local, remote), silence in self._silent.items():
            if now_s - silence.since_s >= after_s and silence.repeats >= min(FEWEST_REPEATS, int(after_s)):
                edges[self._node_of[local[0]], self._node_of[remote[0]]] = silence.counters
                longest_s = max(longest_s, now_s - silence.since_s)
        if not edges:
            return None
        nodes = sorted(set().union(*(dead_ends(src, dst, before, counters) for (src, dst), before in edges.items())))
        common = [node for node in nodes if all(node in edge for edge in edges)]
        nodes = common if len(common) == 1 else nodes
        *most, last = map(str, nodes)
        subject = f"links of nodes {', '.join(most)} and {last} are" if most else f"link of node {last} is"
        pairs = ", ".join(f"{src} to {dst}" for src, dst in sorted(edges))
        return f"the {subject} dead: what was sent from node {pairs} has had no answer for {longest_s:.0f} s"


def dead_ends(src: int, dst: int, before: WireCounters, now: WireCounters) -> set[int]:
    """Whose link may be dead where ``src`` repeats data to ``dst`` and hears nothing.

    What is repeated has to enter the link at ``src``. Where it does not, that end is dead; else the other one. Both
    may be where a back end counts all nodes together.
    """
    entered, entered_before = _entered(src, dst, now), _entered(src, dst, before)
    if entered is None or entered_before is None:
        return {src, dst}
    return {dst} if entered > entered_before else {src}


def _entered(src: int, dst: int, counters: WireCounters) -> int | None:
    """Frames that ``src`` has sent towards ``dst``, or to anyone where receivers are not told apart; None: unknown."""
    for pair in ((src, dst), (src, WireCounters.ANY_NODE)):
        if pair in counters.pairs:
            return counters.pairs[pair].frames
    return None


class Stalls:
    """Told once a second what the ranks have used and sent.

    Args:
        num_ranks: of the group.
        pause_s: how long a rank may rightly do nothing: the time that steps are padded to, all of those between two
            exchanges.
        slow: how many times as long everything takes, in slow motion.
    """

    def __init__(self, num_ranks: int, pause_s: float = 0.0, slow: float = 1.0) -> None:
        self._pause_s, self._alone_limit_s = pause_s, ALONE_LIMIT_S * slow
        self._stopped_s: list[float | None] = [None] * num_ranks
        self._computing = [True] * num_ranks
        self._used_s: Sequence[float] = [0.0] * num_ranks
        self._span_began_s = self._moved_s = self._computed_s = 0.0
        self._sent: object = None

    def forget(self, now_s: float) -> None:
        """Everybody is fine as of now: a rank has reported something, or nobody has looked for a while."""
        self._moved_s = self._computed_s = now_s

    def look(self, now_s: float, cpu_time_s: Sequence[float], stopped: Sequence[bool], sent: object) -> None:
        """Take in what the ranks have used so far, which are stopped, and something that changes with what is sent."""
        self._stopped_s = [
            (now_s if since is None else since) if is_stopped else None
            for since, is_stopped in zip(self._stopped_s, stopped, strict=True)
        ]
        if sent != self._sent:
            self._sent, self._moved_s = sent, now_s
        if (span_s := now_s - self._span_began_s) >= _SPAN_S:
            used = zip(cpu_time_s, self._used_s, strict=True)
            self._computing = [after - before > COMPUTING_SHARE * span_s for after, before in used]
            self._span_began_s, self._used_s = now_s, cpu_time_s
        if all(self._computing):
            self._moved_s = now_s
        if any(self._computing):
            self._computed_s = now_s

    def verdict(self, now_s: float, stall_after_s: float = STALL_AFTER_S) -> str | None:
        """Why the group will not get on; None where it does."""
        for rank, since_s in enumerate(self._stopped_s):
            if since_s is not None and now_s - since_s >= STOPPED_AFTER_S:
                return f"rank {rank} was stopped (SIGSTOP) {now_s - since_s:.0f} s ago and has not gone on"
        idle_s = now_s - max(self._moved_s, self._computed_s)
        if idle_s > stall_after_s + self._pause_s:
            return f"no rank has computed or sent anything for {idle_s:.0f} s: the ranks wait for one another"
        if (alone_s := now_s - self._moved_s) > self._alone_limit_s + self._pause_s:
            ranks = [rank for rank, computing in enumerate(self._computing) if computing]
            text = f"rank {ranks[0]} computes" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} compute"
            return f"{text} while all others wait, and nothing has been sent for {alone_s:.0f} s"
        return None


def is_stopped(pid: int) -> bool:
    """Whether a process has been stopped by a signal; a debugger's stop is another state."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
    return False


class CompanionWatch:
    """Looked at once a second.

    Args:
        pid: of the worker.
        addresses: of all ranks, in order.
        interface: towards them; None on one node.
    """

    def __init__(self, pid: int, addresses: Sequence[str], interface: str | None) -> None:
        self._pid, self._interface = pid, interface
        self._dead_links = DeadLinks(addresses)
        self._looked_s: float | None = None
        self._used_s = self._crossed = 0.0
        self._moved_s = 0.0
        self._stopped_s: float | None = None

    def heard(self, now_s: float) -> None:
        """The worker has said something."""
        self._moved_s = now_s

    def look(self, now_s: float) -> str | None:
        """Why the worker will not get on; None where it may."""
        used_s, crossed = self._used_s, self._crossed
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self._pid).cpu_times()
            used_s = float(times.user + times.system)
        if self._interface is not None:
            found = psutil.net_io_counters(pernic=True, nowrap=False).get(self._interface)
            crossed = float(found.bytes_sent + found.bytes_recv) if found else crossed
        if self._looked_s is None:
            self._moved_s = now_s
        else:
            span_s = now_s - self._looked_s
            computes = used_s - self._used_s > COMPUTING_SHARE * span_s
            sends = 8 * (crossed - self._crossed) > STILL_BPS * span_s
            if computes or sends:
                self._moved_s = now_s
        self._looked_s, self._used_s, self._crossed = now_s, used_s, crossed
        self._dead_links.look(now_s, unanswered(self._pid), _NO_COUNTERS)
        if (dead := self._dead_links.verdict(now_s, _NO_COUNTERS)) is not None:
            return dead
        self._stopped_s = (self._stopped_s or now_s) if is_stopped(self._pid) else None
        if self._stopped_s is not None and now_s - self._stopped_s >= STOPPED_AFTER_S:
            return f"it was stopped (SIGSTOP) {now_s - self._stopped_s:.0f} s ago and has not gone on"
        if now_s - self._moved_s > IDLE_LIMIT_S:
            return f"it has waited for its peers for {now_s - self._moved_s:.0f} s, and nothing has come"
        return None


def proc_is_own() -> bool:
    """False in a container or namespace that sees the /proc of its host: signals would go to the wrong processes."""
    try:
        return bool(psutil.Process(os.getpid()).ppid() == os.getppid() and psutil.pid_exists(os.getppid()))
    except psutil.Error:
        return False
