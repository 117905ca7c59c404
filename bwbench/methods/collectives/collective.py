"""What every collective offers: the average of one bucket over the members of a round."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import ClassVar

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.methods.buffers import give_back, on_host
from bwbench.methods.collectives.host_devices import HostDevices
from bwbench.methods.collectives.pacing import pace
from bwbench.methods.collectives.ring_sockets import RingSockets
from bwbench.methods.collectives.transport import ExchangeMemory, Meter, Round, Transport
from bwbench.methods.compression.codec import AbstractCodec, AbstractLinearCodec, NoCompression
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.deferred import dist, torch
from bwbench.methods.memory import State
from bwbench.methods.traffic import Traffic
from bwbench.network.link import Link


class AbstractCollective(abc.ABC):
    """Decides how an average is formed: who sends what to whom. Built as ``cls(options)``, without torch.

    Several threads may call ``average`` at once, each with a round of its own. What it remembers from one round to the
    next, such as residuals of a way back, is forgotten by ``reset``; most remember nothing.

    Attributes:
        Config: the class of its options.
        needs_peers: makes no sense on one node.
        exact: every member gets the mean over all members, the same bits; otherwise a mean over some of them.
        topology: who sends to whom, in the words of the literature (``ring``, ``server`` …), for figures and tables;
            None for the collective's own name.
        central: one node, or every node for its share, averages for all.
        wraps_model: exchanges gradients inside a model wrapper of its own (torch's DDP), so that an algorithm that
            averages gradients leaves buckets and overlap to it.
        virtual: works where the ranks are threads of one process that take turns (virtual nodes): it waits for others
            in messages of its transport alone, starts no threads, and keeps nothing outside of its object.
        takes_turns: the ranks that it connects do so.
        takes_sockets: can use connections of its own beside the group, where nothing else says what crosses a network.
        sockets: those; None where it has none.
        devices: the ranks of this host, from device to device; None for most, and where that has not been set up.
        meter: counts what this rank sends and the time of its codec work.
        link: what the network is asked to be; None where that is not known.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    needs_peers: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    topology: ClassVar[str | None] = None
    central: ClassVar[bool] = False
    wraps_model: ClassVar[bool] = False
    virtual: ClassVar[bool] = False
    takes_sockets: ClassVar[bool] = False
    sockets: RingSockets | None = None
    devices: HostDevices | None = None

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()
        self.meter = Meter()
        self.takes_turns = False
        self.link: Link | None = None
        self._transport: Transport | None = None

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Why this collective cannot carry payloads of ``codec``; None where it can, as by default any."""
        return None

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """Why these options do not go with so many nodes or these codecs; None where they do. Pure.

        Asked when a cell is planned and, without codecs, by ``connect``.
        """
        return None

    @classmethod
    def at_sites(cls, options: ComponentConfig, sizes: Sequence[int]) -> ComponentConfig:
        """The options where the nodes, in their order, are at sites of so many each; as they are for most. Pure."""
        return options

    def inside(self, num_nodes: int, bucket_bytes: Sequence[int], link: Link | None = None) -> Traffic:
        """What one exchange of buckets with so many bytes in fp32 moves within hosts, before and after ``traffic``.

        Pure. Nothing for most, and nothing where what is said within a host crosses no network, by ``link``.
        """
        return Traffic.none(num_nodes)

    def runs_virtually(self) -> bool:
        """Whether it is ``virtual`` with these options."""
        return self.virtual

    @classmethod
    def remark(cls, codecs: Sequence[type[AbstractCodec]]) -> str | None:
        """What a plan should say about sending these codecs' payloads this way; None for most."""
        return None

    @abc.abstractmethod
    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """What one exchange of buckets with these payloads moves. Pure: knows nothing of the group."""

    def exchange_memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """What an exchange of a bucket takes of memory beside it, on the rank that takes most. Pure.

        Args:
            num_elements: of the bucket.
            codec: of the bucket, prepared for it, as it is used: in error feedback where it needs that.
        """
        if num_nodes < 2:
            return ExchangeMemory()
        if not codec.linear:
            return self._memory(num_nodes, num_elements, codec)
        inside = codec.codec if isinstance(codec, ErrorFeedback) else codec
        assert isinstance(inside, AbstractLinearCodec)
        messages = [
            self._memory(num_nodes, length, inside.value_codec) for length in inside.message_elements(num_elements)
        ]
        largest = max(messages, key=lambda one: one.kept + one.hub_kept)
        dense = ELEMENT_BYTES * num_elements  # the mean, and what of this rank's has gone into it
        return replace(largest, passing=2 * dense + max(one.passing for one in messages))

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """``exchange_memory`` for two nodes or more and a codec that is not linear; as of an all-gather by default."""
        payload, dense = codec.payload_bytes(num_elements), ELEMENT_BYTES * num_elements
        if isinstance(codec, NoCompression):
            return ExchangeMemory((num_nodes - 1) * payload, dense)
        # The sum, and what is decoded; the own payload, and the message that has it.
        return ExchangeMemory((num_nodes - 1) * payload, 2 * dense + 2 * payload)

    def reset(self) -> None:  # noqa: B027 (most remember nothing)
        """Forget what was learnt while warming up."""

    def rounds_to_reach_all(self, first_round: int, num_members: int) -> int:
        """Rounds after which every member has heard of all others, if through others; pure.

        By default one where the average is exact, else as many as there are members: on a ring news move on by one
        member in each.

        Args:
            first_round: number of the first of these rounds, from 0.
        """
        return 1 if self.exact else num_members

    def state_dict(self) -> State:
        """What is remembered from one round to the next; on every rank its own."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave. Raises ValueError where that is another's."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")

    @abc.abstractmethod
    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        """``average`` for two members or more and an fp32 vector in host memory."""

    def connect(self, group: dist.ProcessGroup, link: Link | None = None, num_members: int | None = None) -> None:
        """Use ``group`` from now on, never the default one: it decides which network the payload crosses.

        Args:
            group: connected to all ranks.
            link: what that network is asked to be, for collectives that adapt to it; None where it is not known. Has
                no influence on results.
            num_members: how many ranks will average together; None for all. Connections are paced for as many.

        Raises:
            ConfigError: the options make no sense with so many ranks.
        """
        num_members = group.size() if num_members is None else num_members
        reason = self.check(num_members) if num_members > 1 else None
        if reason is not None:
            raise ConfigError(reason)
        self._transport = Transport(group, self.meter)
        self.takes_turns = getattr(group, "takes_turns", False)
        self.link = link
        pace(link, self._flows(num_members), group.size())

    @property
    def transport(self) -> Transport:
        """The way to the other ranks, once there is one. Raises RuntimeError before ``connect``."""
        if self._transport is None:
            raise RuntimeError(f"{type(self).__name__} is not connected to a process group")
        return self._transport

    def hosts_of_devices(self, num_members: int) -> Sequence[range]:
        """The ranks of each host, where those with a GPU each are to speak from GPU to GPU; none for most. Pure."""
        return ()

    def takes_from_device(self, codec: AbstractCodec) -> bool:
        """Whether ``average`` wants a bucket where it lies, so that nobody need copy it to the host before."""
        return False

    def _flows(self, num_members: int) -> int:
        """How many connections a rank sends on at the same time; 0 leaves them as fast as TCP makes them."""
        return 0

    def flows_across(self, place: int, hosts: Sequence[object]) -> int:
        """How many connections to other hosts the rank at ``place`` sends on at a time; 0 where nothing is paced.

        Args:
            hosts: of every rank, by its place; those of one host share its way to the others.
        """
        return min(self._flows(len(hosts)), sum(host != hosts[place] for host in hosts))

    def average(
        self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round, host: torch.Tensor | None = None
    ) -> None:
        """Replace ``bucket`` by its mean over the members, the same bits on every one (but see ``exact``).

        Args:
            bucket: float tensor, equally long on all members; changed in place. An fp32 vector in host memory is
                worked on directly, anything else through a copy.
            codec: this rank's codec of this bucket. With one member nothing is sent, so nothing is encoded.
            round_: who takes part, and the tag of this bucket's messages.
            host: what ``on_host`` would give, where somebody has fetched it already; it is worked on.

        Raises:
            RuntimeError: a peer is gone, or has sent nothing for the group's timeout.
        """
        if round_.size == 1 or bucket.numel() == 0:
            return
        flat = on_host(bucket) if host is None else host
        with nullcontext() if self._transport is None else self._transport.rooms_for(flat.nbytes):
            if codec.linear:
                self._average_linear(flat, codec, round_)
            else:
                self._average(flat, codec, round_)
        give_back(flat, bucket)

    def _average_linear(self, flat: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        """Let a linear codec form the mean; its messages are averaged here as dense vectors."""
        message_codec = codec.value_codec
        with ExitStack() as working:
            working.enter_context(self.meter.codec())

            def average_message(message: torch.Tensor) -> None:
                working.close()
                self._average(message, message_codec, round_)
                working.enter_context(self.meter.codec())

            if isinstance(codec, ErrorFeedback):
                mean = codec.average(flat, average_message)
            else:
                assert isinstance(codec, AbstractLinearCodec)
                mean, _ = codec.average(flat, average_message)
            flat.copy_(mean)


class NoCollective(AbstractCollective):
    """For algorithms without communication: a bucket stays what it is."""

    needs_peers = False
    virtual = True

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Nothing to compress."""
        return None if codec is NoCompression else "nothing is sent, so there is nothing to compress"

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """Nothing."""
        return Traffic.none(num_nodes)

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """Nothing."""
        return ExchangeMemory()

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        """Leave the bucket as it is."""
