"""Some ranks of a process group, numbered anew, without another group and its connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


class SubGroup:
    """What a collective needs of a group: its rank, its size, and messages from rank to rank.

    Messages keep their tags, so a tag that is in use inside must not be used by the same pair of ranks outside.

    Args:
        group: of all ranks.
        ranks: members by their rank in ``group``; the place here is the rank inside.
    """

    def __init__(self, group: dist.ProcessGroup, ranks: Sequence[int]) -> None:
        self._group, self._ranks = group, list(ranks)

    def rank(self) -> int:
        """Of this process, inside. Raises ValueError where it is no member."""
        return self._ranks.index(self._group.rank())

    def size(self) -> int:
        """Number of members."""
        return len(self._ranks)

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> dist.Work:
        """Start sending to the member ``rank``."""
        return self._group.send(tensors, self._ranks[rank], tag)

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> dist.Work:
        """Start receiving from the member ``rank``."""
        return self._group.recv(tensors, self._ranks[rank], tag)
