"""Workers of one host, or nodes of one site, average among themselves first; one of each crosses the link."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Annotated

from pydantic import BeforeValidator, Field

from bwbench.base import emulated_time
from bwbench.base.component import ComponentConfig
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.base.registry import COLLECTIVES
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import ExchangeMemory, Members, Round
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.deferred import dist, torch
from bwbench.methods.traffic import Traffic
from bwbench.network.link import Link
from bwbench.network.link.variation import as_tuple


class HostsConfig(ComponentConfig):
    """Options of what averages in hosts first.

    Attributes:
        workers_per_host: how many consecutive ranks share a host; the last host may have fewer.
        across: the collective that averages between hosts.
    """

    workers_per_host: int = Field(2, ge=1)
    across: str = "ring"


class HierarchicalConfig(HostsConfig):
    """Options of ``hierarchical``.

    Attributes:
        workers_per_host: how many consecutive ranks share a host; the last host may have fewer.
        sites: how many consecutive ranks each site has; filled in from the link's sites, and wins then.
        across: the collective by which one leader of each host averages with the others.
    """

    sites: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(as_tuple)] = ()


class Hierarchical(AbstractCollective):
    """The mean over all ranks, of which only one a host, its lowest rank, sends over the link between hosts.

    Members send their values to their leader as fp32, over whatever connects the processes of one host. Leaders add
    them up in the order of the ranks, average the sums with each other, and send the result back: replicas are
    bit-equal. Only what leaders exchange is encoded. Hosts count by their number of workers, so that the mean is that
    over all ranks. As the hierarchical all-reduce of Horovod and Bagua, with processes where they have GPUs.

    Sites in place of hosts are nodes of one LAN, as are those of any host on a link with sites: what members send to
    their leader and get from it crosses the network as well, and counts as sent.
    """

    Config = HierarchicalConfig
    options: HierarchicalConfig
    topology = "ring of hosts"

    @functools.cached_property
    def _across(self) -> AbstractCollective:
        across: AbstractCollective = COLLECTIVES.load(self.options.across)()
        across.meter = self.meter
        return across

    def runs_virtually(self) -> bool:
        """As what runs between the leaders does."""
        return self._across.runs_virtually()

    @classmethod
    def at_sites(cls, options: ComponentConfig, sizes: Sequence[int]) -> ComponentConfig:
        """Each site is a host, unless somebody has said how many workers those have."""
        told = options.model_fields_set & {"workers_per_host", "sites"}
        return options if told else options.model_copy(update={"sites": tuple(sizes)})

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """Hosts must be filled, and what runs between the leaders must be exact and take the codecs."""
        if self.options.sites and (num_told := sum(self.options.sites)) != num_nodes:
            told = ", ".join(map(str, self.options.sites))
            return f"sites: {told} are {num_told} nodes, and there are {num_nodes}"
        return refusal_across(self.options, (Hierarchical,), num_nodes, codecs, "leaders")

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """What leaders exchange with each other; what stays on a host is not counted."""
        hosts = hosts_of(self.options, num_nodes)
        if len(hosts) < 2:
            return Traffic.none(num_nodes)
        between = self._across.traffic(len(hosts), bucket_payload_bytes)
        sent, received = [0.0] * num_nodes, [0.0] * num_nodes
        for number, host in enumerate(hosts):
            sent[host[0]] = between.payload_bytes_per_rank[number]
            received[host[0]] = between.received_bytes_per_rank[number]
        return replace(between, payload_bytes_per_rank=tuple(sent), received_bytes_per_rank=tuple(received))

    def inside(self, num_nodes: int, bucket_bytes: Sequence[int], link: Link | None = None) -> Traffic:
        """Members send fp32 to their leader, and then get the mean from it."""
        hosts = [host for host in hosts_of(self.options, num_nodes) if len(host) > 1]
        if not hosts or not has_lan_inside(self.options, link):
            return Traffic.none(num_nodes)
        size, sent = float(sum(bucket_bytes)), [0.0] * num_nodes
        for leader, *members in hosts:
            sent[leader] = len(members) * size
            for member in members:
                sent[member] = size
        return Traffic(
            tuple(sent),
            tuple(sent),
            rounds=2 * len(bucket_bytes),
            serial_bytes=max(sent),
            messages=2 * len(bucket_bytes) * sum(len(host) - 1 for host in hosts),
            peers="hub",
            groups=tuple(map(tuple, hosts)),
        )

    def exchange_memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """A member has room for the mean, a leader for its members' values and what leaders exchange."""
        hosts, dense = hosts_of(self.options, num_nodes), ELEMENT_BYTES * num_elements
        across = self._across.exchange_memory(len(hosts), num_elements, codec)
        most = max(map(len, hosts))
        if most == 1:
            return across
        leads = (most - 1) * dense + across.kept + across.hub_kept
        back = across.remembered + across.hub_remembered
        return ExchangeMemory(dense, across.passing, 0.0, len(hosts), max(0.0, leads - dense), back)

    def connect(self, group: dist.ProcessGroup, link: Link | None = None, num_members: int | None = None) -> None:
        """Use ``group``; leaders talk to each other through it too."""
        super().connect(group, link, num_members)
        hosts = hosts_of(self.options, group.size() if num_members is None else num_members)
        leads = any(group.rank() == host[0] for host in hosts)  # the others send within their host: nothing to pace
        # A link whose nodes differ speaks of ranks that leaders do not have among themselves.
        known = link if leads and link is not None and not link.overrides and not link.wired else None
        self._across.connect(group, known, len(hosts))

    def flows_across(self, place: int, hosts: Sequence[object]) -> int:
        """Those of a leader; the others send within their host."""
        leaders = [host[0] for host in hosts_of(self.options, len(hosts))]
        if place not in leaders or len(leaders) < 2:
            return 0
        return self._across.flows_across(leaders.index(place), [hosts[leader] for leader in leaders])

    def reset(self) -> None:
        """Forget what the exchange between leaders remembers."""
        self._across.reset()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What the exchange between leaders remembers."""
        return self._across.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._across.load_state_dict(state)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        hosts = hosts_of(self.options, round_.size)
        ranks, tag, transport = round_.members.ranks, round_.tag, self.transport
        number = next(number for number, host in enumerate(hosts) if round_.place in host)
        leader, *others = (ranks[place] for place in hosts[number])
        values = bucket.view(torch.uint8)
        if ranks[round_.place] != leader:
            result = transport.group.recv([transport.buffer(tag, "mean", values.numel())], leader, tag)
            self._send_inside(values, leader, tag).wait()
            result.wait()
            values.copy_(transport.buffer(tag, "mean", values.numel()))
            return
        buffers = [transport.buffer(tag, f"member-{other}", values.numel()) for other in others]
        incoming = [transport.group.recv([buffer], rank, tag) for buffer, rank in zip(buffers, others, strict=True)]
        for buffer, work in zip(buffers, incoming, strict=True):
            work.wait()
            with emulated_time.work_on_vectors():
                bucket += buffer.view(torch.float32)
        with emulated_time.work_on_vectors():  # the mean over hosts of this is the mean over ranks
            bucket *= len(hosts) / round_.size
        leaders = Members(tuple(ranks[host[0]] for host in hosts), number)
        self._across.average(bucket, codec, Round(tag, leaders))
        for work in [self._send_inside(values, other, tag) for other in others]:
            work.wait()

    def _send_inside(self, values: torch.Tensor, rank: int, tag: int) -> dist.Work:
        """Straight to the group: the meter counts what crosses the network, which within a host nothing does."""
        if has_lan_inside(self.options, self.link):
            self.meter.sent(values.numel())
            emulated_time.catch_up()
        return self.transport.group.send([values], rank, tag)


def refusal_across(
    options: HostsConfig,
    in_hosts: tuple[type[AbstractCollective], ...],
    num_nodes: int,
    codecs: Sequence[type[AbstractCodec]],
    whom: str,
) -> str | None:
    """Why what ``options`` say cannot run between hosts, as in ``AbstractCollective.check``.

    Args:
        in_hosts: collectives that have hosts of their own.
        whom: between whom it would run.
    """
    name, workers = options.across, options.workers_per_host
    if name not in COLLECTIVES:
        return f"across: {COLLECTIVES.unknown(name)}"
    across = COLLECTIVES.load(name)
    if not across.needs_peers or not across.exact or across.wraps_model or issubclass(across, in_hosts):
        return f"across: {name!r} cannot average between {whom}; write 'ring', 'scatter-gather' or 'all-gather'"
    told_sites = isinstance(options, HierarchicalConfig) and options.sites
    if workers > num_nodes and not told_sites:
        return f"workers_per_host is {workers}, but there are {num_nodes} nodes in all"
    reasons = (across.accepts(codec) for codec in codecs)
    reason = next((reason for reason in reasons if reason is not None), None)
    return None if reason is None else f"across: {name!r} cannot carry this between {whom}: {reason}"


def has_lan_inside(options: HostsConfig, link: Link | None) -> bool:
    """Whether what is said within a host crosses a network: hosts that are sites, and all on a link with sites."""
    told_sites = isinstance(options, HierarchicalConfig) and options.sites
    return bool(told_sites or (link is not None and link.sites))


def hosts_of(options: HostsConfig, num_nodes: int) -> list[range]:
    """The places of each host's workers, or of each site's nodes, among all."""
    if isinstance(options, HierarchicalConfig) and options.sites:
        ends = accumulate(options.sites)
        return [range(end - size, end) for size, end in zip(options.sites, ends, strict=True)]
    workers = options.workers_per_host
    return [range(first, min(first + workers, num_nodes)) for first in range(0, num_nodes, workers)]
