"""Measures what a link really does between neighbours i and i+1: round trips on the idle link, then loss and rate."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import bwbench
from bwbench.base.errors import LinkError
from bwbench.base.messages import MessageReader, encode
from bwbench.network.link import Link
from bwbench.network.network import Network, NodeProcess
from bwbench.network.probe import probe_plan
from bwbench.network.probe.measurement import LinkMeasurement, PairMeasurement, judge
from bwbench.network.probe.node import CHANNEL_FD
from bwbench.network.probe.stream import Flow, FlowReport

START_LIMIT_S = 30.0
SLACK_S = 15.0  # what a reply may take beyond the time that the work itself needs, on a machine that is busy
LEAD_S = 0.03  # from telling the nodes to start until they do
LATENCY_ROOM = 12  # a link that is this many times as late as asked is still measured


def verify(network: Network, link: Link, num_nodes: int, tolerance: float = 0.05) -> LinkMeasurement:
    """Measure the link between neighbours and compare it with what was asked.

    Takes about 1.5 s from 10 Mbit/s on, 4 s at 1 Mbit/s, and wants the data network idle. What it returns as achieved
    comes from the measurement alone. Raises LinkError where the probe itself cannot run.
    """
    if num_nodes == 1:
        return judge(network.backend, link, [], tolerance)
    pairs = probe_plan.pairs_of(link, num_nodes)
    probe = _Probe(network, num_nodes)
    try:
        probe.start()
        round_trips_s = _round_trips(probe, pairs, is_shared=link.medium == "shared")
        losses = _losses(probe, link)
        alone = _alone(probe, link)
        flows = probe_plan.rate_flows(link, num_nodes)
        rates = probe.flow(flows)
        time.sleep(probe_plan.drain_s(link, flows))
    finally:
        probe.close()
    measured = [
        PairMeasurement(
            src,
            (src + 1) % num_nodes,
            achieved_goodput_bps=rates[(src + 1) % num_nodes].goodput_bps,  # the receiver tells
            achieved_rtt_s=statistics.median(round_trips_s[src]) if round_trips_s[src] else None,
            achieved_loss=losses[src][0],
            loss_frames=losses[src][1],
            rate_frames=rates[(src + 1) % num_nodes].received,
        )
        for src in range(num_nodes)
    ]
    for src, pair in enumerate(pairs):
        measured[src] = replace(
            measured[src],
            asked_bps=link.node(src).up_bps if link.air else pair.frames_bps,
            asked_goodput_bps=pair.goodput_bps,
            asked_rtt_s=pair.rtt_s,
            asked_loss=pair.loss,
            asked_jitter_s=pair.jitter_s,
            asked_burst=link.loss_burst or 1.0,
        )
    return judge(network.backend, link, measured, tolerance, alone)


def _round_trips(probe: _Probe, pairs: Sequence[probe_plan.Pair], *, is_shared: bool) -> list[list[float]]:
    """Round-trip times from each node to the next, in seconds."""
    found: list[list[float]] = [[] for _ in range(probe.num_nodes)]
    for group in probe_plan.ping_groups(pairs, probe.num_nodes, is_shared=is_shared):
        limits_s = {}
        for node in group:
            pair = pairs[node] if pairs else None
            asked_s = pair.rtt_s if pair else 1e-3
            timeout_s = max(0.1, (3 if pair and pair.loss else LATENCY_ROOM) * asked_s)
            count = probe_plan.num_pings(pair)
            budget_s = max(1.0, 2 * count * asked_s)
            limits_s[node] = budget_s + timeout_s
            probe.ask(
                node, "ping", peer=probe.neighbour(node), count=count,
                payload_bytes=probe_plan.PING_PAYLOAD_BYTES, timeout_s=timeout_s, budget_s=budget_s,
            )  # fmt: skip
        for node in group:
            found[node] = probe.reply(node, limits_s[node])["round_trips_s"]
    return found


def _losses(probe: _Probe, link: Link) -> list[tuple[float | None, int]]:
    """Share of the frames lost from each node to the next, and on how many frames that rests."""
    flows = probe_plan.loss_flows(link, probe.num_nodes)
    if flows is None:
        return [(None, 0)] * probe.num_nodes
    replies = probe.flow(flows)
    counts = [(reply.sent, replies[(src + 1) % probe.num_nodes].received) for src, reply in enumerate(replies)]
    return [(max(0.0, 1 - received / sent), sent) if sent else (None, 0) for sent, received in counts]


def _alone(probe: _Probe, link: Link) -> tuple[float, float] | None:
    """Goodput of one pair while nobody else sends, (asked, achieved) in bit/s; None on a switched link."""
    planned = probe_plan.alone_flow(link, probe.num_nodes)
    if planned is None:
        return None
    pair, flow = planned
    silence = replace(flow, datagrams_per_s=0.0, burst=0)
    flows = [flow if node == pair.src else silence for node in range(probe.num_nodes)]
    achieved_bps = probe.flow(flows)[pair.dst].goodput_bps
    time.sleep(probe_plan.drain_s(link, flows))
    return pair.alone_goodput_bps, achieved_bps


class _Probe:
    """A probe process in every node, and the channels to them."""

    def __init__(self, network: Network, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._network = network
        self._channels: list[socket.socket] = []
        self._processes: list[NodeProcess] = []
        self._replies: list[MessageReader] = []
        self._errors_fd = os.memfd_create("probe-stderr")

    def start(self) -> None:
        """Start the processes; returns once all are ready."""
        for node in range(self.num_nodes):
            ours, theirs = socket.socketpair()
            self._channels.append(ours)
            self._replies.append(MessageReader(ours.fileno()))
            with theirs:
                self._processes.append(
                    self._network.spawn(
                        node,
                        [sys.executable, "-m", "bwbench.network.probe.node", self._network.nodes[node].data_address],
                        cwd=Path(bwbench.__file__).parent.parent,
                        stderr=self._errors_fd,
                        pass_fds={CHANNEL_FD: theirs.fileno()},
                    )
                )
        for node in range(self.num_nodes):
            self.reply(node, START_LIMIT_S)

    def neighbour(self, node: int) -> str:
        """Data address of the node that ``node`` sends to."""
        return self._network.nodes[(node + 1) % self.num_nodes].data_address

    def flow(self, flows: Sequence[Flow]) -> Sequence[FlowReport]:
        """Run a stream a node, all at once; what each node says afterwards. All take equally long."""
        start_mono_s = time.monotonic() + LEAD_S
        for node, flow in enumerate(flows):
            self.ask(node, "flow", peer=self.neighbour(node), start_mono_s=start_mono_s, flow=vars(flow))
        limit_s = LEAD_S + max(flow.duration_s + flow.listen_s for flow in flows)
        return [FlowReport(**self.reply(node, limit_s)) for node in range(self.num_nodes)]

    def ask(self, node: int, operation: str, **parameters: Any) -> None:
        """Tell a node what to do."""
        try:
            self._channels[node].sendall(encode({"op": operation, **parameters}))
        except OSError as error:
            raise self._failure(node, "has ended") from error

    def reply(self, node: int, expected_s: float) -> dict[str, Any]:
        """What a node says next; raises LinkError where it ends, or takes much longer than expected."""
        try:
            reply = self._replies[node].receive(expected_s + SLACK_S)
        except TimeoutError:
            raise self._failure(node, "does not answer") from None
        if reply is None:
            raise self._failure(node, "has ended")
        return reply

    def close(self) -> None:
        """End the processes."""
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            process.kill()
            process.wait(SLACK_S)
        os.close(self._errors_fd)

    def _failure(self, node: int, what: str) -> LinkError:
        text = ""
        with contextlib.suppress(OSError):
            text = os.pread(self._errors_fd, 1 << 16, 0).decode(errors="replace").strip()
        return LinkError(f"the probe in node {node} {what}" + (f": {text.splitlines()[-1]}" if text else ""))
