"""The probe's part inside a node: answers pings, sends pings, sends and receives paced streams.

Started as ``python -m bwbench.network.probe.node ADDRESS``; told what to do by JSON lines on file descriptor 3. Imports
next to nothing, so that it starts in no time. Round trips and rates come from the kernel's receive timestamps, and what
the echoing node takes to answer is subtracted: they are the link's, not this program's. What a stream is, when each
datagram is due and what the arrivals say stands first, and is pure.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bwbench.base.messages import MessageReader, encode

_PAUSE_S = (0.0005, 0.002)  # shortest and longest sleep between two looks at the socket while a stream runs
_SLICE_FRAMES = 25  # with fewer, single late frames would count for too much

Arrival = tuple[float, int]  # CLOCK_REALTIME in seconds, payload bytes


@dataclass(frozen=True)
class Flow:
    """A stream of UDP datagrams that every node sends to its neighbour.

    Attributes:
        payload_bytes: of a datagram.
        segments: datagrams handed to the kernel at once (1: single frames).
        datagrams_per_s: None sends as fast as the machine can.
        burst: datagrams sent at once at the beginning.
        catch_up: at most so many are sent at once after a delay; the rest is left out.
        listen_s: how long after its end late datagrams are waited for, unless the mark of its end comes before.
        max_slices: into how many parts its arrivals may be divided, see ``goodput_bps``.
    """

    payload_bytes: int
    segments: int
    datagrams_per_s: float | None
    duration_s: float
    burst: int
    catch_up: int
    listen_s: float
    max_slices: int = 10


@dataclass(frozen=True)
class FlowReport:
    """What a node says after a flow: datagrams that it has sent, and what it has received of its neighbour's.

    Attributes:
        goodput_bps: of the neighbour's flow, see the function of that name.
    """

    sent: int
    received: int
    goodput_bps: float


class StreamPacer:
    """How much of a flow is due; whoever sends adds to ``sent``. Times are seconds since the flow began."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._left_out = 0
        self.sent = 0

    def due(self, elapsed_s: float) -> int:
        """How many times ``segments`` datagrams are to be sent now."""
        flow = self._flow
        if elapsed_s >= flow.duration_s:
            return 0
        if flow.datagrams_per_s is None:
            return 1
        waiting = flow.burst + int(elapsed_s * flow.datagrams_per_s) - self._left_out - self.sent
        if waiting > flow.catch_up:
            self._left_out += waiting - flow.catch_up
            waiting = flow.catch_up
        return waiting // flow.segments

    def pause_s(self, elapsed_s: float) -> float:
        """How long to sleep before the next look."""
        flow = self._flow
        shortest_s, longest_s = _PAUSE_S
        if elapsed_s >= flow.duration_s or flow.datagrams_per_s == 0:
            return longest_s
        if flow.datagrams_per_s is None:
            return 0.0
        return min(max(flow.segments / flow.datagrams_per_s / 2, shortest_s), longest_s)


