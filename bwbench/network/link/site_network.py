"""What the sites of a link come to among a number of nodes: who is where, and which lines a frame meets on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise

from bwbench.base.plain_data import Json, JsonObject
from bwbench.network.link.node_link import NodeLink, Path, Queue, path_between
from bwbench.network.link.sites import Paths, Site


@dataclass(frozen=True)
class SharedLine:
    """A rate with a drop-tail queue before it, which several nodes share.

    Attributes:
        queue_packets: where the queue counts packets: how many; None where it counts bytes.
    """

    rate_bps: float
    queue_bytes: int
    queue_packets: int | None = None


@dataclass(frozen=True)
class SiteNetwork:
    """The sites among a number of nodes, with everything filled in.

    Attributes:
        names: of the sites.
        sizes: how many nodes each has; their numbers are consecutive.
        up, down: the lines of each site; None where it has none of its own.
        paths: lines from site to site, ``paths[src][dst]``; None where nothing limits the way.
        latency_s: one way between nodes of two sites, on top of their LANs', ``latency_s[src][dst]``.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    up: tuple[SharedLine | None, ...]
    down: tuple[SharedLine | None, ...]
    paths: tuple[tuple[SharedLine | None, ...], ...]
    latency_s: tuple[tuple[float, ...], ...]

    @classmethod
    def of(
        cls,
        sites: Sequence[Site],
        paths: Paths | None,
        num_nodes: int,
        queue: Queue,
        frame_bytes: int,
        lan_latency_s: float,
    ) -> SiteNetwork:
        """Raises ValueError where the sites do not go with so many nodes, or nobody has read the file of paths yet.

        A queue in bandwidth-delay products goes by the round trip between nodes of two sites; before the line of a site
        by that to the farthest other one.
        """
        if paths is not None and paths.file is not None:
            raise ValueError("the link's paths have not been read yet: freeze_link does that")

        def line(rate_bps: float | None, rtt_s: float, own: Queue | None = None) -> SharedLine | None:
            room = own or queue
            if rate_bps is None:
                return None
            return SharedLine(rate_bps, room.num_bytes(rate_bps, rtt_s, frame_bytes), room.packets)

        def latency_s(src: Site, dst: Site) -> float:
            if src is dst:
                return 0.0
            path = paths and paths.path(src.name, dst.name)
            return float(path.latency_s if path else (src.latency_s + dst.latency_s) / 2)

        def rtt_s(src: Site, dst: Site) -> float:
            return 2 * lan_latency_s + latency_s(src, dst) + latency_s(dst, src)

        def path_line(src: Site, dst: Site) -> SharedLine | None:
            path = paths and src is not dst and paths.path(src.name, dst.name)
            return line(path.bandwidth_bps, rtt_s(src, dst)) if path else None

        farthest_s = [max(rtt_s(site, other) for other in sites) for site in sites]
        outside = list(zip(sites, farthest_s, strict=True))
        return cls(
            names=tuple(site.name for site in sites),
            sizes=tuple(sizes_of(sites, num_nodes)),
            up=tuple(line(site.rates_bps[0], far_s, site.queue) for site, far_s in outside),
            down=tuple(line(site.rates_bps[1], far_s, site.queue) for site, far_s in outside),
            paths=tuple(tuple(path_line(src, dst) for dst in sites) for src in sites),
            latency_s=tuple(tuple(latency_s(src, dst) for dst in sites) for src in sites),
        )

    @property
    def members(self) -> tuple[range, ...]:
        """The nodes of each site."""
        ends = [0, *accumulate(self.sizes)]
        return tuple(range(begin, end) for begin, end in pairwise(ends))

    @property
    def site_of(self) -> tuple[int, ...]:
        """The number of each node's site."""
        return tuple(site for site, size in enumerate(self.sizes) for _ in range(size))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every site with every other, both ways."""
        number = len(self.names)
        return [(src, dst) for src in range(number) for dst in range(number) if src != dst]

    @property
    def lines(self) -> list[SharedLine]:
        """All there are, without regard to where."""
        every = (*self.up, *self.down, *(line for row in self.paths for line in row))
        return [line for line in every if line is not None]

    def route(self, src: int, dst: int) -> list[SharedLine]:
        """The lines from one site to another, in the order in which a frame meets them; none within a site."""
        if src == dst:
            return []
        return [line for line in (self.up[src], self.paths[src][dst], self.down[dst]) if line is not None]

    def rate_bps(self, node: NodeLink, src: int, dst: int) -> float:
        """What one node sends from one site to another at most, by the narrowest line and the links of nodes alike."""
        lines = [line.rate_bps for line in self.route(src, dst)]
        return min(*lines, node.up_bps, node.down_bps)

    def rtt_s(self, lan_latency_s: float, src: int, dst: int) -> float:
        """Round trip between nodes of two sites, there and back, where one way within a site takes so long."""
        return 2 * lan_latency_s + self.latency_s[src][dst] + self.latency_s[dst][src]

    def path(self, lan: Path, src: int, dst: int) -> Path:
        """Between two nodes of these sites, where ``lan`` is what would be between them within one."""
        extra_s = self.latency_s[src][dst]
        return replace(lan, latency_s=lan.latency_s + extra_s) if extra_s else lan

    def paths_among(self, nodes: Sequence[NodeLink]) -> tuple[tuple[Path, ...], ...]:
        """From every node to every other, by their own links and their sites; those that are alike are one object."""

        @cache
        def path(src: NodeLink, dst: NodeLink, src_site: int, dst_site: int) -> Path:
            return self.path(path_between(src, dst), src_site, dst_site)

        placed = list(zip(nodes, self.site_of, strict=True))
        return tuple(tuple(path(src, dst, here, there) for dst, there in placed) for src, here in placed)

    def applied(self) -> JsonObject:
        """As ``link.json`` has it: ``sites`` with their nodes and lines, and ``paths`` from each to every other.

        A rate is None where there is no such line. The latency is what comes on top of that within a site.
        """
        sites: list[Json] = []
        for name, members, up, down in zip(self.names, self.members, self.up, self.down, strict=True):
            lines = {**_applied(up, "up_bps", "queue_bytes"), **_applied(down, "down_bps", "down_queue_bytes")}
            packets = next((line.queue_packets for line in (up, down) if line is not None), None)  # alike in both
            sites.append({"name": name, "nodes": [*members], **lines, "queue_packets": packets})
        paths: list[Json] = []
        for src, dst in self.pairs:
            line, latency_s = self.paths[src][dst], self.latency_s[src][dst]
            own = {
                **_applied(line, "bandwidth_bps", "queue_bytes"),
                "queue_packets": None if line is None else line.queue_packets,
            }
            paths.append({"src": self.names[src], "dst": self.names[dst], "latency_s": latency_s, **own})
        return {"sites": sites, "paths": paths}

    def dilated(self, factor: float) -> SiteNetwork:
        """The same in the machine's time: queues hold the same bytes."""
        return replace(
            self._with_rates(1 / factor),
            latency_s=tuple(tuple(one_s * factor for one_s in row) for row in self.latency_s),
        )

    def scaled(self, factor: float) -> SiteNetwork:
        """The same at ``factor`` times the rates."""
        return self._with_rates(factor)

    def _with_rates(self, factor: float) -> SiteNetwork:
        def changed(line: SharedLine | None) -> SharedLine | None:
            return line and replace(line, rate_bps=line.rate_bps * factor)

        return replace(
            self,
            up=tuple(map(changed, self.up)),
            down=tuple(map(changed, self.down)),
            paths=tuple(tuple(map(changed, row)) for row in self.paths),
        )


