"""All send to one node, which averages and sends back: the central way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.collectives.base import AbstractCollective
from bwbench.collectives.framing import buffer_bytes, frame, unframe
from bwbench.collectives.segments import Span, aligned, cut, segment_count
from bwbench.compression.base import AbstractCodec
from bwbench.config.component import ComponentConfig
from bwbench.plan.traffic import Traffic

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

SERVER = 0


class ParameterServer(AbstractCollective):
    """Rank 0 is the server and one of the stations: it trains as well.

    Clients send what their codec gives; the server adds up in the order of the ranks (its own contribution takes the
    same way through the codec), divides, encodes the mean and sends it back. All, the server included, adopt what the
    mean decodes to: replicas are bit-equal. Codecs that can be cut are sent in segments, so that on a full-duplex link
    the mean of the first travels back while the last still arrives.

    A biased codec loses something on the way back too; the server's second codec has a residual of its own for that
    (as in DoubleSqueeze, Tang et al. 2019).
    """

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self._answers: dict[int, AbstractCodec] = {}  # of the way back, by bucket

    @classmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Any codec."""
        return None

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """One payload each way at a client, N-1 each way at the server, in two rounds.

        The way back begins while the rest still arrives; only the mean of the last segment has nothing to overlap with.
        """
        payload = float(sum(bucket_payload_bytes))
        each = ((num_nodes - 1) * payload, *[payload] * (num_nodes - 1))
        last = bucket_payload_bytes[-1] if bucket_payload_bytes else 0
        serial = (num_nodes - 1) * last / segment_count(last)
        return Traffic(each, each, 2 * len(bucket_payload_bytes), serial)

    def reset(self) -> None:
        """Forget the residuals of the way back."""
        self._answers = {}

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        spans = cut(0, bucket.numel(), codec) if codec.sums_on_ring else [(0, bucket.numel())]
        if self.rank == SERVER:
            self._serve(bucket, spans, codec, tag)
        else:
            self._ask(bucket, spans, codec, tag)

    def _serve(self, bucket: torch.Tensor, spans: Sequence[Span], codec: AbstractCodec, tag: int) -> None:
        clients = [rank for rank in range(self.size) if rank != SERVER]
        answer_codec = self._answers.setdefault(tag, codec.fresh())
        incoming = {client: self._announce(spans, codec, client, tag) for client in clients}
        sends = []
        for i, (begin, end) in enumerate(spans):
            part = bucket[begin:end]
            with self.meter.codec():
                total = codec.decode(codec.encode(part), end - begin)
            for client in clients:
                message, work = incoming[client][i]
                work.wait()
                with self.meter.codec():
                    codec.decode_add(unframe(codec, message), total)
            with self.meter.codec():
                payload = answer_codec.encode(total.div_(self.size))
                message = frame(codec, payload)
                part.copy_(codec.decode(payload, end - begin))
            sends += [self._send(message, client, tag, payload.numel()) for client in clients]
        for send in sends:
            send.wait()

    def _ask(self, bucket: torch.Tensor, spans: Sequence[Span], codec: AbstractCodec, tag: int) -> None:
        incoming = self._announce(spans, codec, SERVER, tag)
        sends = []
        for begin, end in spans:
            with self.meter.codec():
                payload = codec.encode(bucket[begin:end])
                message = frame(codec, payload)
            sends.append(self._send(message, SERVER, tag, payload.numel()))
        for (begin, end), (message, work) in zip(spans, incoming, strict=True):
            work.wait()
            with self.meter.codec():
                bucket[begin:end] = codec.decode(unframe(codec, message), end - begin)
        for send in sends:
            send.wait()

    def _announce(
        self, spans: Sequence[Span], codec: AbstractCodec, from_rank: int, tag: int
    ) -> list[tuple[torch.Tensor, dist.Work]]:
        """Post all receives from one rank: buffer and pending work of each segment."""
        sizes = [buffer_bytes(codec, end - begin) for begin, end in spans]
        room = self._buffer(tag, f"from-{from_rank}", sum(map(aligned, sizes)))
        offset, messages = 0, []
        for size in sizes:
            buffer = room[offset : offset + size]
            offset += aligned(size)
            messages.append((buffer, self._receive(buffer, from_rank, tag)))
        return messages
