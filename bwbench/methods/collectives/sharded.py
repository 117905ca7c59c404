"""Ranks of one host share what crosses the link: each carries its part of a bucket for all of its host."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from bwbench.base import emulated_time
from bwbench.base.component import ComponentConfig
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.base.registry import COLLECTIVES
from bwbench.methods.buffers import give_back, on_host
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.hierarchical import Hierarchical, HostsConfig, has_lan_inside, hosts_of, refusal_across
from bwbench.methods.collectives.host_devices import HostDevices
from bwbench.methods.collectives.scatter_gather import AbstractKeepingParts
from bwbench.methods.collectives.transport import ExchangeMemory, Members, Round, Span, split
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.deferred import dist, torch
from bwbench.methods.devices import device_of
from bwbench.methods.memory import State
from bwbench.methods.traffic import Traffic
from bwbench.network.link import Link

_ACROSS = "across:"  # before what the exchange between hosts remembers


class ShardedConfig(HostsConfig):
    """Options of ``sharded``.

    Attributes:
        workers_per_host: how many consecutive ranks share a host; the last host may have fewer.
        across: the collective by which a rank of each host averages one shard with the other hosts.
        inside: what carries shards inside of a host. ``auto`` is NCCL where each rank of a host has a GPU of its own,
            and gloo elsewhere; ``gloo`` is gloo everywhere, by way of host memory.
    """

    inside: Literal["auto", "gloo"] = "auto"


class Sharded(AbstractKeepingParts):
    """The mean over all ranks: reduce-scatter inside each host, one exchange a shard between hosts, all-gather inside.

    A bucket has as many shards as a full host has ranks. Every rank gets its shard from all ranks of its host, as fp32,
    and adds them up in the order of the ranks; averages that sum with the ranks of the other hosts that have the same
    shard; and gives the mean to its host. Only what goes between hosts is encoded, by a codec of each shard. In a host
    that is not full a rank has several shards. Replicas are bit-equal, and the sums of a host have the bits of
    ``hierarchical``. As the 2D-torus all-reduce of Mikami et al. 2018, with any exchange between hosts.

    Across the link goes what one leader would send, but no rank receives, adds and sends for a whole host. On a link
    with sites what is said within a host crosses a LAN, and counts as sent.

    With ``devices`` sums and means of a host go from GPU to GPU, and a rank's shard alone is copied to the host: a sum
    then has the order of NCCL, and one bucket is exchanged at a time. Linear codecs, whose messages are made in host
    memory, leave it at gloo.
    """

    Config = ShardedConfig
    options: ShardedConfig
    topology = "rings of hosts"

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self.devices: HostDevices | None = None

    @functools.cached_property
    def _across(self) -> AbstractCollective:
        across: AbstractCollective = COLLECTIVES.load(self.options.across)()
        across.meter = self.meter
        return across

    def runs_virtually(self) -> bool:
        """As what runs between the hosts does."""
        return self._across.runs_virtually()

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """Hosts must be filled, and what runs between them must be exact and take the codecs."""
        return refusal_across(self.options, (Hierarchical, Sharded), num_nodes, codecs, "hosts")

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """What goes between hosts, over all shards; what stays on a host is not counted."""
        workers = self.options.workers_per_host
        hosts = hosts_of(self.options, num_nodes)
        if len(hosts) < 2:
            return Traffic.none(num_nodes)
        sent, received = [0.0] * num_nodes, [0.0] * num_nodes
        between = self._across.traffic(len(hosts), [-(-size // workers) for size in bucket_payload_bytes])
        for shard in range(workers):
            for number, host in enumerate(hosts):
                place = _keeper(host, shard)
                sent[place] += between.payload_bytes_per_rank[number]
                received[place] += between.received_bytes_per_rank[number]
        return replace(
            between,
            payload_bytes_per_rank=tuple(sent),
            received_bytes_per_rank=tuple(received),
            rounds=between.rounds * -(-workers // len(hosts[-1])),  # shards of a rank go one after the other
            messages=workers * between.messages,
            groups=tuple(tuple(_keeper(host, shard) for host in hosts) for shard in range(workers)),
        )

    def inside(self, num_nodes: int, bucket_bytes: Sequence[int], link: Link | None = None) -> Traffic:
        """To each rank of a host go its shards from all others, as fp32, and from it their means."""
        workers = self.options.workers_per_host
        hosts = [host for host in hosts_of(self.options, num_nodes) if len(host) > 1]
        if not hosts or not has_lan_inside(self.options, link):
            return Traffic.none(num_nodes)
        sent = [0.0] * num_nodes
        for host in hosts:
            for place in host:
                kept = sum(_keeper(host, shard) == place for shard in range(workers))
                # As much in each direction: values of shards go one way, means of as many the other.
                sent[place] = sum(bucket_bytes) * (workers - kept + kept * (len(host) - 1)) / workers
        return Traffic(
            tuple(sent),
            tuple(sent),
            rounds=2 * len(bucket_bytes),
            messages=2 * len(bucket_bytes) * workers * sum(len(host) - 1 for host in hosts),
            groups=tuple(map(tuple, hosts)),
        )

    def exchange_memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """The shards of a rank from all of its host, and what the exchange of one between hosts takes."""
        workers, hosts = self.options.workers_per_host, hosts_of(self.options, num_nodes)
        shard = -(-num_elements // workers)
        # In a host that is not full ranks have several shards each.
        mates = max((len(host) - 1) * -(-workers // len(host)) for host in hosts) * ELEMENT_BYTES * shard
        across = self._across.exchange_memory(len(hosts), num_elements if codec.linear else shard, codec)
        return replace(across, kept=across.kept + mates)

    def connect(self, group: dist.ProcessGroup, link: Link | None = None, num_members: int | None = None) -> None:
        """Use ``group``, inside hosts and between them."""
        super().connect(group, link, num_members)
        hosts = hosts_of(self.options, group.size() if num_members is None else num_members)
        # A link whose nodes differ speaks of ranks that those of one shard do not have among themselves.
        known = link if link is not None and not link.overrides and not link.wired else None
        self._across.connect(group, known, len(hosts))

    def hosts_of_devices(self, num_members: int) -> Sequence[range]:
        """Hosts with several ranks each, unless gloo was asked for, or what they say counts as sent."""
        several = self.options.inside == "auto" and self.options.workers_per_host > 1
        return hosts_of(self.options, num_members) if several and not has_lan_inside(self.options, self.link) else ()

    def takes_from_device(self, codec: AbstractCodec) -> bool:
        """Once its host speaks from device to device, but for linear codecs."""
        return self.devices is not None and not codec.linear

    def average(
        self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round, host: torch.Tensor | None = None
    ) -> None:
        """As of every collective; a bucket on a device stays there until its shards are summed up."""
        everyone = round_.members.ranks == tuple(range(self.transport.group.size())) if self.devices else False
        if everyone and self.takes_from_device(codec) and bucket.numel() > 0 and device_of(bucket).elsewhere:
            self._average_on_device(bucket, codec, round_)
        else:
            super().average(bucket, codec, round_, host)

    def flows_across(self, place: int, hosts: Sequence[object]) -> int:
        """Of the exchange of the rank's shard; shards of one rank go one after the other."""
        by_host = hosts_of(self.options, len(hosts))
        number, own = next((number, host) for number, host in enumerate(by_host) if place in host)
        peers = [_keeper(host, place - own[0]) for host in by_host]
        return self._across.flows_across(number, [hosts[peer] for peer in peers]) if len(peers) > 1 else 0

    def reset(self) -> None:
        """Forget what codecs of shards and the exchange between hosts remember."""
        super().reset()
        self._across.reset()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What codecs of shards remember, and the exchange between hosts."""
        across = {f"{_ACROSS}{key}": value for key, value in self._across.state_dict().items()}
        return {**super().state_dict(), **across}

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave; an empty dict forgets everything."""
        super().load_state_dict({key: value for key, value in state.items() if not key.startswith(_ACROSS)})
        across = {key.removeprefix(_ACROSS): value for key, value in state.items() if key.startswith(_ACROSS)}
        self._across.load_state_dict(across)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        hosts = hosts_of(self.options, round_.size)
        host = next(host for host in hosts if round_.place in host)
        inside = _InsideHost(self, bucket, round_, host, split(0, bucket.numel(), self.options.workers_per_host))
        for shard in inside.own:
            part = inside.summed(shard)
            part *= len(hosts) / round_.size  # the mean over hosts of this is the mean over ranks
            self._average_shard(part, shard, inside.spans[shard], codec, round_)
            inside.give(shard)
        inside.finish()

    def _average_on_device(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        """Hosts are full, so that each rank has one shard."""
        assert self.devices is not None
        flat = bucket.detach().reshape(-1).to(torch.float32).contiguous()
        spans = split(0, flat.numel(), self.devices.size)
        shard = self.devices.summed(flat, spans)
        shard *= 1 / self.devices.size
        if self.devices.size < round_.size and shard.numel() > 0:
            part = on_host(shard)
            self._average_shard(part, self.devices.place, spans[self.devices.place], codec, round_)
            give_back(part, shard)
        self.devices.spread(shard, flat, spans)
        if flat.data_ptr() != bucket.data_ptr():
            bucket.copy_(flat.view(bucket.shape))

    def _average_shard(self, part: torch.Tensor, shard: int, span: Span, codec: AbstractCodec, round_: Round) -> None:
        """With the ranks of the other hosts that have the same one."""
        hosts, (begin, end) = hosts_of(self.options, round_.size), span
        number = round_.place // self.options.workers_per_host
        members = Members(tuple(round_.members.ranks[_keeper(host, shard)] for host in hosts), number)
        own_codec = self.part(codec, round_.tag, shard, end - begin, number, begin=begin)
        # A tag for each shard: by it the exchange between hosts tells apart what it remembers.
        tag = round_.tag * self.options.workers_per_host + shard
        self._across.average(part, own_codec, Round(tag, members))


class _InsideHost:
    """What the ranks of one host say to one another about one bucket: straight to the group, since the meter counts
    what crosses a network, as this does where the hosts of the link are nodes of a LAN.

    To each mate go first its shards of this rank's values, then the means of this rank's shards. All receives are
    posted at once, in that order. Means arrive where they belong: they come only when what was there is at the mate.

    Attributes:
        spans: elements of each shard.
        own: shards of this rank; those without elements are left out.
    """

    def __init__(
        self, collective: Sharded, bucket: torch.Tensor, round_: Round, host: range, spans: Sequence[Span]
    ) -> None:
        self._collective, self._bucket, self.spans = collective, bucket, spans
        self._group, self._tag = collective.transport.group, round_.tag
        self._values = bucket.view(torch.uint8)
        self._place = round_.place
        self._ranks = {place: round_.members.ranks[place] for place in host if place != round_.place}
        filled = [shard for shard, (begin, end) in enumerate(spans) if end > begin]
        shards = {place: [shard for shard in filled if _keeper(host, shard) == place] for place in host}
        self.own = shards[round_.place]
        self._contributions: dict[tuple[int, int], tuple[torch.Tensor, dist.Work]] = {}
        self._means: list[dist.Work] = []
        for place, rank in self._ranks.items():
            room = collective.transport.buffer(round_.tag, f"mate-{place}", sum(map(self._size, self.own)))
            for shard in self.own:
                buffer, room = room[: self._size(shard)], room[self._size(shard) :]
                arrival = self._group.recv([buffer], rank, self._tag)
                self._contributions[shard, place] = (buffer.view(torch.float32), arrival)
            self._means += [self._group.recv([self._part(shard)], rank, self._tag) for shard in shards[place]]
        self._sends = [self._send(shard, place) for place in self._ranks for shard in shards[place]]

    def summed(self, shard: int) -> torch.Tensor:
        """A shard of the bucket, by now the sum over the host, added up in the order of the ranks."""
        begin, end = self.spans[shard]
        part = self._bucket[begin:end]
        lower: torch.Tensor | None = None  # the sum over the ranks before this one
        for place in self._ranks:
            values, arrived = self._contributions[shard, place]
            arrived.wait()
            with self._collective.meter.codec():
                if place < self._place:
                    lower = values if lower is None else lower.add_(values)
                    continue
                if lower is not None:
                    part += lower
                    lower = None
                part += values
        if lower is not None:
            part += lower
        return part

    def give(self, shard: int) -> None:
        """Start sending what the shard is now to all of the host."""
        self._sends += [self._send(shard, place) for place in self._ranks]

    def finish(self) -> None:
        """Wait until the bucket is whole and everything is sent."""
        for work in [*self._means, *self._sends]:
            work.wait()

    def _send(self, shard: int, place: int) -> dist.Work:
        if has_lan_inside(self._collective.options, self._collective.link):
            self._collective.meter.sent(self._size(shard))
            emulated_time.catch_up()
        return self._group.send([self._part(shard)], self._ranks[place], self._tag)

    def _part(self, shard: int) -> torch.Tensor:
        begin, end = self.spans[shard]
        return self._values[4 * begin : 4 * end]

    def _size(self, shard: int) -> int:
        begin, end = self.spans[shard]
        return 4 * (end - begin)


def _keeper(host: range, shard: int) -> int:
    """The place of the rank that has a shard in this host."""
    return host[shard % len(host)]
