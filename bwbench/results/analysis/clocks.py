"""Monotonic clocks of ranks on several hosts, laid over one another by what was found of them during the run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bwbench.records.schema import ComparedClock, LinkRecord


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks but rank 0's, beside that.

    Attributes:
        found: of each rank, in the order of time. Between two the clocks drift evenly; before the first and after the
            last one they are taken to stay apart as they were.
    """

    found: Mapping[int, Sequence[ComparedClock]]

    @classmethod
    def of_link(cls, link: LinkRecord | None) -> Clocks | None:
        """From link.json; None where nothing was compared, as on one machine."""
        found: dict[int, list[ComparedClock]] = {}
        for measured in (*link.achieved_during, *link.measurements) if link is not None else ():
            for one in measured.clocks:
                found.setdefault(one.rank, []).append(one)
        if not found:
            return None
        return cls({rank: sorted(ofs, key=lambda one: one.mono_s) for rank, ofs in found.items()})

    def covers(self, ranks: Sequence[int]) -> bool:
        """Whether all of these can be compared."""
        return all(rank == 0 or rank in self.found for rank in ranks)

    def on_first(self, rank: int, mono_s: float) -> float:
        """What rank 0's clock showed when that of ``rank`` showed ``mono_s``."""
        if rank == 0:
            return mono_s
        of_rank = self.found[rank]
        after = bisect_left(of_rank, mono_s, key=lambda one: one.mono_s + one.offset_s)
        if after == 0 or after == len(of_rank):
            return mono_s - of_rank[min(after, len(of_rank) - 1)].offset_s
        left, right = of_rank[after - 1], of_rank[after]
        began_s = left.mono_s + left.offset_s
        share = (mono_s - began_s) / (right.mono_s + right.offset_s - began_s)
        return left.mono_s + share * (right.mono_s - left.mono_s)

    @property
    def uncertainty_s(self) -> float:
        """The most by which times of two ranks may be misplaced, one beside the other, where they were compared.

        In between it is as good as their drift is even.
        """
        worst = sorted(max(one.uncertainty_s for one in of_rank) for of_rank in self.found.values())
        return sum(worst[-2:])
