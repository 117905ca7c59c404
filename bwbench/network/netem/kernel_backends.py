"""The back ends that live in the kernel: ``netem``, bridges with netem qdiscs, and ``unshaped``, a plain bridge.

``shape.py`` says with which qdiscs netem shapes and where they are; the plain bridge is as fast as the machine. Both
count a node's bare acknowledgements in the kernel, so that no packet is copied or looked at here: a packet socket's
statistics count what passes its filter. The filter passes TCP without payload; its receive buffer is as small as the
kernel allows, so that after the first few packets counting is all that happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from bwbench.base.errors import LinkError
from bwbench.network.link import Link
from bwbench.network.link.frame_sizes import ACK_FRAME_BYTES
from bwbench.network.namespaces.backend import AbstractBackend, PairCounter, Port, WireCounters
from bwbench.network.netem.netem_netlink import QdiscCounts, add_netem, check_netem, read_counts, remove_netem
from bwbench.network.netem.shape import CORE, NodeLayout, applied_netem, layout, shape

_NTF_MASTER = 0x04  # the bridge's table, not the device's own
_STATIC = 0x40  # NUD_NOARP: never forgotten

BRIDGE = "air"
_COUNTING_QDISC = "pfifo"  # holds nothing here, as a veth takes every packet at once; it is in every kernel that has tc
_LIMIT_PACKETS = 100_000

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26

# Classic BPF: (code, jump if true, jump if false, operand). Jumps to the last line refuse the packet.
_TCP_WITHOUT_PAYLOAD = (
    (0x28, 0, 0, 12),  # load half [12]: EtherType
    (0x15, 0, 12, 0x0800),  # IPv4, else refuse
    (0x30, 0, 0, 23),  # load byte [23]: protocol
    (0x15, 0, 10, 6),  # TCP, else refuse
    (0x28, 0, 0, 20),  # load half [20]: flags and fragment offset
    (0x45, 8, 0, 0x1FFF),  # a later fragment has no TCP header: refuse
    (0xB1, 0, 0, 14),  # X = length of the IP header
    (0x50, 0, 0, 26),  # load byte [X + 26]: length of the TCP header, in the upper half
    (0x54, 0, 0, 0xF0),
    (0x74, 0, 0, 2),  # ... in bytes
    (0x0C, 0, 0, 0),  # + X
    (0x07, 0, 0, 0),  # X = length of both headers
    (0x28, 0, 0, 16),  # load half [16]: length of the IP packet; equal to X means no payload
    (0x1D, 1, 0, 0),  # equal: jump over the refusal
    (0x06, 0, 0, 0),  # refuse
    (0x06, 0, 0, 1),  # pass; one byte is enough to be counted
)


class NetemBackend(AbstractBackend):
    """Connects the ports through kernel bridges and netem qdiscs.

    Counts what each node sends by the statistics of its ``up`` qdisc: frames that have left it or wait in it. Those
    dropped at its full queue count under ``drops`` alone, with those that the link lost on their way out of this node
    or into it. Receivers are not told apart. Acknowledgements are counted as they enter, and taken to be 66 B each,
    which they are as long as no segment is lost.
    """

    name: ClassVar[Literal["netem"]] = "netem"

    def __init__(self, link: Link, ports: Sequence[Port]) -> None:
        super().__init__(link, ports)
        self._shapes = shape(link, len(ports))
        self._layouts = [layout(port, node) for port, node in zip(self.ports, self._shapes, strict=True)]
        self._air: Any = None
        self._indices: dict[str, int] = {}
        self._acks: dict[int, AckCounter] = {}

    def start(self) -> None:
        """Make bridges, pairs and qdiscs.

        Raises LinkError, with everything taken down again, where the kernel refuses or shapes otherwise than asked.
        """
        self._air = IPRoute()
        try:
            self._add_bridge(CORE)
            for node in self._layouts:
                self._connect(node)
            asked = {self._indices[name]: qdisc for node in self._layouts for name, qdisc in node.qdiscs.values()}
            taken = check_netem(self._air, asked)
        except (NetlinkError, OSError, LinkError) as error:
            self.stop()
            if isinstance(error, LinkError):
                raise
            raise LinkError(f"cannot build the netem link: {error}; 'bwbench doctor' says what is missing") from error
        seeds_taken = [taken[index].seed == qdisc.seed for index, qdisc in asked.items() if qdisc.seed is not None]
        self.applied = applied_netem(self.link, self._shapes, seed_applied=all(seeds_taken) if seeds_taken else None)

    def stop(self) -> None:
        """Remove what ``start`` made; the ports stay."""
        for counter in self._acks.values():
            counter.close()
        self._acks.clear()
        if self._air is None:
            return
        with contextlib.closing(self._air) as air:
            self._air = None
            indices = {link.get_attr("IFLA_IFNAME"): link["index"] for link in air.get_links()}
            remove_netem(air, [indices[port.interface] for port in self.ports if port.interface in indices])
            ours = [CORE]
            for node in self._layouts:
                ours += [*node.bridges, *(one for one, _ in node.pairs)]  # a pair's ends go together
            for name in ours:
                if name in indices:
                    air.link("del", index=indices[name])
        self._indices.clear()

    def counters(self) -> WireCounters:
        """What the nodes have sent, under ``(node, ANY_NODE)``."""
        counts = read_counts(self._air)
        pairs = {}
        for node in self._layouts:
            up = counts[self._indices[node.qdiscs["up"][0]]]
            acks = self._acks[node.port.node].frames
            pairs[node.port.node, WireCounters.ANY_NODE] = PairCounter(
                frames=up.frames,
                bytes=up.bytes,
                ack_frames=acks,
                ack_bytes=acks * ACK_FRAME_BYTES,
                drops=sum(counts[self._indices[name]].drops for name, _ in node.qdiscs.values()),
            )
        return WireCounters(pairs)

    def _connect(self, node: NodeLayout) -> None:
        air = self._air
        self._learn(node.port.interface)
        for name in node.bridges:
            self._add_bridge(name)
        for one, other in node.pairs:
            air.link("add", ifname=one, kind="veth", mtu=self.link.mtu, peer={"ifname": other, "mtu": self.link.mtu})
            for name in (one, other):
                self._learn(name)
        for name, bridge in node.masters:
            air.link("set", index=self._indices[name], master=self._indices[bridge], state="up")
        # Known from the start: a bridge that had to learn would send the first frames to every node.
        core_end = self._indices[node.core_end]
        air.fdb("append", ifindex=core_end, lladdr=node.port.mac, state=_STATIC, flags=_NTF_MASTER)
        for name, qdisc in node.qdiscs.values():
            add_netem(air, self._indices[name], qdisc)
        self._acks[node.port.node] = AckCounter(node.port.interface)

    def _add_bridge(self, name: str) -> None:
        # Without multicast snooping a bridge never speaks by itself.
        self._air.link("add", ifname=name, kind="bridge", br_mcast_snooping=0, br_stp_state=0)
        self._learn(name)
        self._air.link("set", index=self._indices[name], state="up")

    def _learn(self, name: str) -> None:
        self._indices[name] = self._air.link_lookup(ifname=name)[0]


class UnshapedBackend(AbstractBackend):
    """Connects the ports by a kernel bridge.

    Counts all nodes together, under ``(ANY_NODE, ANY_NODE)``, by the statistics of a queueing discipline at each port:
    unlike those of an interface they count every segment of a super-packet, with its headers.
    """

    name: ClassVar[Literal["unshaped"]] = "unshaped"
    _air: Any = None

    def start(self) -> None:
        """Make the bridge, attach the ports, count what leaves through them; raises LinkError."""
        self._air = IPRoute()
        self._acks: list[AckCounter] = []
        try:
            # Without multicast snooping a bridge never speaks by itself.
            self._air.link("add", ifname=BRIDGE, kind="bridge", br_mcast_snooping=0)
            bridge = self._air.link_lookup(ifname=BRIDGE)[0]
            self._air.link("set", index=bridge, state="up")
            for port in self.ports:
                index = self._air.link_lookup(ifname=port.interface)[0]
                self._air.tc("add", _COUNTING_QDISC, index, limit=_LIMIT_PACKETS)
                self._air.link("set", index=index, master=bridge)
                self._acks.append(AckCounter(port.interface))
        except (NetlinkError, OSError) as error:
            self.stop()
            raise LinkError(f"cannot bridge the nodes: {error}; 'bwbench doctor' says what is missing") from error
        self.applied = {"bridge": BRIDGE}

    def stop(self) -> None:
        """Remove the bridge and the counters."""
        if self._air is None:
            return
        for counter in self._acks:
            counter.close()
        with contextlib.closing(self._air) as air:
            self._air = None
            for index in air.link_lookup(ifname=BRIDGE):
                air.link("del", index=index)
            for message in _counting(air):
                air.tc("del", index=message["index"])

    def counters(self) -> WireCounters:
        """What all nodes have sent; acknowledgements are taken to have the usual length."""
        counts = [QdiscCounts.of(message) for message in _counting(self._air)]
        frames, num_bytes, drops = (sum(column) for column in zip(*counts, strict=True))
        acks = sum(counter.frames for counter in self._acks)
        total = PairCounter(frames, num_bytes, acks, acks * ACK_FRAME_BYTES, drops)
        return WireCounters({(WireCounters.ANY_NODE, WireCounters.ANY_NODE): total})


def _counting(air: Any) -> list[Any]:
    """Our queueing disciplines, as the kernel describes them."""
    return [message for message in air.get_qdiscs() if message.get_attr("TCA_KIND") == _COUNTING_QDISC]


class AckCounter:
    """The TCP frames without payload that came in through ``interface`` since this was made. Raises OSError."""

    def __init__(self, interface: str) -> None:
        self._frames = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: hears nothing until bound
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            program = b"".join(struct.pack("=HBBI", *line) for line in _TCP_WITHOUT_PAYLOAD)
            buffer = ctypes.create_string_buffer(program, len(program))
            header = struct.pack("@HP", len(_TCP_WITHOUT_PAYLOAD), ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)
            # All protocols: a socket for IPv4 alone would come after the bridge, which takes the frame away.
            self._socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self._socket.close()
            raise

    @property
    def frames(self) -> int:
        """Frames counted so far."""
        # The kernel starts again from zero at each reading; "packets" includes those for which the buffer was full.
        packets, _ = struct.unpack("@II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._frames += packets
        return self._frames

    def close(self) -> None:
        """Stop counting. Safe to call twice."""
        self._socket.close()
