"""For payloads that cannot be added up on the way: every node averages one chunk for all, or gets everything.

The former, between two compressions, is ByteGrad's exchange and a sharded parameter server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bwbench.base.component import ComponentConfig
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import (
    USUAL,
    ExchangeMemory,
    Round,
    aligned,
    buffer_bytes,
    cutting_for,
    frame,
    in_flight_bytes,
    split,
    unframe,
)
from bwbench.methods.compression.codec import AbstractCodec, NoCompression, Shape
from bwbench.methods.deferred import dist, torch
from bwbench.methods.traffic import Traffic

# Where nothing but time depends on the cut. Each message costs 0.2 ms, and the last piece is waited for with nothing
# else under way: of a chunk of 20 MB at 1 Gbit/s both cost as much with 1 MB.
LARGEST_PIECE_BYTES = 2**20
_BUCKETS_APART = 1_000_003  # a prime: parts of different buckets get different random numbers
Step = tuple[bool, int]  # whether means are sent (else contributions), and of which piece
Message = tuple["torch.Tensor", "dist.Work"]  # buffer, and what to wait for


class AbstractKeepingParts(AbstractCollective):
    """For collectives that need codecs of their own beside those of the buckets: for parts, or for a way back.

    Each is kept: its residual belongs to its part alone. A bucket's codec stays as the caller has made it; its residual
    is never used where a part has a codec. State that is loaded before a part was first asked for waits until then.
    Safe for threads that have a bucket each.
    """

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self._codecs: dict[str, AbstractCodec] = {}
        self._waiting: dict[str, dict[str, torch.Tensor]] = {}

    def part(
        self, codec: AbstractCodec, tag: int, number: int, length: int, rank: int, *, begin: int = 0, back: bool = False
    ) -> AbstractCodec:
        """The codec of part ``number`` of the bucket ``tag``, ``length`` elements long; ``back``: of a mean's way back.

        Where payloads of any cut stand for themselves (``sums_on_ring``) it is the bucket's own.

        Args:
            begin: the first element of the part in the bucket.
        """
        if codec.sums_on_ring:
            return codec
        own = codec.answering() if back else codec
        kept = self._kept(f"{tag}.{number}", own, [(length,)], rank, (tag + 1) * _BUCKETS_APART + number)
        rate = codec.rate
        kept.rate = rate if isinstance(rate, float) else rate[begin : begin + length]
        return kept

    def answer(self, codec: AbstractCodec, tag: int) -> AbstractCodec:
        """A second codec for the whole bucket ``tag``: that of a way back."""
        kept = self._kept(f"{tag}.answer", codec.answering())
        kept.rate = codec.rate
        return kept

    def reset(self) -> None:
        """Forget everything, as if no part had been encoded yet."""
        self._codecs, self._waiting = {}, {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """``<bucket>.<part>.<key>`` of every part."""
        states = {name: codec.state_dict() for name, codec in self._codecs.items()}
        return {
            f"{name}.{key}": value
            for name, state in {**self._waiting, **states}.items()
            for key, value in state.items()
        }

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict forgets everything."""
        self.reset()
        for key, value in state.items():
            tag, number, inside = key.split(".", 2)
            self._waiting.setdefault(f"{tag}.{number}", {})[inside] = value

    def _kept(
        self, name: str, codec: AbstractCodec, shapes: list[Shape] | None = None, rank: int = 0, bucket: int = 0
    ) -> AbstractCodec:
        kept = self._codecs.get(name)
        if kept is None:
            # A copy, because a fresh codec shares what has no memory, and preparing that would change the bucket's.
            kept = copy.deepcopy(codec.fresh())
            if shapes is not None:
                kept.prepare(shapes, rank, bucket)
            if name in self._waiting:
                kept.load_state_dict(self._waiting.pop(name))
            self._codecs[name] = kept
        return kept


