"""A few bytes from every member to every other one, all at the same time: one latency, and nobody in the middle."""

from __future__ import annotations

from dataclasses import dataclass

from bwbench.methods.collectives.transport import Members
from bwbench.methods.deferred import dist, torch


@dataclass(frozen=True)
class Telling:
    """What is on its way.

    Attributes:
        said: [members, length of one message]; this rank's own is there, the others' are after ``wait``.
    """

    said: torch.Tensor
    under_way: tuple[dist.Work, ...]

    def wait(self) -> torch.Tensor:
        """What every member has said, by place. Raises RuntimeError where one of them is gone."""
        for work in self.under_way:
            work.wait()
        return self.said


def tell_all(group: dist.ProcessGroup | None, members: Members, own: torch.Tensor, tag: int) -> Telling:
    """Send ``own`` to all other members and receive theirs, of equal length and type. Computing may go on meanwhile.

    Messages of one tag are matched in their order: all members tell each other equally often.

    Args:
        group: None where this rank is alone.
    """
    ranks, place, size = members.ranks, members.place, members.size
    said = own.new_zeros(size, own.numel())
    said[place] = own
    if size == 1:
        return Telling(said, ())
    assert group is not None
    peers = [(place + distance) % size for distance in range(1, size)]
    under_way = [group.recv([said[peer]], ranks[peer], tag) for peer in peers]
    under_way += [group.send([said[place]], ranks[peer], tag) for peer in peers]
    return Telling(said, tuple(under_way))
