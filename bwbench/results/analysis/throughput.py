"""How many samples a second arms train on, beside a baseline: what is left to compare where cells have no target.

So it is of models of shapes. Beside one node alone the ratio says whether more nodes are worth it: whether together
they make more samples a second. A round of a method that averages now and then is in the mean of its steps, as often
as the training had one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bwbench.results.analysis.arm_cells import ArmCells, Condition, ordered
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival, Estimate, estimate, number


@dataclass(frozen=True)
class RateRow:
    """One arm beside the baseline by samples a second; a row without ``ratio`` is the baseline's own, or has none.

    Attributes:
        nodes: that make them together.
        ratio: samples a second of the arm over those of the baseline.
        sample, step: seconds for a sample of all nodes together, and for a step on average, rounds included.
        num: the smaller of the two arms' numbers of repeats.
        host_bound: the machine, and not the link alone, decides what a step of the two takes.
    """

    experiment: str
    condition: Condition
    algorithm: str
    baseline: str
    nodes: int
    ratio: Ratio | None
    sample: Estimate
    step: Estimate
    num: int
    host_bound: bool

    @property
    def samples_per_s(self) -> float:
        """Geometric mean over the repeats."""
        return 1 / self.sample.value


def seconds_a_sample(rows: Iterable[Mapping[str, object]]) -> dict[int, Arrival]:
    """Each seed's time of all steps over the samples of all nodes, of cells without a target that ran; of rows of
    ``cells.cell_row``. It is the training clock, but for methods whose steps wait for nobody (``steps_clock_s``)."""
    return _clock_over("samples", rows)


def rate_rows(
    experiment: str, condition: Condition, by: str, baseline: str, arms: Mapping[str, ArmCells]
) -> Iterator[RateRow]:
    """A row an arm, the baseline's own included: what it makes is what others have to be worth.

    Args:
        arms: with ``seconds_a_sample`` as their times.
    """
    reference = arms.get(baseline)
    others = reference.arrivals if reference is not None else {}
    for name, arm in arms.items():
        ratio = None if name == baseline else ratio_of(others, arm.arrivals)
        sample, step = (estimate(list(found.values())) for found in (arm.arrivals, _clock_over("steps", arm.rows)))
        num = sample.num if ratio is None else ratio.num
        host_bound = arm.host_bound or (reference is not None and reference.host_bound)
        its = ordered(condition, by, arm)
        nodes = int(str(arm.rows[0]["nodes"]))
        yield RateRow(experiment, its, name, baseline, nodes, ratio, sample, step, num, host_bound)


def _clock_over(what: str, rows: Iterable[Mapping[str, object]]) -> dict[int, Arrival]:
    found: dict[int, Arrival] = {}
    for row in rows:
        clock_s, taken = number(row.get("steps_clock_s")), number(row.get(what))
        if not isinstance(row.get("target_metric"), str) and clock_s and taken:
            found.setdefault(int(number(row["seed"]) or 0), Arrival(clock_s / taken))
    return found
