"""What every collective offers: the average of one bucket over all ranks of an explicit process group."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.methods.collectives.framing import buffer_bytes
from bwbench.methods.collectives.meter import Meter
from bwbench.methods.collectives.pacing import pace
from bwbench.methods.collectives.segments import Span, aligned
from bwbench.methods.compression.base import AbstractCodec, as_flat_fp32
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.compression.linear import AbstractLinearCodec
from bwbench.methods.compression.none import NoCompression
from bwbench.methods.traffic import Traffic
from bwbench.network.link import Link

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


class AbstractCollective(abc.ABC):
    """Decides how an average is formed: who sends what to whom. Built as ``cls(options)``, without torch.

    Several threads may call ``average`` at once, each with a tag of its own.

    Attributes:
        Config: the class of its options.
        needs_peers: makes no sense on one node.
        exact: every rank gets the mean over all ranks, the same bits; otherwise a mean over some of them.
        wraps_model: exchanges gradients inside a model wrapper of its own (torch's DDP), so that an algorithm that
            averages gradients leaves buckets and overlap to it.
        meter: counts what this rank sends and the time of its codec work.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    needs_peers: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    wraps_model: ClassVar[bool] = False

    def __init__(self, options: ComponentConfig | None = None) -> None:
        self.options = options if options is not None else self.Config()
        self.meter = Meter()
        self.rank = 0
        self.size = 1
        self.link: Link | None = None
        self._group: dist.ProcessGroup | None = None
        self._scratch: dict[tuple[int, str], torch.Tensor] = {}

    @classmethod
    @abc.abstractmethod
    def accepts(cls, codec: type[AbstractCodec]) -> str | None:
        """Why this collective cannot carry payloads of ``codec``; None where it can."""

    def check(self, num_nodes: int, codecs: Sequence[type[AbstractCodec]] = ()) -> str | None:
        """Why these options do not go with so many nodes or these codecs; None where they do. Pure.

        Asked when a cell is planned and, without codecs, by ``connect``.
        """
        return None

    @classmethod
    def remark(cls, codecs: Sequence[type[AbstractCodec]]) -> str | None:
        """What a plan should say about sending these codecs' payloads this way; None for most."""
        return None

    @abc.abstractmethod
    def traffic(self, num_nodes: int, bucket_payload_bytes: Sequence[int]) -> Traffic:
        """What one exchange of buckets with these payloads moves. Pure: knows nothing of the group."""

    @abc.abstractmethod
    def _average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        """``average`` for two ranks or more and an fp32 vector."""

    def connect(self, group: dist.ProcessGroup, link: Link | None = None) -> None:
        """Use ``group`` from now on, never the default one: it decides which network the payload crosses.

        Args:
            group: connected to all ranks.
            link: what that network is asked to be, for collectives that adapt to it; None where it is not known. Has
                no influence on results.

        Raises:
            ConfigError: the options make no sense with so many ranks.
        """
        reason = self.check(group.size()) if group.size() > 1 else None
        if reason is not None:
            raise ConfigError(reason)
        self._group = group
        self.link = link
        self.rank, self.size = group.rank(), group.size()
        pace(link, self._flows())

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group given to ``connect``."""
        if self._group is None:
            raise RuntimeError(f"{type(self).__name__} is not connected to a process group")
        return self._group

    def _flows(self) -> int:
        """How many connections this rank sends on at the same time; 0 leaves them as fast as TCP makes them."""
        return 0

    def average(self, bucket: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        """Replace ``bucket`` by its mean over all ranks, the same bits on every rank (but see ``exact``).

        Args:
            bucket: float tensor, equally long on all ranks; changed in place. An fp32 vector is worked on directly,
                anything else through a copy.
            codec: this rank's codec of this bucket. On one rank nothing is sent, so nothing is encoded.
            tag: marks the messages of this bucket; concurrent calls must not share it, all ranks must agree on it.

        Raises:
            RuntimeError: a peer is gone, or has sent nothing for the group's timeout.
        """
        if self.size == 1 or bucket.numel() == 0:
            return
        flat = as_flat_fp32(bucket)
        if codec.linear:
            self._average_linear(flat, codec, tag)
        else:
            self._average(flat, codec, tag)
        if flat.data_ptr() != bucket.data_ptr() or flat.dtype != bucket.dtype:
            bucket.copy_(flat.view(bucket.shape))

    def _average_linear(self, flat: torch.Tensor, codec: AbstractCodec, tag: int) -> None:
        """Let a linear codec form the mean; its messages are averaged here as dense vectors."""
        message_codec = codec.inner if codec.inner is not None else NoCompression()
        work_began = time.monotonic()

        def average_message(message: torch.Tensor) -> None:
            nonlocal work_began
            self.meter.codec_worked(work_began, time.monotonic())
            self._average(message, message_codec, tag)
            work_began = time.monotonic()

        if isinstance(codec, ErrorFeedback):
            mean = codec.average(flat, average_message)
        else:
            assert isinstance(codec, AbstractLinearCodec)
            mean, _ = codec.average(flat, average_message)
        flat.copy_(mean)
        self.meter.codec_worked(work_began, time.monotonic())

    def reset(self) -> None:  # noqa: B027 (most remember nothing)
        """Forget what was remembered from earlier exchanges (after the warm-up)."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What is remembered from one exchange to the next, e.g. residuals of a way back; empty for most."""
        return {}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")

    def _send(self, payload: torch.Tensor, to_rank: int, tag: int, payload_bytes: int | None = None) -> dist.Work:
        """Start sending; ``payload`` stays as it is until the returned work is waited for."""
        self.meter.sent(payload.numel() if payload_bytes is None else payload_bytes)
        return self.group.send([payload], to_rank, tag)

    def _receive(self, buffer: torch.Tensor, from_rank: int, tag: int) -> dist.Work:
        """Start receiving. gloo sends nothing before the receiver has announced its buffer: post early.

        A message may be shorter than ``buffer``: its tail stays as it was.
        """
        return self.group.recv([buffer], from_rank, tag)

    def _receive_all(
        self, spans: Sequence[Span], codec: AbstractCodec, from_rank: int, tag: int
    ) -> list[tuple[torch.Tensor, dist.Work]]:
        """Post all receives from one rank: buffer and pending work of the message of each span."""
        sizes = [buffer_bytes(codec, end - begin) for begin, end in spans]
        room = self._buffer(tag, f"from-{from_rank}", sum(map(aligned, sizes)))
        offset, messages = 0, []
        for size in sizes:
            buffer = room[offset : offset + size]
            offset += aligned(size)
            messages.append((buffer, self._receive(buffer, from_rank, tag)))
        return messages

    def _buffer(self, tag: int, purpose: str, num_bytes: int) -> torch.Tensor:
        """uint8 of shape [num_bytes], kept for the next exchange of the same bucket."""
        import torch

        buffer = self._scratch.get((tag, purpose))
        if buffer is None or buffer.numel() < num_bytes:
            buffer = self._scratch[tag, purpose] = torch.empty(num_bytes, dtype=torch.uint8)
        return buffer[:num_bytes]
