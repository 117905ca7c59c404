"""Buffers of a model, such as the running means of BatchNorm: each rank's own, one rank's, or the mean of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.base.explain import nearest
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives.ring import ring_traffic

BufferWay: TypeAlias = Literal["local", "broadcast", "average"]
WAYS: tuple[BufferWay, ...] = get_args(BufferWay)


def check_way(way: str) -> BufferWay:
    """``way``; raises ConfigError with all the words where it is none."""
    for known in WAYS:
        if way == known:
            return known
    raise ConfigError(f"buffers {way!r} is not known.{nearest(way, WAYS)} Known: {', '.join(WAYS)}.")


class ModelBuffers:
    """The buffers of this rank's replica, and how ranks agree on them.

    Args:
        way: ``local`` leaves them alone; ``broadcast`` takes all those of one rank; ``average`` takes the mean of those
            in floating point, and leaves counters and masks alone.
        group: of the data network.
    """

    def __init__(self, model: nn.Module, way: BufferWay, group: dist.ProcessGroup) -> None:
        self._model, self._way, self._group = model, way, group

    @torch.no_grad()
    def agree(self, ranks: Sequence[int]) -> int:
        """Agree. Returns the bytes that this rank has sent. Collective.

        Args:
            ranks: whose values count: the mean of theirs, or those of the first.
        """
        if self._way == "local" or self._group.size() == 1:
            return 0
        return self._average(ranks) if self._way == "average" else self._broadcast(ranks[0])

    def _average(self, ranks: Sequence[int]) -> int:
        sent = 0
        floats = [buffer for buffer in self._model.buffers() if buffer.is_floating_point()]
        for dtype in (torch.float32, torch.float64):  # of 16 bits the mean is formed in 32
            buffers = [buffer for buffer in floats if (buffer.dtype == torch.float64) == (dtype == torch.float64)]
            if not buffers:
                continue
            flat = torch.cat([moved_to_host(buffer).reshape(-1).to(dtype) for buffer in buffers])
            if self._group.rank() not in ranks:
                flat.zero_()
            self._group.allreduce([flat]).wait()
            flat /= len(ranks)
            for buffer, mean in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
                buffer.copy_(mean.view(buffer.shape))
            size = self._group.size()
            sent += round(ring_traffic(size, [flat.nbytes]).payload_bytes_per_rank[self._group.rank()])
        return sent

    def _broadcast(self, source: int) -> int:
        buffers = [buffer for buffer in self._model.buffers() if buffer.numel()]
        if not buffers:
            return 0
        hosts = [moved_to_host(buffer) for buffer in buffers]
        flat = torch.cat([host.reshape(-1).view(torch.uint8) for host in hosts])  # of all types at once
        self._group.broadcast(flat, source).wait()
        for buffer, host, taken in zip(buffers, hosts, torch.split(flat, [host.nbytes for host in hosts]), strict=True):
            buffer.copy_(taken.clone().view(host.dtype).view(host.shape))  # a copy begins where its type may begin
        return flat.nbytes * messages_of_broadcast(self._group.rank(), source, self._group.size())


def messages_of_broadcast(rank: int, source: int, size: int) -> int:
    """How many copies ``rank`` sends in gloo's broadcast: a binomial tree, ranks furthest from one another first."""
    place = (rank - source) % size
    return sum(place % (2 << level) == 0 and place + (1 << level) < size for level in range(size.bit_length()))
