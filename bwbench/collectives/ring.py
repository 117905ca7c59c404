"""Our ring all-reduce: reduce-scatter, then all-gather, in segments that follow one another without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.collectives.base import AbstractCollective
from bwbench.collectives.ring_traffic import ring_traffic
from bwbench.collectives.segments import Span, aligned, chunks, cut
from bwbench.compression.base import AbstractCodec
from bwbench.plan.traffic import Traffic

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


class Ring(AbstractCollective):
    """Each rank sends to the next one only: 2(N-1) rounds of a chunk of 1/N, so 2(N-1)/N of the bucket a rank.

    After Patarasuk and Yuan 2009, known from Baidu's 2017 article. Chunks are cut into segments, and a segment travels
    on as soon as it is here: the link idles only where a chunk takes less time than the latency. All receive buffers of
    a bucket are announced before its first byte is sent, because gloo holds a message back until the receiver has
    announced a buffer, which would cost one more latency in every round.

    Sums are kept in fp32 where the receiver adds. The last rank to add to a chunk divides, encodes once, adopts what
    that decodes to, and all others get the same bytes passed on: replicas are bit-equal, in every run.
    """

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that can be added up on the way."""
        if not codec.sums_on_ring:
            return "a ring adds on the way, which this codec's payloads do not allow; use all-gather"
        if codec.biased:
            return "a ring encodes anew at every hop, where no residual catches what a biased codec loses"
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """2(N-1)/N of each bucket sent and received by every rank, in 2(N-1) rounds."""
        return ring_traffic(num_nodes, bucket_payload_bytes)

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        last_sum = self.size - 2  # the round after which a chunk is complete
        segments = [cut(begin, end, codec) for begin, end in chunks(bucket.numel(), self.size)]
        incoming = self._announce(segments, codec, tag)
        sends = []
        to_rank = (self.rank + 1) % self.size
        for begin, end in segments[self.rank]:
            with self.meter.codec():
                payload = codec.encode(bucket[begin:end])
            sends.append(self._send(payload, to_rank, tag))
        for round_, messages in enumerate(incoming):
            for (begin, end), payload, work in messages:
                work.wait()
                with self.meter.codec():
                    part = bucket[begin:end]
                    if round_ <= last_sum:
                        codec.decode_add(payload, part)
                        if round_ == last_sum:
                            part /= self.size
                        payload = codec.encode(part)
                    if round_ >= last_sum:
                        part.copy_(codec.decode(payload, end - begin))
                if round_ < len(incoming) - 1:
                    sends.append(self._send(payload, to_rank, tag))
        for send in sends:
            send.wait()

    def _announce(
        self, segments: Sequence[Sequence[Span]], codec: AbstractCodec, tag: int
    ) -> list[list[tuple[Span, torch.Tensor, dist.Work]]]:
        """Post every receive of the exchange: by round, its segments with buffer and pending work."""
        from_rank = (self.rank - 1) % self.size
        # Chunk that arrives in each round: sums first, then the complete chunks.
        arriving = [(self.rank - 1 - i) % self.size for i in range(self.size - 1)]
        arriving += [(self.rank - i) % self.size for i in range(self.size - 1)]
        sizes = [[codec.payload_bytes(end - begin) for begin, end in segments[chunk]] for chunk in arriving]
        room = self._buffer(tag, "ring", sum(aligned(size) for row in sizes for size in row))
        offset, rounds = 0, []
        for chunk, row in zip(arriving, sizes, strict=True):
            messages = []
            for span, size in zip(segments[chunk], row, strict=True):
                buffer = room[offset : offset + size]
                offset += aligned(size)
                messages.append((span, buffer, self._receive(buffer, from_rank, tag)))
            rounds.append(messages)
        return rounds
