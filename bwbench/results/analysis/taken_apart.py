"""A ratio of times taken apart: how much of it is the time of a step, how much the number of samples to the target.

Time to target is the samples that it takes times the time that a sample takes. A method that sends less has shorter
steps and may need more samples; a collective of ours beside one of torch's has other steps and the same samples. So
``ratio = step_ratio x samples_ratio``, exactly where every repeat arrives; where some are censored each of the three
is fitted on its own. Each part has its interval, by the rule that ratios of times have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival


@dataclass(frozen=True)
class TakenApart:
    """Both reference over arm: above 1 the arm has the shorter steps, and needs the fewer samples.

    Attributes:
        step: of the training time that a sample takes; with equal global batches, of a step.
        samples: of the samples to the target.
    """

    step: Ratio
    samples: Ratio


def take_apart(reference: Mapping[int, Arrival], arm: Mapping[int, Arrival]) -> TakenApart | None:
    """The two factors of ``ratio_of(reference, arm)``; None where records do not say how many samples were taken."""
    if not all(arrival.samples for arrival in (*reference.values(), *arm.values())):
        return None
    step = ratio_of(*({seed: _time_of_a_sample(one) for seed, one in side.items()} for side in (reference, arm)))
    samples = ratio_of(in_samples(reference), in_samples(arm))
    return None if step is None or samples is None else TakenApart(step, samples)


def in_samples(arrivals: Mapping[int, Arrival]) -> dict[int, Arrival]:
    """The same arrivals with samples in the place of seconds; those without are left out."""
    return {seed: _samples(one) for seed, one in arrivals.items() if one.samples}


def _time_of_a_sample(arrival: Arrival) -> Arrival:
    """Known of repeats that did not arrive, too; at which evaluation the target was met says nothing about it."""
    assert arrival.samples
    return replace(arrival, time_s=arrival.at_least / arrival.samples, censored_at_s=None, grid_s=0.0)


def _samples(arrival: Arrival) -> Arrival:
    """Samples in the place of seconds; no timing run is in them."""
    assert arrival.samples
    found = replace(arrival, timing_variance=0.0)
    if arrival.time_s is None:
        return replace(found, censored_at_s=arrival.samples)
    share = min(arrival.grid_s, arrival.or_infinity) / arrival.or_infinity
    return replace(found, time_s=arrival.samples, grid_s=share * arrival.samples)
