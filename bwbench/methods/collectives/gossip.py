"""Averages over some of the nodes: pairs, other ones in every round, or the neighbours on a ring."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from bwbench.base.component import ComponentConfig
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import (
    LENGTH_BYTES,
    USUAL,
    ExchangeMemory,
    Round,
    cut,
    frame,
    pack,
    unframe,
    unpack,
)
from bwbench.methods.compression.codec import AbstractCodec, NoCompression
from bwbench.methods.deferred import torch
from bwbench.methods.traffic import Traffic


class GossipPairConfig(ComponentConfig):
    """Options of ``gossip-pair``.

    Attributes:
        pairs: ``shift-one``, Bagua's rule (Gan et al. 2021), in which the first half of the ranks meets the second, in
            turn; or ``random``, drawn anew for each round, the same on all ranks.
    """

    pairs: Literal["shift-one", "random"] = "shift-one"


class GossipPair(AbstractCollective):
    """x = (x_i + x_j) / 2 with one peer a round: one payload each way, however many nodes there are.

    Each bucket has a round counter of its own, which ``reset`` rewinds; in rounds of the same number a rank has the
    same peer. Both contributions take the same way through the codec, so that a pair ends with the same bits; the mean
    over all ranks stays what it was, but for what the codec loses.
    """

    Config = GossipPairConfig
    options: GossipPairConfig
    exact = False
    virtual = True
    topology = "gossip"

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self._rounds: dict[int, int] = {}

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Any codec but those that need the sum over all ranks."""
        if codec.linear:
            return "pairs average with each other, and this codec needs sums over all ranks; use ring"
        return None

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """Nobody may be left over."""
        if num_nodes % 2 == 0:
            return None
        return f"gossip-pair needs an even number of nodes, so that each has a peer; {num_nodes} is odd"

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """One payload sent and received by every rank, in one round a bucket."""
        if num_nodes == 1:
            return Traffic.none(1)
        each = (float(sum(bucket_payload_bytes)),) * num_nodes
        messages = num_nodes * sum(map(USUAL.count, bucket_payload_bytes))
        return Traffic(each, each, len(bucket_payload_bytes), messages=messages)

    def reset(self) -> None:
        """Begin again with round 0."""
        self._rounds = {}

    def rounds_to_reach_all(self, first_round: int, num_members: int) -> int:
        """Of random pairs as many as their drawing takes; N for ``shift-one``, where half of them are enough."""
        if self.options.pairs != "random":
            return super().rounds_to_reach_all(first_round, num_members)
        return _random_rounds_to_reach_all(first_round, num_members)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """``round.<bucket>``: the round that comes next."""
        return {f"round.{tag}": torch.tensor(number) for tag, number in self._rounds.items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict rewinds."""
        self._rounds = {int(key.removeprefix("round.")): int(number) for key, number in state.items()}

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """What the peer has, and the mean of both."""
        payload, dense = codec.payload_bytes(num_elements), ELEMENT_BYTES * num_elements
        passing = dense if isinstance(codec, NoCompression) else 2 * dense + 2 * payload
        return ExchangeMemory(payload, passing)

    def _flows(self, num_members: int) -> int:
        return 1

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        number = self._rounds.get(round_.tag, 0)
        self._rounds[round_.tag] = number + 1
        random = self.options.pairs == "random"
        peer = random_peers(number, round_.size)[round_.place] if random else peer_of(round_.place, number, round_.size)
        spans = cut(0, bucket.numel(), codec) if codec.sums_on_ring else [(0, bucket.numel())]
        incoming = self.transport.receive_all(spans, codec, peer, round_)
        own, sends, means = [], [], []
        for begin, end in spans:
            with self.meter.codec():
                payload = codec.encode(bucket[begin:end])
                own.append(payload)
                message = frame(codec, payload)
            sends.append(self.transport.send(message, peer, round_, payload.numel()))
        for (begin, end), payload, (message, work) in zip(spans, own, incoming, strict=True):
            work.wait()
            with self.meter.codec():
                total = codec.decode(payload, end - begin).clone()  # what is decoded may still be sent
                codec.decode_add(unframe(codec, message), total)
                means.append(total.div_(2))
        for send in sends:
            send.wait()
        for (begin, end), mean in zip(spans, means, strict=True):  # only now: what was sent may be the bucket's memory
            bucket[begin:end] = mean


def peer_of(rank: int, round_number: int, num_nodes: int) -> int:
    """The rank that ``rank`` averages with: the first half of the ranks meets the second, shifted by one each round.

    Args:
        round_number: from 0; after N/2 rounds the pairs repeat.
        num_nodes: even.
    """
    half = num_nodes // 2
    if rank < half:
        return (round_number + rank) % half + half
    return (rank - half - round_number) % half


@lru_cache(maxsize=256)
def random_peers(round_number: int, num_nodes: int) -> tuple[int, ...]:
    """The peer of each rank: all ranks in an order that is drawn for the round, then two by two.

    The order is that of hashes, which nobody has to tell anybody.

    Args:
        num_nodes: even.
    """
    order = sorted(range(num_nodes), key=lambda rank: hashlib.blake2b(f"{round_number} {rank}".encode()).digest())
    peers = {rank: order[place ^ 1] for place, rank in enumerate(order)}
    return tuple(peers[rank] for rank in range(num_nodes))


@lru_cache(maxsize=256)  # asked in every step
def _random_rounds_to_reach_all(first_round: int, num_nodes: int) -> int:
    """Until every rank has heard of every other one, where each tells its peer all that it has heard."""
    heard = [frozenset((rank,)) for rank in range(num_nodes)]
    rounds = 0
    while any(len(ranks) < num_nodes for ranks in heard):
        heard = [heard[rank] | heard[peer] for rank, peer in enumerate(random_peers(first_round + rounds, num_nodes))]
        rounds += 1
    return max(1, rounds)


class Neighbours(AbstractCollective):
    """x = (x_left + x + x_right) / 3: D-PSGD on a ring (Lian et al. 2017), two payloads a node however many there are.

    Two nodes have one neighbour, which is both: x = (x + x_other) / 2. The own value takes the same way through the
    codec as those of the neighbours, so that the mean over all ranks is that of the decoded values.
    """

    exact = False
    virtual = True
    topology = "gossip"

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Any codec but those that need the sum over all ranks."""
        if codec.linear:
            return "neighbours average with each other, and this codec needs sums over all ranks; use ring"
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """Two payloads (one on two nodes) sent and received by every rank, in one round a bucket."""
        others, num_buckets = len(self._both(0, num_nodes)), len(bucket_payload_bytes)
        each = (float(others * sum(bucket_payload_bytes)),) * num_nodes
        return Traffic(each, each, num_buckets, messages=num_nodes * others * num_buckets, peers="neighbours")

    def exchange(self, payload: torch.Tensor, max_bytes: int, round_: Round) -> tuple[torch.Tensor, torch.Tensor]:
        """Send a payload to both neighbours and get theirs.

        Collective; all members agree on ``max_bytes``. Counts what is sent.

        Args:
            payload: uint8 of shape [num_bytes], at most ``max_bytes``; its length may differ from rank to rank.

        Returns:
            from_left, from_right: what the members before and after this one gave, uint8 in memory that the next
            call in this thread uses again. On two nodes both are the same tensor, on one both are ``payload``.
        """
        if payload.numel() > max_bytes:
            raise ValueError(f"a payload of {payload.numel()} bytes is larger than {max_bytes}, which was promised")
        neighbours = self._both(round_.place, round_.size)
        if not neighbours:
            return payload, payload
        incoming = {}
        with self.transport.rooms_for(max_bytes):
            rooms = {
                peer: self.transport.buffer(round_.tag, f"from-{peer}", LENGTH_BYTES + max_bytes) for peer in neighbours
            }
        for peer in reversed(neighbours):
            incoming[peer] = rooms[peer], self.transport.receive(rooms[peer], peer, round_)
        message = pack(payload)
        sends = [self.transport.send(message, peer, round_, payload.numel()) for peer in neighbours]
        received = {}
        for peer, (buffer, work) in incoming.items():
            work.wait()
            received[peer] = unpack(buffer)
        for send in sends:
            send.wait()
        return received[(round_.place - 1) % round_.size], received[(round_.place + 1) % round_.size]

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """What the neighbours have; the own message, and the mean."""
        payload, dense = codec.payload_bytes(num_elements), ELEMENT_BYTES * num_elements
        passing = dense + payload if isinstance(codec, NoCompression) else 2 * dense + 2 * payload
        return ExchangeMemory(len(self._both(0, num_nodes)) * payload, passing)

    def _flows(self, num_members: int) -> int:
        return len(self._both(0, num_members))

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        num_elements = bucket.numel()
        with self.meter.codec():
            payload = codec.encode(bucket)
        from_left, from_right = self.exchange(payload, codec.max_payload_bytes(num_elements), round_)
        with self.meter.codec():
            total = codec.decode(payload, num_elements).clone()  # what is decoded may be the bucket
            codec.decode_add(from_left, total)
            if round_.size > 2:
                codec.decode_add(from_right, total)
            bucket.copy_(total.div_(min(round_.size, 3)))

    @staticmethod
    def _both(rank: int, num_nodes: int) -> list[int]:
        """The neighbours of a rank, right one first; one on two nodes, none on one."""
        return list(dict.fromkeys(peer % num_nodes for peer in (rank + 1, rank - 1) if peer % num_nodes != rank))
