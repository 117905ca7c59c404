"""What ranks of one host say from device to device, where each has a GPU of its own: sums of shards, and shards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bwbench.methods.collectives.transport import Span
from bwbench.methods.deferred import dist, torch


class HostDevices:
    """The ranks of one host, over a process group of theirs that takes tensors where they lie: NCCL's.

    Exchanges have no tags: they are matched by their order, which has to be the same on all ranks of the host.

    Args:
        group: of the ranks of this host alone, in the order of their places.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.size, self.place = group.size(), group.rank()

    def summed(self, values: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """This rank's shard of the sum over the host. The order of summation is the group's own.

        Args:
            values: a contiguous vector on the device, equally long on all ranks.
            spans: elements of each rank's shard; their lengths differ by one at most.
        """
        rows = self._rows(values, spans, filled=True)
        shard = values.new_empty(rows.shape[1])
        self._group.reduce_scatter([shard], [list(rows)]).wait()
        begin, end = spans[self.place]
        return shard[: end - begin]

    def spread(self, shard: torch.Tensor, values: torch.Tensor, spans: Sequence[Span]) -> None:
        """Put the shard of every rank where it belongs in ``values``, on all of them; arguments as of ``summed``."""
        rows = self._rows(values, spans, filled=False)
        if shard.numel() < rows.shape[1]:  # the group takes tensors of one length
            shard = torch.nn.functional.pad(shard, (0, rows.shape[1] - shard.numel()))
        self._group.allgather([list(rows)], [shard.contiguous()]).wait()
        if rows.data_ptr() != values.data_ptr():
            for row, (begin, end) in zip(rows, spans, strict=True):
                values[begin:end] = row[: end - begin]

    def _rows(self, values: torch.Tensor, spans: Sequence[Span], *, filled: bool) -> torch.Tensor:
        """A row for each shard: the memory of ``values`` itself where all are equally long."""
        lengths = {end - begin for begin, end in spans}
        if len(lengths) == 1:
            return values.view(len(spans), -1)
        rows = values.new_zeros(len(spans), max(lengths))
        if filled:
            for row, (begin, end) in zip(rows, spans, strict=True):
                row[: end - begin] = values[begin:end]
        return rows


Gpu = tuple[str, str]  # the host's name, and the GPU's UUID


def each_has_its_own(gpus: Sequence[Gpu | None], hosts: Sequence[range]) -> bool:
    """Whether ranks of each host are on one machine, on a GPU each, as NCCL wants it; and hosts are all full. Pure.

    Args:
        gpus: by rank; None where it can use none by NCCL.
        hosts: the ranks of each, in their order.
    """
    if not hosts or any(len(a) != len(b) for a, b in pairwise(hosts)):
        return False
    for host in hosts:
        found = {gpus[rank] for rank in host}
        if None in found or len(found) < len(host) or len({name for name, _ in filter(None, found)}) > 1:
            return False
    return True
