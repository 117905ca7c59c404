"""All send to one node, which averages and sends back: the central way."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.model_shapes import ELEMENT_BYTES
from bwbench.methods.collectives.scatter_gather import AbstractKeepingParts
from bwbench.methods.collectives.transport import USUAL, ExchangeMemory, Round, Span, cut, frame, unframe
from bwbench.methods.compression.codec import AbstractCodec, NoCompression
from bwbench.methods.deferred import torch
from bwbench.methods.traffic import Traffic


class ParameterServerConfig(ComponentConfig):
    """Options of ``parameter-server``.

    Attributes:
        server: rank of the node that averages for all.
    """

    server: int = Field(0, ge=0)


class ParameterServer(AbstractKeepingParts):
    """One rank is the server, and trains as well; by its link it is one of the stations, or wired to the access point.

    Clients send what their codec gives; the server adds up in the order of the ranks (its own contribution takes the
    same way through the codec), divides, encodes the mean and sends it back. All, the server included, adopt what the
    mean decodes to: replicas are bit-equal. Codecs that can be cut are sent in segments, so that on a full-duplex link
    the mean of the first travels back while the last still arrives.

    A biased codec loses something on the way back too; the server's second codec has a residual of its own for that
    (as in DoubleSqueeze, Tang et al. 2019).
    """

    Config = ParameterServerConfig
    options: ParameterServerConfig
    virtual = True
    topology = "server"
    central = True

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """The server has to be one of the nodes."""
        if self.options.server < num_nodes:
            return None
        return f"server {self.options.server} is none of the ranks 0 to {num_nodes - 1}"

    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """One payload each way at a client, N-1 each way at the server, in two rounds.

        The way back begins while the rest still arrives; only the mean of the last segment has nothing to overlap with.
        """
        payload = float(sum(bucket_payload_bytes))
        each = tuple((num_nodes - 1 if rank == self.options.server else 1) * payload for rank in range(num_nodes))
        last = bucket_payload_bytes[-1] if bucket_payload_bytes else 0
        serial = (num_nodes - 1) * last / USUAL.count(last)
        messages = 2 * (num_nodes - 1) * sum(map(USUAL.count, bucket_payload_bytes))
        return Traffic(each, each, 2 * len(bucket_payload_bytes), serial, messages=messages, peers="hub")

    def _memory(self, num_nodes: int, num_elements: int, codec: AbstractCodec) -> ExchangeMemory:
        """At a client the mean, at the server all contributions, and the residual of the way back."""
        payload, dense = codec.payload_bytes(num_elements), ELEMENT_BYTES * num_elements
        passing = 0.0 if isinstance(codec, NoCompression) else dense + 2 * payload
        back = 0.0 if codec.sums_on_ring else codec.kept_copies * dense
        return ExchangeMemory(payload, passing, hubs=1, hub_kept=(num_nodes - 2) * payload, hub_remembered=back)

    def _flows(self, num_members: int) -> int:
        return num_members - 1  # the clients share the way to the server, the server the way to them

    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, round_: Round) -> None:
        spans = cut(0, bucket.numel(), codec) if codec.sums_on_ring else [(0, bucket.numel())]
        if round_.place == self.options.server:
            self._serve(bucket, spans, codec, round_)
        else:
            self._ask(bucket, spans, codec, round_)

    def _serve(self, bucket: torch.Tensor, spans: Sequence[Span], codec: AbstractCodec, round_: Round) -> None:
        clients = [place for place in range(round_.size) if place != self.options.server]
        answer_codec = self.answer(codec, round_.tag)
        incoming = {client: self.transport.receive_all(spans, codec, client, round_) for client in clients}
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
                payload = answer_codec.encode(total.div_(round_.size))
                message = frame(codec, payload)
                part.copy_(codec.decode(payload, end - begin))
            sends += [self.transport.send(message, client, round_, payload.numel()) for client in clients]
        for send in sends:
            send.wait()

    def _ask(self, bucket: torch.Tensor, spans: Sequence[Span], codec: AbstractCodec, round_: Round) -> None:
        incoming = self.transport.receive_all(spans, codec, self.options.server, round_)
        sends = []
        for begin, end in spans:
            with self.meter.codec():
                payload = codec.encode(bucket[begin:end])
                message = frame(codec, payload)
            sends.append(self.transport.send(message, self.options.server, round_, payload.numel()))
        for (begin, end), (message, work) in zip(spans, incoming, strict=True):
            work.wait()
            with self.meter.codec():
                bucket[begin:end] = codec.decode(unframe(codec, message), end - begin)
        for send in sends:
            send.wait()
