"""What ranks of one host say from device to device, where each has a GPU of its own: sums of shards, and shards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from bwbench.methods.collectives.transport import Span, split
from bwbench.methods.deferred import dist, torch
from bwbench.methods.devices import device_of

LOOK_S = 1e-4  # between two looks at what a device does


class HostDevices:
    """The ranks of one host, over a process group of theirs that takes tensors where they lie: NCCL's.

    Exchanges have no tags: they are matched by their order, which has to be the same on all ranks of the host.

    Args:
        group: of the ranks of this host alone, in the order of their places.
        limit_s: of an exchange. NCCL itself ends the process when its own limit is over, so that has to be longer.
    """

    def __init__(self, group: dist.ProcessGroup, limit_s: float) -> None:
        self._group, self._limit_s = group, limit_s
        self.size, self.place = group.size(), group.rank()

    def summed(self, values: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """This rank's shard of the sum over the host. The order of summation is the group's own.

        Args:
            values: a contiguous vector on the device, equally long on all ranks.
            spans: elements of each rank's shard; their lengths differ by one at most.

        Raises:
            RuntimeError: a rank of the host does not take part within the limit.
        """
        rows = self._rows(values, spans, filled=True)
        shard = values.new_empty(rows.shape[1])
        self._wait(self._group._reduce_scatter_base(shard, rows.view(-1), dist.ReduceScatterOptions()), shard)
        begin, end = spans[self.place]
        return shard[: end - begin]

    def spread(self, shard: torch.Tensor, values: torch.Tensor, spans: Sequence[Span]) -> None:
        """Put the shard of every rank where it belongs in ``values``, on all of them; all else as of ``summed``."""
        rows = self._rows(values, spans, filled=False)
        if shard.numel() < rows.shape[1]:  # the group takes tensors of one length
            shard = torch.nn.functional.pad(shard, (0, rows.shape[1] - shard.numel()))
        self._wait(self._group._allgather_base(rows.view(-1), shard.contiguous()), rows)
        if rows.data_ptr() != values.data_ptr():
            for row, (begin, end) in zip(rows, spans, strict=True):
                values[begin:end] = row[: end - begin]

    def work_on(self, device: torch.device) -> bool:
        """Whether an exchange of some values comes to what it should within the limit. Collective, in the host."""
        values = torch.arange(2 * self.size + 1, dtype=torch.float32, device=device)
        expected, spans = self.size * values, split(0, len(values), self.size)
        try:
            self.spread(self.summed(values, spans), values, spans)
        except RuntimeError:
            return False
        return torch.equal(values, expected)

    def _wait(self, work: dist.Work, values: torch.Tensor) -> None:
        """Until the device has done it: NCCL's own ``wait`` waits for nothing here, and its limit ends the process."""
        work.wait()
        mark, deadline = device_of(values).mark(), time.monotonic() + self._limit_s
        while not mark.reached():
            if time.monotonic() > deadline:
                give_up(self._group)  # else whatever is told to the device after this waits as well
                raise RuntimeError(f"a rank of this host has not taken part in an exchange for {self._limit_s:g} s")
            time.sleep(LOOK_S)

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


def give_up(group: dist.ProcessGroup) -> None:
    """End a group of NCCL without waiting for its ranks, where torch can do that; else its own limit does."""
    if (abort := getattr(group, "abort", None)) is not None:
        with suppress(RuntimeError):
            abort()


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
