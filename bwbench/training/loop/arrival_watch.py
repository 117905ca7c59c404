"""When a rank looks at the test split on its way: while a fit of the validation curve may still cross a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from bwbench.experiment.config.cell_config import TargetConfig

MOVES = 5  # from one evaluation to the next: the largest of so many says what the next one may do
BEHIND = 9  # evaluations: once their mean meets a target, a fit has mostly crossed it (benchmarks/arrival.py)


class SavedWatch(TypedDict):
    """What a checkpoint keeps of ``ArrivalWatch``."""

    recent: list[dict[str, float]]
    met: list[bool]


@dataclass
class ArrivalWatch:
    """From the evaluation before a target may be met until the mean of nine meets it.

    An arrival by the fit lies between two evaluations, and the test split has to be known at both. The first of them
    does not meet the target: the next one may, as far as the metric has moved lately. A metric that flickers crosses
    its target several times before the fit does. The same on all ranks, because all have the same means.

    Attributes:
        recent: metrics of the last evaluations.
        met: of each target, whether one evaluation has met it.
    """

    recent: list[dict[str, float]] = field(default_factory=list)
    met: list[bool] = field(default_factory=list)

    @classmethod
    def saved(cls, state: SavedWatch) -> ArrivalWatch:
        """As ``state_dict`` gave it; of checkpoints of before with more in it."""
        return cls(state["recent"], state["met"])

    def is_due(self, targets: Sequence[TargetConfig], mean: Mapping[str, float | None]) -> bool:
        """Take in a validation evaluation; whether one on the test split shall join it."""
        self.recent = [*self.recent, {name: value for name, value in mean.items() if value is not None}][-BEHIND:]
        self.met = self.met or [False] * len(targets)
        near = [self._is_near(index, target) for index, target in enumerate(targets)]  # each takes it in
        return any(near)

    def _is_near(self, index: int, target: TargetConfig) -> bool:
        metric = target.metric
        values = [one[metric] for one in self.recent if metric in one]
        if not values or metric not in self.recent[-1]:
            return False
        last = values[-1]
        is_first, self.met[index] = not self.met[index], self.met[index] or meets(metric, last, target.value)
        lately = values[-MOVES - 1 :]
        reach = max((abs(one - other) for one, other in zip(lately, lately[1:], strict=False)), default=0.0)
        is_behind = len(values) == BEHIND and meets(metric, sum(values) / BEHIND, target.value)
        may_be_met = meets(metric, last - reach if metric == "loss" else last + reach, target.value)
        return (is_first and self.met[index]) or (may_be_met and not is_behind)

    def state_dict(self) -> SavedWatch:
        """Everything, as copies."""
        return {"recent": [dict(one) for one in self.recent], "met": list(self.met)}


def meets(metric: str, value: float, target: float) -> bool:
    """Whether ``value`` is as good as ``target``: losses fall, everything else rises."""
    return value <= target if metric == "loss" else value >= target