class ScatterGather(AbstractKeepingParts):
    """Each rank owns a chunk of 1/N: all send it their part, it sends all the mean. 2(N-1)/N of a bucket in two rounds.

    Compressed, summed up uncompressed, compressed again: the way of Bagua's ByteGrad (Gan et al. 2021), for codecs
    whose payloads cannot be added. The same exchange is a parameter server that is sharded over all workers (Li et al.
    2014). A codec with a memory gets an instance for each part and one more for each way back, which live here.
    """

    virtual = True
    topology = "sharded server"
    central = True

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """2(N-1)/N of each bucket's payload sent and received by every rank, in two rounds a bucket.

        A header that a codec puts before each part is not counted.
        """
        each = (2 * (num_nodes - 1) / num_nodes * sum(bucket_payload_bytes),) * num_nodes
        pieces = sum(USUAL.count(-(-size // num_nodes)) for size in bucket_payload_bytes)
        messages = 2 * num_nodes * (num_nodes - 1) * pieces
        return Traffic(each, each, 2 * len(bucket_payload_bytes), messages=messages)

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """Contributions to the own chunk and the means of the others; what is sent; residuals of the way back."""
        payload, dense = codec.payload_bytes(num_elements), ELEMENT_BYTES * num_elements
        kept, chunk = 2 * (num_nodes - 1) / num_nodes * payload, dense / num_nodes
        if isinstance(codec, NoCompression):
            return ExchangeMemory(kept, chunk)
        sent = payload if codec.sums_on_ring else 2 * payload  # each as it is, and with its length before it
        pieces = USUAL.count(codec.payload_bytes(-(-num_elements // num_nodes)))
        pieces = min(pieces, 2) if codec.sums_on_ring else pieces  # two where nothing is shaped
        return ExchangeMemory(kept, sent + chunk / pieces, codec.kept_copies * chunk)

    def _flows(self, num_members: int) -> int:
        return num_members - 1

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        chunk = -(-bucket.numel() // round_.size)
        cutting = USUAL
        if codec.sums_on_ring:  # others encode each piece by itself, so that the bits depend on the cut
            fitting = cutting_for(self.link, round_.size)
            cutting = replace(fitting, largest_bytes=min(LARGEST_PIECE_BYTES, fitting.largest_bytes))
        pieces = cutting.count(codec.payload_bytes(chunk))
        Exchange(self, bucket, codec, round_, min(chunk, pieces)).run()


class Exchange:
    """One exchange of one bucket, in two rounds.

    Every rank owns a chunk of 1/N. Chunks are cut into ``num_pieces``, each encoded by itself, so that the means of
    the first pieces travel while the last contributions still do. The owner decodes all contributions in the order
    of the ranks, its own too, and adopts what it sends back: replicas are bit-equal.
    """

    def __init__(
        self,
        collective: AbstractKeepingParts,
        bucket: torch.Tensor,
        codec: AbstractCodec,
        round_: Round,
        num_pieces: int = 1,
    ) -> None:
        self._collective, self._bucket, self._codec, self._round = collective, bucket, codec, round_
        self._place, self._size = round_.place, round_.size
        chunks = [split(begin, end, num_pieces) for begin, end in split(0, bucket.numel(), self._size)]
        self._pieces = [[chunk[number] for chunk in chunks] for number in range(num_pieces)]
        # Nearest successor first, so that no rank is everybody's first addressee.
        self._peers = [(self._place + distance) % self._size for distance in range(1, self._size)]
        self._sends: list[dist.Work] = []
        # Pieces that may be under way before their means: two at least, for the link must not idle.
        piece_bytes = codec.payload_bytes(max(end - begin for begin, end in self._pieces[0]))
        each = max(1, (self._size - 1) * piece_bytes)
        ahead = int(max(2.0, min(in_flight_bytes(collective.link, self._size) / each - 1, 1e9)))
        self._steps = list(_steps(num_pieces, ahead))

    def run(self) -> None:
        """Replace the bucket by its mean."""
        self._incoming = {peer: self._announce(peer) for peer in self._peers}
        for means, piece in self._steps:
            if means:
                self._send_mean(piece)
                if piece:
                    self._adopt(piece - 1)
            else:
                self._send_contributions(piece)
        self._adopt(len(self._pieces) - 1)
        for send in self._sends:
            send.wait()

    def _announce(self, peer: int) -> dict[Step, Message]:
        """Post all receives from one rank, in the order in which it sends."""
        spans = {(means, piece): self._pieces[piece][peer if means else self._place] for means, piece in self._steps}
        spans = {step: (begin, end) for step, (begin, end) in spans.items() if end > begin}
        messages = self._collective.transport.receive_all([*spans.values()], self._codec, peer, self._round)
        return dict(zip(spans, messages, strict=True))

    def _send_contributions(self, piece: int) -> None:
        for peer in self._peers:
            begin, end = self._pieces[piece][peer]
            if end > begin:
                with self._collective.meter.codec():
                    payload = self._part(piece, peer).encode(self._bucket[begin:end])
                self._send(payload, [peer])

    def _send_mean(self, piece: int) -> None:
        """Collect a piece of the own chunk and tell all what its mean is."""
        begin, end = self._pieces[piece][self._place]
        if end == begin:
            return
        own, total = self._bucket[begin:end], None
        codec = self._part(piece, self._place)
        for member in range(self._size):
            if member == self._place:
                with self._collective.meter.codec():
                    payload = codec.encode(own)
            else:
                message, work = self._incoming[member][False, piece]
                work.wait()
                payload = unframe(self._codec, message)
            with self._collective.meter.codec():
                if total is None:  # a clone: what is decoded may be the bucket or a buffer
                    total = codec.decode(payload, end - begin).clone()
                else:
                    codec.decode_add(payload, total)
        assert total is not None
        with self._collective.meter.codec():
            payload = self._part(piece, self._size).encode(total.div_(self._size))
            own.copy_(codec.decode(payload, end - begin))
        self._send(payload, self._peers)

    def _adopt(self, piece: int) -> None:
        """Take over the means of a piece of all other chunks, in the order in which they were sent first."""
        for peer in reversed(self._peers):
            begin, end = self._pieces[piece][peer]
            if end > begin:
                message, work = self._incoming[peer][True, piece]
                work.wait()
                with self._collective.meter.codec():
                    payload = unframe(self._codec, message)
                    self._bucket[begin:end] = self._part(piece, peer).decode(payload, end - begin)

    def _part(self, piece: int, chunk: int) -> AbstractCodec:
        """The codec of a piece of a chunk; ``chunk`` N is the way back of the own chunk."""
        begin, end = self._pieces[piece][chunk if chunk < self._size else self._place]
        number = piece * (self._size + 1) + chunk
        back = chunk == self._size
        return self._collective.part(
            self._codec, self._round.tag, number, end - begin, self._place, begin=begin, back=back
        )

    def _send(self, payload: torch.Tensor, peers: list[int]) -> None:
        message = frame(self._codec, payload)
        self._sends += [self._collective.transport.send(message, peer, self._round, payload.numel()) for peer in peers]


def _steps(num_pieces: int, ahead: int) -> Iterator[Step]:
    """What every rank sends, in order: contributions ``ahead`` of the means."""
    yield from ((False, piece) for piece in range(min(ahead, num_pieces)))
    for piece in range(num_pieces):
        yield True, piece
        if piece + ahead < num_pieces:
            yield False, piece + ahead


class AllGather(AbstractCollective):
    """Each rank sends N-1 payloads and decodes N, its own included, in the order of the ranks: replicas are bit-equal.

    Cheaper than a ring only where payloads are small: a sparse sum fills in along a ring, here it travels unmerged.
    """

    virtual = True
    topology = "all to all"

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """N-1 payloads sent and received by every rank, all at once."""
        each, num_buckets = ((num_nodes - 1.0) * sum(bucket_payload_bytes),) * num_nodes, len(bucket_payload_bytes)
        return Traffic(each, each, num_buckets, messages=num_nodes * (num_nodes - 1) * num_buckets)

    def _flows(self, num_members: int) -> int:
        return num_members - 1

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        place, size, num_elements = round_.place, round_.size, bucket.numel()
        room = buffer_bytes(codec, num_elements)
        buffers = self.transport.buffer(round_.tag, "all-gather", size * aligned(room)).view(size, -1)[:, :room]
        # Nearest successor first, so that no rank is everybody's first addressee.
        peers = [(place + distance) % size for distance in range(1, size)]
        incoming = {peer: self.transport.receive(buffers[peer], peer, round_) for peer in reversed(peers)}
        with self.meter.codec():
            own = codec.encode(bucket)
            message = frame(codec, own)
        sends = [self.transport.send(message, peer, round_, own.numel()) for peer in peers]
        total: torch.Tensor | None = None
        for sender in range(size):
            if sender != place:
                incoming[sender].wait()
            with self.meter.codec():
                payload = own if sender == place else unframe(codec, buffers[sender])
                if total is None:  # a clone: what is decoded may be memory that is still being sent
                    total = codec.decode(payload, num_elements).clone()
                else:
                    codec.decode_add(payload, total)
        for send in sends:
            send.wait()
        assert total is not None
        bucket.copy_(total.div_(size))
