"""The exchange in two rounds: every chunk goes straight to its owner, and its mean straight back to all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bwbench.base.component import ComponentConfig
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.collectives.framing import buffer_bytes, frame, unframe
from bwbench.methods.collectives.part_codecs import PartCodecs
from bwbench.methods.collectives.segments import Span, aligned, in_flight_bytes, split
from bwbench.methods.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

Step = tuple[bool, int]  # whether means are sent (else contributions), and of which piece
Message = tuple["torch.Tensor", "dist.Work"]  # buffer, and what to wait for


class AbstractTwoRounds(AbstractCollective):
    """For collectives that use this exchange, always or where a bucket is small."""

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self._parts = PartCodecs()

    def reset(self) -> None:
        """Forget the residuals of all parts, of both ways."""
        self._parts.forget()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What the codecs of the parts remember."""
        return self._parts.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._parts.load_state_dict(state)

    def _two_rounds(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int, num_pieces: int = 1) -> None:
        """Replace ``bucket`` by its mean.

        Every rank owns a chunk of 1/N. Chunks are cut into ``num_pieces``, each encoded by itself, so that the means of
        the first pieces travel while the last contributions still do. The owner decodes all contributions in the order
        of the ranks, its own too, and adopts what it sends back: replicas are bit-equal.
        """
        chunks = [split(begin, end, num_pieces) for begin, end in split(0, bucket.numel(), self.size)]
        pieces = [[chunk[number] for chunk in chunks] for number in range(num_pieces)]
        Exchange(self, self._parts, pieces, codec, tag).run(bucket)

    def _ahead(self, piece_bytes: int) -> int:
        """How many pieces may be under way before their means: two at least, for the link must not idle."""
        most_bytes = in_flight_bytes(self.link, self.size)
        each = max(1, (self.size - 1) * piece_bytes)
        return int(max(2.0, min(most_bytes / each - 1, 1e9)))


class Exchange:
    """One exchange of one bucket."""

    def __init__(
        self, by: AbstractTwoRounds, parts: PartCodecs, pieces: list[list[Span]], codec: AbstractCodec, tag: int
    ) -> None:
        self._by, self._parts, self._pieces, self._codec, self._tag = by, parts, pieces, codec, tag
        # Nearest successor first, so that no rank is everybody's first addressee.
        self._peers = [(by.rank + distance) % by.size for distance in range(1, by.size)]
        self._sends: list[dist.Work] = []
        longest = max(end - begin for begin, end in pieces[0])
        self._steps = list(_steps(len(pieces), by._ahead(codec.payload_bytes(longest))))

    def run(self, bucket: torch.Tensor) -> None:
        """Replace ``bucket`` by its mean."""
        incoming = {peer: self._announce(peer) for peer in self._peers}
        for means, piece in self._steps:
            if means:
                self._send_mean(bucket, piece, incoming)
                if piece:
                    self._adopt(bucket, piece - 1, incoming)
            else:
                self._send_contributions(bucket, piece)
        self._adopt(bucket, len(self._pieces) - 1, incoming)
        for send in self._sends:
            send.wait()

    def _announce(self, peer: int) -> dict[Step, Message]:
        """Post all receives from one rank, in the order in which it sends."""
        spans = {(means, piece): self._pieces[piece][peer if means else self._by.rank] for means, piece in self._steps}
        sizes = {step: buffer_bytes(self._codec, end - begin) for step, (begin, end) in spans.items() if end > begin}
        room = self._by._buffer(self._tag, f"from-{peer}", sum(map(aligned, sizes.values())))
        offset, messages = 0, {}
        for step, size in sizes.items():
            buffer = room[offset : offset + size]
            offset += aligned(size)
            messages[step] = buffer, self._by._receive(buffer, peer, self._tag)
        return messages

    def _send_contributions(self, bucket: torch.Tensor, piece: int) -> None:
        for peer in self._peers:
            begin, end = self._pieces[piece][peer]
            if end > begin:
                with self._by.meter.codec():
                    payload = self._part(piece, peer).encode(bucket[begin:end])
                self._send(payload, [peer])

    def _send_mean(self, bucket: torch.Tensor, piece: int, incoming: dict[int, dict[Step, Message]]) -> None:
        """Collect a piece of the own chunk and tell all what its mean is."""
        begin, end = self._pieces[piece][self._by.rank]
        if end == begin:
            return
        own, total = bucket[begin:end], None
        codec = self._part(piece, self._by.rank)
        for rank in range(self._by.size):
            if rank == self._by.rank:
                with self._by.meter.codec():
                    payload = codec.encode(own)
            else:
                message, work = incoming[rank][False, piece]
                work.wait()
                payload = unframe(self._codec, message)
            with self._by.meter.codec():
                if total is None:  # a clone: what is decoded may be the bucket or a buffer
                    total = codec.decode(payload, end - begin).clone()
                else:
                    codec.decode_add(payload, total)
        assert total is not None
        with self._by.meter.codec():
            payload = self._part(piece, self._by.size).encode(total.div_(self._by.size))
            own.copy_(codec.decode(payload, end - begin))
        self._send(payload, self._peers)

    def _adopt(self, bucket: torch.Tensor, piece: int, incoming: dict[int, dict[Step, Message]]) -> None:
        """Take over the means of a piece of all other chunks, in the order in which they were sent first."""
        for peer in reversed(self._peers):
            begin, end = self._pieces[piece][peer]
            if end > begin:
                message, work = incoming[peer][True, piece]
                work.wait()
                with self._by.meter.codec():
                    payload = unframe(self._codec, message)
                    bucket[begin:end] = self._part(piece, peer).decode(payload, end - begin)

    def _part(self, piece: int, chunk: int) -> AbstractCodec:
        """The codec of a piece of a chunk; ``chunk`` N is the way back of the own chunk."""
        begin, end = self._pieces[piece][chunk if chunk < self._by.size else self._by.rank]
        number = piece * (self._by.size + 1) + chunk
        back = chunk == self._by.size
        return self._parts.part(self._codec, self._tag, number, end - begin, self._by.rank, back)

    def _send(self, payload: torch.Tensor, peers: list[int]) -> None:
        message = frame(self._codec, payload)
        self._sends += [self._by._send(message, peer, self._tag, payload.numel()) for peer in peers]


def _steps(num_pieces: int, ahead: int) -> Iterator[Step]:
    """What every rank sends, in order: contributions ``ahead`` of the means."""
    yield from ((False, piece) for piece in range(min(ahead, num_pieces)))
    for piece in range(num_pieces):
        yield True, piece
        if piece + ahead < num_pieces:
            yield False, piece + ahead
