"""Which trainings a search needs, by what those before have come to, and the rate that they point at. Pure.

Every rate of the grid trains once. Where a method's own options are tuned too, every other variant trains at the three
rates around the best. What is left of the budget goes, seed by seed, to the five best rates of the best variant. A
parabola over log rate, through the means of their seeds, says where the best rate lies. Nobody gets more trainings than
another: the budget is counted before the first of them.

One seed at each rate decides by luck among neighbours, and a race of halves throws out methods whose curves are noisy;
benchmarks/tuning.py has how far each is from the best rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

SEEDS = 3  # of each of the best rates
BEST = 5  # rates that get them
AROUND = 3  # rates that every other variant trains at
LEAST = 3  # rates of a grid; a parabola has three numbers
GROWTH = 4  # powers of two by which a grid may grow at either end


@dataclass(frozen=True)
class Training:
    """One training of a search.

    Attributes:
        variant: number of the set of options; 0 is what the experiment gives.
        number: of its seed, from 0.
    """

    rate: float
    variant: int = 0
    number: int = 0


@dataclass(frozen=True)
class Judgement:
    """What a training came to: samples until it arrived, its loss at the end; None where there is none."""

    samples: float | None = None
    loss: float | None = None
    diverged: bool = False

    @property
    def cost(self) -> tuple[float, float]:
        """Samples to the target, then the loss. A training that diverged is worth nothing, whatever came before."""
        if self.diverged:
            return math.inf, math.inf
        return (math.inf if self.samples is None else self.samples, math.inf if self.loss is None else self.loss)


Known = Callable[[Training], Judgement | None]  # None where it has not ended, or says nothing about its rate
_WORTHLESS = (math.inf, math.inf)


@dataclass(frozen=True)
class BestRate:
    """The rate that a search has found.

    Attributes:
        rate: with three digits; between those that were trained where a parabola says so.
        samples, loss: expected there, of a usual seed; None where the target was not reached, and where it was.
        on_edge: it is the first or the last of the grid, so that a better one may lie beyond: no result.
        fitted: by a parabola; else the best of the rates that were trained.
    """

    rate: float
    variant: int
    samples: float | None
    loss: float | None
    on_edge: bool
    fitted: bool


@dataclass(frozen=True)
class State:
    """How far a search is.

    Attributes:
        trainings: needed so far, those without a judgement included, in the order in which they are asked for.
        missing: those without; empty once the search has ended.
        best: None until then, and where nothing came of any training.
    """

    trainings: tuple[Training, ...]
    missing: tuple[Training, ...]
    best: BestRate | None = None


def budget_of(num_rates: int, variants: int = 1, seeds: int = SEEDS) -> int:
    """Trainings of every search of an experiment: those of the arm with the most variants."""
    return num_rates + AROUND * (variants - 1) + min(BEST, num_rates) * (seeds - 1)


def grown(grid: Sequence[float], low: int, high: int) -> tuple[float, ...]:
    """The grid with so many more rates below and above, each half or twice the one before."""
    below = [grid[0] / 2.0**power for power in range(low, 0, -1)]
    return (*below, *grid, *(grid[-1] * 2.0**power for power in range(1, high + 1)))


def outermost(grid: Sequence[float], known: Known) -> int:
    """-1 or 1 where the first or the last rate is better than all inside, once all have trained; 0 else."""
    found = [known(Training(rate)) for rate in grid]
    costs = [one.cost for one in found if one is not None]
    if len(costs) < len(grid) or min(costs[0], costs[-1]) >= min(costs[1:-1]):
        return 0
    return -1 if costs[0] <= costs[-1] else 1


def follow(grid: Sequence[float], variants: int, budget: int, limit_samples: float, known: Known) -> State:
    """Follow a search as far as judgements are known.

    Args:
        grid: rates, rising, ``LEAST`` or more.
        variants: sets of options, that of the experiment included.
        budget: trainings in all, as ``budget_of`` counts them.
        limit_samples: after which a training gave up, which is what one counts as that did not arrive.
    """
    asked = [Training(rate) for rate in grid]
    if missing := _missing(asked, known):
        return State(tuple(asked), missing)
    judged = _Judged(known, limit_samples)
    order = sorted(grid, key=lambda rate: (judged.cost(Training(rate)), _off(grid, rate)))
    if judged.cost(Training(order[0])) == _WORTHLESS:
        return State(tuple(asked), ())  # it diverges everywhere
    variant, rates = 0, list(grid)
    if variants > 1:
        around = _around(grid, order[0])
        asked += [Training(rate, number) for number in range(1, variants) for rate in around]
        if missing := _missing(asked, known):
            return State(tuple(asked), missing)
        variant = min(range(variants), key=lambda number: judged.over(around, number))
        rates = rates if variant == 0 else _widened(around, grid, variant, budget - len(asked), judged)
        asked += [training for rate in rates if (training := Training(rate, variant)) not in asked]
        if missing := _missing(asked, known):
            return State(tuple(asked), missing)
    costs = {rate: judged.cost(Training(rate, variant)) for rate in rates}
    sound = [rate for rate in rates if costs[rate] != _WORTHLESS]
    best = sorted(sound, key=lambda rate: (costs[rate], _off(grid, rate)))[:BEST]
    again = range(budget - len(asked))
    asked += [Training(best[turn % len(best)], variant, 1 + turn // len(best)) for turn in again]
    if missing := _missing(asked, known):
        return State(tuple(asked), missing)
    seeds = {rate: [t for t in asked if (t.rate, t.variant) == (rate, variant)] for rate in best}
    by_rate = {rate: [one for t in trainings if (one := known(t)) is not None] for rate, trainings in seeds.items()}
    return State(tuple(asked), (), decide(by_rate, grid, variant, limit_samples))


def decide(
    by_rate: Mapping[float, Sequence[Judgement]], grid: Sequence[float], variant: int, limit_samples: float
) -> BestRate | None:
    """The rate that several seeds at each of some rates point at; None where trainings diverged at all of them.

    Where at least half of the seeds of three rates arrive, a parabola through the means of log samples decides, one
    that did not arrive counting as the limit; where fewer rates do, the best of these; where none does, the losses.
    """
    wild = [rate for rate, found in by_rate.items() if any(one.diverged for one in found)]
    sound = {rate: found for rate, found in by_rate.items() if found and rate not in wild}
    # What has diverged once may do so again, and higher rates more likely still.
    safe = {rate: found for rate, found in sound.items() if not wild or rate < min(wild)} or sound
    arrive = {rate: found for rate, found in safe.items() if _share_arrived(found) >= 0.5}
    if arrive:
        values = {rate: _mean_log_samples(found, limit_samples) for rate, found in arrive.items()}
    else:
        values = {rate: _mean_log_loss(found) for rate, found in safe.items()}
        values = {rate: value for rate, value in values.items() if math.isfinite(value)}
    if not values:
        return None
    vertex = vertex_of(values)
    rate, value = vertex or min(values.items(), key=lambda item: (item[1], _off(grid, item[0])))
    rate = float(f"{rate:.3g}") if vertex else rate
    return BestRate(
        rate=rate,
        variant=variant,
        samples=math.exp(value) if arrive else None,
        loss=None if arrive else math.exp(value),
        on_edge=rate <= float(f"{grid[0]:.3g}") or rate >= float(f"{grid[-1]:.3g}"),
        fitted=vertex is not None,
    )


def vertex_of(values: Mapping[float, float]) -> tuple[float, float] | None:
    """Lowest point of the least-squares parabola over log rate, not beyond the outermost rates, and its value there.

    None where there are fewer than three rates, or the parabola has no lowest point.
    """
    if len(values) < LEAST:
        return None
    logs = {rate: math.log2(rate) for rate in values}
    middle = fmean(logs.values())
    x, y = [logs[rate] - middle for rate in values], list(values.values())
    # Orthogonal polynomials: 1, x and x^2 less its projections on these.
    square = fmean(a * a for a in x)
    slope = sum(a * b for a, b in zip(x, y, strict=True)) / (len(x) * square)
    skew = fmean(a**3 for a in x) / square
    second = [a * a - skew * a - square for a in x]
    size = sum(s * s for s in second)
    curve = sum(s * b for s, b in zip(second, y, strict=True)) / size if size > 1e-9 else 0.0
    if curve <= 1e-12:
        return None
    at = (curve * skew - slope) / (2 * curve)
    at = min(max(at, min(x)), max(x))
    return 2.0 ** (middle + at), fmean(y) + slope * at + curve * (at * at - skew * at - square)


@dataclass(frozen=True)
class _Judged:
    """Trainings that have all ended."""

    known: Known
    limit_samples: float

    def cost(self, training: Training) -> tuple[float, float]:
        found = self.known(training)
        return _WORTHLESS if found is None else found.cost

    def over(self, rates: Sequence[float], variant: int) -> tuple[float, float]:
        """Mean cost of a variant over some rates; of two that cost the same the former is taken."""
        found = [one for rate in rates if (one := self.known(Training(rate, variant))) is not None]
        if all(one.diverged for one in found):
            return _WORTHLESS
        sound = [one for one in found if not one.diverged]
        lost = len(found) - len(sound)  # as bad as one that never arrives
        samples = _mean_log_samples([*sound, *[Judgement()] * lost], self.limit_samples)
        return samples, _mean_log_loss(sound)


def _missing(asked: Sequence[Training], known: Known) -> tuple[Training, ...]:
    return tuple(training for training in asked if known(training) is None)


def _off(grid: Sequence[float], rate: float) -> float:
    """How far a rate is from the middle of the grid: of two that cost the same the usual one is taken."""
    return abs(math.log(rate * rate / (grid[0] * grid[-1])))


def _around(grid: Sequence[float], rate: float) -> list[float]:
    """The three rates around one, the outermost three where that is the first or the last."""
    first = min(max(list(grid).index(rate) - 1, 0), len(grid) - AROUND)
    return list(grid[first : first + AROUND])


def _widened(rates: list[float], grid: Sequence[float], variant: int, most: int, judged: _Judged) -> list[float]:
    """Rates of a variant: one more as long as the best is outermost, and known."""
    found, places = list(rates), list(grid)
    while len(found) - len(rates) < most:
        best = min(found, key=lambda rate: judged.cost(Training(rate, variant)))
        at = places.index(best) + (-1 if best == found[0] else 1)
        if best not in (found[0], found[-1]) or not 0 <= at < len(places):
            break
        found = sorted([*found, places[at]])
        if judged.known(Training(places[at], variant)) is None:
            break
    return found


def _share_arrived(found: Sequence[Judgement]) -> float:
    return fmean(one.samples is not None for one in found)


def _mean_log_samples(found: Sequence[Judgement], limit_samples: float) -> float:
    return fmean(math.log(max(1.0, limit_samples if one.samples is None else one.samples)) for one in found)


def _mean_log_loss(found: Sequence[Judgement]) -> float:
    losses = [one.loss for one in found]
    return fmean(math.inf if loss is None else math.log(max(loss, 1e-12)) for loss in losses)
