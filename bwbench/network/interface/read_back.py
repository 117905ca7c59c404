"""Is everything there as it was asked for? The kernel is asked itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.plan import MakeIfb, Step
from bwbench.network.interface.settings import INGRESS, ROOT, Filter, HtbClass, Qdisc


@dataclass(frozen=True)
class _Found:
    qdiscs: list[Qdisc]
    classes: list[HtbClass]
    filters: list[Filter]

    @classmethod
    def on(cls, kernel: Kernel, index: int) -> _Found:
        qdiscs = kernel.qdiscs(index)
        with_filters = {qdisc.handle for qdisc in qdiscs if qdisc.handle == INGRESS or qdisc.parent == ROOT}
        filters = [found for parent in with_filters if parent for found in kernel.filters(index, parent)]
        return cls(qdiscs, kernel.classes(index), filters)

    def has(self, what: Qdisc | HtbClass | Filter) -> bool:
        if isinstance(what, Qdisc):
            return any(what.same_as(found) for found in self.qdiscs)
        if isinstance(what, HtbClass):
            return what in self.classes
        return any(what.same_as(found) for found in self.filters)


def missing(kernel: Kernel, steps: Sequence[Step]) -> list[str]:
    """What of ``steps`` is not there as it was asked for, in the words of ``tc``; empty where all is."""
    lacking = []
    found: dict[str, _Found] = {}
    for step in steps:
        name = step.name if isinstance(step, MakeIfb) else step.dev
        index = kernel.index_of(name)
        if index is not None and name not in found:
            found[name] = _Found.on(kernel, index)
        if name not in found or not (isinstance(step, MakeIfb) or found[name].has(step.what)):
            lacking.append(step.commands()[0])
    return lacking
