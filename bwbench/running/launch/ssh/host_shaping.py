"""What each host shapes so that together they make the link that a cell asks for, and the hold on the shaper there."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable
from typing import TypedDict, cast

from bwbench.base.messages import MessageReader, encode
from bwbench.base.start_module import module_command
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.link.link import MAX_SEED
from bwbench.network.link.node_link import Queue
from bwbench.records.schema import JsonObject, Record

SHAPER = "bwbench.running.launch.ssh.shaper"  # also in docs/real-hosts.md and so in sudoers of hosts
BEGIN_LIMIT_S = 90.0  # it gives up by itself after 60 s
END_LIMIT_S = 30.0
POLL_S = 0.2


class ShapedInterface(TypedDict):
    """What ``show`` says of an interface; ``left_s`` is the time until it is taken back in any case."""

    interface: str
    applied: str
    run: str
    left_s: float


class ShaperAnswer(TypedDict, total=False):
    """What a shaper says, one line: ``problem``, or what it did. The first answer of ``hold`` is recorded as it stands.

    Attributes:
        interface, applied, run, armed_by, commands: of ``hold``, once it shapes; ``check`` names the interface alone.
        restored, now, before: of ``hold``, at its end.
        shaped: of ``show``.
        removed: of ``clear``.
    """

    problem: str | None
    interface: str
    applied: str
    run: str
    armed_by: str
    commands: list[str]
    restored: bool
    now: str
    before: str
    shaped: list[ShapedInterface]
    removed: list[str]


class ShapingRequest(Record):
    """What a host is to shape.

    Attributes:
        link: this host's part of the link, as ``host_link`` makes it.
        interface: None takes the one that leads to the first of the peers.
        peers: where the other hosts are: addresses or names.
        spared: ports of ssh, which are never shaped.
    """

    link: JsonObject
    interface: str | None
    peers: tuple[str, ...]
    spared: tuple[int, ...]


def host_link(link: Link, rank: int) -> Link:
    """The part of ``link`` that the interface of one host does, in each direction.

    Its rates are the host's own. A path has the latency, jitter and loss of half of either end, the sender's on the way
    out and the receiver's on the way in: latencies, variances and logarithms of what is not lost add up. The queue is
    the node's, of both directions the larger.
    """
    node = link.node(rank)
    queue = Queue(node.queue_packets, "packets") if node.queue_packets else None
    varying = link if node.jitter_s else UNSHAPED  # how a delay varies is refused where it does not
    return Link(
        up_bps=f"{node.up_bps!r} bit/s",
        down_bps=f"{node.down_bps!r} bit/s",
        latency_s=f"{node.latency_s / 2!r} s",
        jitter_s=f"{node.jitter_s / math.sqrt(2)!r} s",
        jitter_kind=varying.jitter_kind,
        jitter_distribution=varying.jitter_distribution,
        reorder=varying.reorder,
        loss=1 - math.sqrt(1 - node.loss),
        loss_burst=link.loss_burst,
        loss_in_bad=link.loss_in_bad,
        queue=queue or Queue(max(node.up_queue_bytes, node.down_queue_bytes), "B"),
        seed=(link.seed + rank) % MAX_SEED,
    )


class HeldShaping:
    """A shaper process, or nothing where the cell shapes nothing.

    The shaper takes everything back when its standard input ends: with ``end``, or with this process.

    Args:
        request: None shapes nothing.
        hidden: variable that the shaper is not to have: whoever has it is ended with the run.

    Attributes:
        said: what was applied, in the shaper's words; None before that.
    """

    def __init__(self, request: ShapingRequest | None, hidden: str) -> None:
        self._request = request
        self._environment = {name: value for name, value in os.environ.items() if name != hidden}
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: list[ShaperAnswer] = []
        self.said: ShaperAnswer | None = None

    def begin(self, unwanted: Callable[[], str | None]) -> str | None:
        """Shape; returns why that failed, or why nobody wants it any more. Not longer than ``BEGIN_LIMIT_S``."""
        if self._request is None:
            return None
        self._process = subprocess.Popen(
            [*module_command(SHAPER), "hold"],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._reader = MessageReader(self._process.stdout.fileno())
        with contextlib.suppress(OSError):  # it has ended, and its answer says why
            self._process.stdin.write(encode(self._request.to_json()))
            self._process.stdin.flush()
        end_s = time.monotonic() + BEGIN_LIMIT_S
        while time.monotonic() < end_s:
            if (why := unwanted()) is not None:
                return why
            self._hear(POLL_S)
            if self._answers:
                if (problem := self._answers[0].get("problem")) is not None:
                    return f"its interface was not shaped: {problem}"
                self.said = self._answers[0]
                return None
            if self._process.poll() is not None:
                return f"its interface was not shaped: the shaper ended with status {self._process.returncode}"
        return f"its interface was not shaped within {BEGIN_LIMIT_S:.0f} s"

    def _hear(self, limit_s: float = 0.0) -> None:
        self._answers += cast("list[ShaperAnswer]", self._reader.all_ready(limit_s))

    def problem(self) -> str | None:
        """Why the interface is no longer shaped; None while it is, or need not be."""
        if self._process is None or self._process.poll() is None:
            return None
        self._hear()
        told = [answer["problem"] for answer in self._answers if answer.get("problem")]
        return f"its interface is no longer shaped: {told[0] if told else 'the shaper was ended'}"

    def end(self) -> str | None:
        """Have everything taken back; returns what has not been, None where all has. A second time does nothing."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with process.stdout:
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()  # what it has armed takes it back then
                process.wait()
                return "its interface was not seen to be as before; 'bwbench link clear' there looks"
            self._hear()
        restored = [answer for answer in self._answers if "restored" in answer]
        if restored and not restored[0]["restored"]:
            return f"its interface is not as before: {restored[0]['now']} instead of {restored[0]['before']}"
        return None