def _applied(line: SharedLine | None, rate: str, queue: str) -> JsonObject:
    return {rate: None, queue: None} if line is None else {rate: line.rate_bps, queue: line.queue_bytes}


def sizes_of(sites: Sequence[Site], num_nodes: int) -> list[int]:
    """How many nodes each site has among so many; raises ValueError, in words for the user, where that does not go."""
    given = [site.nodes for site in sites if site.nodes is not None]
    if len(given) == len(sites):
        if sum(given) != num_nodes:
            counts = ", ".join(f"{site.name} {site.nodes}" for site in sites)
            text = f"the sites have {sum(given)} nodes ({counts}), and there are {num_nodes}"
            raise ValueError(f"{text}; make them equal, or leave 'nodes' of the sites out")
        return given
    if num_nodes < len(sites):
        without = ", ".join(site.name for site in sites[num_nodes:])
        raise ValueError(
            f"{num_nodes} nodes in {len(sites)} sites leave {without} without any; take {len(sites)} or more"
        )
    return dealt_out(num_nodes, len(sites))


def dealt_out(num_nodes: int, num_sites: int) -> list[int]:
    """How many nodes each site has where nobody says: equally many, the first ones one more."""
    least, more = divmod(num_nodes, num_sites)
    return [least + 1] * more + [least] * (num_sites - more)