def goodput_bps(arrivals: Sequence[Arrival], duration_s: float, max_slices: int = 10) -> float:
    """Payload bits per second of a stream that keeps its link busy: the slope of bytes over time.

    A slope, since single frames come late now and then; where there are enough frames the median of the slopes of a few
    slices, since a sender may not be scheduled for a while.
    """
    if len(arrivals) < 4:
        return sum(num_bytes for _, num_bytes in arrivals) * 8 / duration_s
    num_slices = max(1, min(max_slices, len(arrivals) // _SLICE_FRAMES))
    length = len(arrivals) // num_slices
    slopes = []
    for first in range(0, num_slices * length, length):
        times_s, sizes = zip(*arrivals[first : first + length], strict=True)
        from_first_s = [time_s - times_s[0] for time_s in times_s]
        # By least squares, of time over bytes: the times are what is uncertain.
        seconds_per_byte = statistics.linear_regression(list(itertools.accumulate(sizes)), from_first_s).slope
        slopes.append(1 / seconds_per_byte if seconds_per_byte > 0 else 0.0)
    return 8 * statistics.median(slopes)


CHANNEL_FD = 3
ECHO_PORT, PING_PORT, FLOW_PORT = 7001, 7002, 7003
_SO_TIMESTAMPNS = 35
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER_BYTES = 8 << 20
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY_BYTES = 128
_PING = struct.Struct("!Id")  # number, seconds that the echoing node took to answer
_TAG = struct.Struct("!I")  # number of the stream, the same in all nodes
_END = b"end"  # comes after all datagrams of a stream, as a link keeps the order
_NUM_ENDS = 3  # since it may lose some
_WARM_UP_PINGS = 2
_NICE = -10


def main() -> None:
    """Serve the channel until it ends."""
    with contextlib.suppress(OSError):  # where we may; a sender that has to wait would leave gaps
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        with open("/proc/self/autogroup", "w") as group:  # sessions may be scheduled as groups
            group.write(str(_NICE))
    channel = socket.socket(fileno=CHANNEL_FD)
    node = ProbeNode(sys.argv[1])
    requests = MessageReader(channel.fileno())
    channel.sendall(encode({"ready": True}))
    while not requests.has_ended:
        node.wait(channel)
        for request in requests.ready():
            if request.pop("op") == "flow":
                flow = Flow(**request["flow"])
                reply = vars(node.flow(request["peer"], request["stream"], request["start_mono_s"], flow))
            else:
                reply = {"round_trips_s": node.ping(**request)}
            channel.sendall(encode(reply))


class ProbeNode:
    """The sockets of one node."""

    def __init__(self, address: str) -> None:
        self._echo = _udp_socket(address, ECHO_PORT)
        self._ping = _udp_socket(address, PING_PORT)
        self._flow = _udp_socket(address, FLOW_PORT)
        self._flow.setblocking(False)
        _set_if_known(self._flow, _SOL_UDP, _UDP_GRO, 1)
        if not _set_if_known(self._flow, socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES):
            self._flow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)

    def wait(self, other: socket.socket, timeout_s: float | None = None) -> bool:
        """Answer pings until ``other`` is readable; False where it has not become so within ``timeout_s``."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._echo, other], [], [], left_s)
            if self._echo in ready:
                data, ancillary, _, sender = self._echo.recvmsg(2048, _ANCILLARY_BYTES)
                number, _ = _PING.unpack_from(data)
                arrived_s = _timestamp_s(ancillary)
                self._echo.sendto(_PING.pack(number, time.time() - arrived_s) + data[_PING.size :], sender)
            if other in ready:
                return True
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False

    def ping(
        self, peer: str, count: int, payload_bytes: int, timeout_s: float, budget_s: float, every_s: float
    ) -> list[float]:
        """Round trips to ``peer`` in seconds, one after another; the first few are not counted.

        Args:
            timeout_s: how long to wait for an answer before the next one is sent.
            budget_s: no more are sent after this time.
            every_s: from one to the next, unless an answer takes longer.
        """
        sent_s: dict[int, float] = {}
        round_trips_s = []
        started_s = time.monotonic()
        for number in range(count + _WARM_UP_PINGS):
            if time.monotonic() - started_s > budget_s:
                break
            sent_s[number] = time.time()
            self._ping.sendto(_PING.pack(number, 0.0).ljust(payload_bytes, b"\0"), (peer, ECHO_PORT))
            deadline_s = time.monotonic() + timeout_s
            next_s = started_s + (number + 1) * every_s
            while self.wait(self._ping, deadline_s - time.monotonic()):
                data, arrived_s = _receive(self._ping)
                answered, turnaround_s = _PING.unpack_from(data)
                if answered in sent_s and answered >= _WARM_UP_PINGS:
                    round_trips_s.append(arrived_s - sent_s.pop(answered) - turnaround_s)
                if answered == number:
                    deadline_s = next_s  # others are answered meanwhile, and late answers taken
        return round_trips_s

    def flow(self, peer: str, stream: int, start_mono_s: float, flow: Flow) -> FlowReport:
        """Send a paced stream to ``peer`` while receiving one; all nodes that take part begin at the same time.

        Args:
            stream: its number, the same in all of them, and in no other stream.
        """
        tag = _TAG.pack(stream)
        if not _set_if_known(self._flow, _SOL_UDP, _UDP_SEGMENT, flow.payload_bytes if flow.segments > 1 else 0):
            flow = replace(flow, segments=1)
        payload, target = tag.ljust(flow.payload_bytes, b"\0") * flow.segments, (peer, FLOW_PORT)
        pacer = StreamPacer(flow)
        arrivals: list[Arrival] = []
        has_told = False
        # Makes room of what an earlier stream has left; of this one something is here where we begin late.
        neighbour_has_ended = self._receive_all(tag, arrivals)
        time.sleep(max(0.0, start_mono_s - time.monotonic()))
        while (elapsed_s := time.monotonic() - start_mono_s) < flow.duration_s + flow.listen_s:
            for _ in range(pacer.due(elapsed_s)):
                if not self._send(payload, target):
                    break
                pacer.sent += flow.segments
            if elapsed_s >= flow.duration_s and not has_told:
                has_told = True
                for _ in range(_NUM_ENDS):
                    self._send(tag + _END, target)
            neighbour_has_ended = self._receive_all(tag, arrivals) or neighbour_has_ended
            if has_told and neighbour_has_ended:
                break
            time.sleep(pacer.pause_s(elapsed_s))  # not until something comes: its time is known without us
        stop_realtime_s = time.time() - time.monotonic() + start_mono_s + flow.duration_s
        steady = [arrival for arrival in arrivals if arrival[0] <= stop_realtime_s]
        goodput = goodput_bps(steady, flow.duration_s, flow.max_slices)
        received = sum(num_bytes for _, num_bytes in arrivals) // flow.payload_bytes
        return FlowReport(pacer.sent, received, goodput)

    def _send(self, payload: bytes, target: tuple[str, int]) -> bool:
        try:
            self._flow.sendto(payload, target)
        except (BlockingIOError, OSError):  # the node's own buffer is full: later
            return False
        return True

    def _receive_all(self, tag: bytes, arrivals: list[Arrival]) -> bool:
        """Take in what has come of the stream ``tag``, drop what is left of earlier ones; whether it has ended."""
        has_ended = False
        while True:
            try:
                data, arrived_s = _receive(self._flow)
            except BlockingIOError:
                return has_ended
            if data == tag + _END:
                has_ended = True
            elif data.startswith(tag):
                arrivals.append((arrived_s, len(data)))


def _udp_socket(address: str, port: int) -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    udp.bind((address, port))
    return udp


def _set_if_known(udp: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        udp.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _receive(udp: socket.socket) -> tuple[bytes, float]:
    data, ancillary, _, _ = udp.recvmsg(65536, _ANCILLARY_BYTES)
    return data, _timestamp_s(ancillary)


def _timestamp_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """When the kernel received the datagram (CLOCK_REALTIME); now, where it does not say."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return float(seconds + nanoseconds * 1e-9)
    return time.time()


if __name__ == "__main__":
    main()
