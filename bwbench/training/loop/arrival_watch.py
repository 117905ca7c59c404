"""When a rank looks at the test split on its way: around its arrival at each target, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from bwbench.experiment.config.cell_config import TargetConfig

IN_A_ROW = 3  # evaluations whose mean no flicker of one of them decides


class SavedWatch(TypedDict):
    """What a checkpoint keeps of ``ArrivalWatch``."""

    recent: list[dict[str, float]]
    met: list[bool]
    behind: list[bool]


@dataclass
class ArrivalWatch:
    """From the first validation evaluation that meets a target until the mean of three in a row does.

    A fit of the curve crosses the target thereabouts. Of a smooth curve that is one evaluation a target. The same on
    all ranks, because all have the same means.

    Attributes:
        recent: metrics of the last evaluations.
        met: of each target, whether it has been met by one evaluation; behind: by the mean of three.
    """

    recent: list[dict[str, float]] = field(default_factory=list)
    met: list[bool] = field(default_factory=list)
    behind: list[bool] = field(default_factory=list)

    def is_due(self, targets: Sequence[TargetConfig], mean: Mapping[str, float | None]) -> bool:
        """Take in a validation evaluation; whether one on the test split shall join it."""
        self.recent = [*self.recent, {name: value for name, value in mean.items() if value is not None}][-IN_A_ROW:]
        self.met, self.behind = self.met or [False] * len(targets), self.behind or [False] * len(targets)
        due = False
        for index, target in enumerate(targets):
            values = [one[target.metric] for one in self.recent if target.metric in one]
            if self.behind[index] or not values:
                continue
            self.met[index] |= meets(target.metric, values[-1], target.value)
            self.behind[index] = meets(target.metric, sum(values) / len(values), target.value)
            due |= self.met[index]
        return due

    def state_dict(self) -> SavedWatch:
        """Everything, as copies."""
        return {"recent": [dict(one) for one in self.recent], "met": list(self.met), "behind": list(self.behind)}


def meets(metric: str, value: float, target: float) -> bool:
    """Whether ``value`` is as good as ``target``: losses fall, everything else rises."""
    return value <= target if metric == "loss" else value >= target
