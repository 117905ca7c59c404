"""How ``deco-sgd`` chooses how much it sends and how late that may arrive: pure functions of what ranks have measured.

The same numbers give the same choice, on every rank and in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.base.units import BANDWIDTH, DURATION, MEMORY
from bwbench.records.schema import Chosen

FIRST_RATIO, FIRST_STALENESS = 0.01, 1  # before anything has been measured, as far as the bounds allow
RATIOS_PER_OCTAVE = 2
UNKNOWN_S = -1.0  # a latency that nobody has measured yet, as ranks tell it
KEEP = 0.02  # what is there stays while nothing is predicted to be so much faster
SHORTEST_S = 1e-4  # of an exchange beyond the latency: what software takes, and no clock tells apart
ALIKE = 0.95  # ranks that compute at least so long as the slowest wait for nobody
MOST_STALENESS = 32  # that may be asked for: as many gradients are kept


class DecoSgdConfig(ComponentConfig):
    """Options of ``deco-sgd``.

    Attributes:
        ratio: share of the entries that is sent; ``auto`` chooses one from ``least_ratio`` to ``most_ratio``.
        staleness: steps from computing a gradient to stepping with it; ``auto`` chooses from 0 to ``most_staleness``.
        window: steps from one choice to the next. Short ones follow a link that changes: one that falls to a twentieth
            makes all steps of a window long that was chosen before.
        least_ratio, most_ratio, most_staleness: bounds of what is chosen.
        ratio_cost: steps that are needed are taken to grow with it, see ``steps_needed``. At 0.002 a ratio of 1 % needs
            a fifth more, and 0.1 % three times as many.
        staleness_cost: share of steps that each step of staleness is taken to cost: two steps late, twice as many. From
            0, where the noise of gradients decides how many there are, to 1, where the step that the loss bears does;
            0.5 is the middle. From 1 on nothing is ever late. docs/algorithms/deco-sgd.md says how to find both costs.
    """

    ratio: float | Literal["auto"] = "auto"
    staleness: int | Literal["auto"] = "auto"
    window: int = Field(5, ge=2)
    least_ratio: float = Field(0.001, gt=0.0, le=1.0)
    most_ratio: float = Field(0.25, gt=0.0, le=1.0)
    most_staleness: int = Field(4, ge=0, le=MOST_STALENESS)
    ratio_cost: float = Field(0.002, ge=0.0)
    staleness_cost: float = Field(0.5, ge=0.0)

    @model_validator(mode="after")
    def _bounds_leave_a_choice(self) -> DecoSgdConfig:
        if self.ratio != "auto" and not 0.0 < self.ratio <= 1.0:
            _refuse("ratio", f"ratio {self.ratio:g} is out of range: more than 0, at most 1, or auto")
        if self.staleness != "auto" and not 0 <= self.staleness <= MOST_STALENESS:
            _refuse("staleness", f"staleness {self.staleness} is out of range: 0 to {MOST_STALENESS}, or auto")
        if self.least_ratio > self.most_ratio:
            _refuse("least_ratio", f"least_ratio {self.least_ratio:g} is above most_ratio {self.most_ratio:g}")
        if self.adapts and self.window <= self.latest:
            text = f"a window of {self.window} steps ends before what it measures has arrived, {self.latest} steps late"
            _refuse("window", f"{text}; write 'window: {self.latest + 1}' or more")
        return self

    @property
    def adapts(self) -> bool:
        """Whether there is anything to choose."""
        return "auto" in (self.ratio, self.staleness)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Those that may be chosen, rising."""
        if self.ratio != "auto":
            return (self.ratio,)
        octaves = math.log2(self.most_ratio / self.least_ratio)
        count = math.floor(octaves * RATIOS_PER_OCTAVE + 1e-9)
        return tuple(self.least_ratio * 2.0 ** (i / RATIOS_PER_OCTAVE) for i in range(count + 1))

    @property
    def stalenesses(self) -> tuple[int, ...]:
        """Those that may be chosen, rising."""
        return tuple(range(self.most_staleness + 1)) if self.staleness == "auto" else (self.staleness,)

    @property
    def latest(self) -> int:
        """The largest staleness that there may be."""
        return self.stalenesses[-1]

    @property
    def first(self) -> DecoSetting:
        """What training begins with."""
        ratio = min(max(FIRST_RATIO, self.ratios[0]), self.ratios[-1])
        at_most = max(FIRST_STALENESS, self.stalenesses[0])
        return DecoSetting(ratio, max(one for one in self.stalenesses if one <= at_most))


def _refuse(kind: str, text: str) -> None:
    raise PydanticCustomError(kind, "{text}", {"text": text})


@dataclass(frozen=True)
class DecoSetting:
    """What is chosen: the share of entries that is sent, and how many steps late they are stepped with."""

    ratio: float
    staleness: int


@dataclass(frozen=True)
class WindowMeasured:
    """What one rank, or the slowest of them, has measured in a window; unknown: a rate of 0, a latency below 0."""

    rate_bps: float
    latency_s: float
    compute_s: float


@dataclass(frozen=True)
class Flown:
    """One exchange that is over: when it began and ended, and what this rank has sent in it."""

    begun_s: float
    ended_s: float
    sent_bytes: int


def rate_bps(flown: Sequence[Flown], latency_s: float) -> float:
    """How fast exchanges went, bits a second that a rank sent; 0 where there were none.

    Counted is the time in which it was an exchange's turn: from when its first byte could be there, or the one before
    it was through, to its end. So neither the latency nor a wait behind others is taken for slowness.
    """
    busy_s, before_s = 0.0, -math.inf
    for one in sorted(flown, key=lambda one: one.begun_s):
        busy_s += max(SHORTEST_S, one.ended_s - max(one.begun_s + latency_s, before_s))
        before_s = max(before_s, one.ended_s)
    return 8.0 * sum(one.sent_bytes for one in flown) / busy_s if flown else 0.0


def slowest(said: Sequence[WindowMeasured]) -> WindowMeasured | None:
    """What all have to reckon with, by what each rank has measured.

    None where nobody knows a rate, or not all know their latency: without it nothing could be told to hide.

    The rate of the ranks that compute longest: others also wait for these, which makes the link look slow.
    """
    if any(one.latency_s < 0.0 for one in said):
        return None
    compute_s = max(one.compute_s for one in said)
    judges = [one for one in said if one.rate_bps > 0.0 and one.compute_s >= ALIKE * compute_s]
    if not judges:
        return None
    return WindowMeasured(min(one.rate_bps for one in judges), max(one.latency_s for one in said), compute_s)


def step_s(measured: WindowMeasured, sent_bytes: float, staleness: int) -> float:
    """How long a step takes that sends so many bytes.

    Three things may be the longest: computing, sending, and the way of one gradient, from computing it to stepping with
    it, of which ``staleness + 1`` are under way together.
    """
    sending_s = 8.0 * sent_bytes / measured.rate_bps
    way_s = measured.compute_s + measured.latency_s + sending_s
    return max(measured.compute_s, sending_s, way_s / (staleness + 1))


def steps_needed(setting: DecoSetting, ratio_cost: float, staleness_cost: float) -> float:
    """How many steps take the place of one with whole gradients that are not late.

    (1 + a (1 - d) / (d (1 - d/2)^T)) (1 + b T), for a ratio d and a staleness T: what is left out has to come later,
    the longer the less is sent; and staleness makes that worse, exponentially, which is what the paper finds.

    The second factor is the rate of SGD with delayed gradients (Koloskova, Stich and Jaggi 2022, arXiv 2206.08307):
    steps until the gradient is small are those that its noise asks for, whatever the delay, and those that smoothness
    asks for, times the delay. ``staleness_cost`` is the share of the latter.
    """
    left_out = (1.0 - setting.ratio) / setting.ratio / (1.0 - setting.ratio / 2.0) ** setting.staleness
    return (1.0 + ratio_cost * left_out) * (1.0 + staleness_cost * setting.staleness)


def choose(
    options: DecoSgdConfig, measured: WindowMeasured, present: DecoSetting, bytes_at: Callable[[float], float]
) -> Chosen:
    """The setting with which the same progress takes the shortest time, and why.

    Of equal ones that of least staleness, then that which sends most. What is there stays where another one would not
    be ``KEEP`` faster.

    Args:
        bytes_at: what a rank sends in an exchange at a ratio.
    """

    def predicted_s(setting: DecoSetting) -> float:
        a_step_s = step_s(measured, bytes_at(setting.ratio), setting.staleness)
        return a_step_s * steps_needed(setting, options.ratio_cost, options.staleness_cost)

    candidates = [DecoSetting(ratio, late) for late in options.stalenesses for ratio in reversed(options.ratios)]
    best = min(candidates, key=predicted_s)
    stays = present in candidates and predicted_s(present) <= (1.0 + KEEP) * predicted_s(best)
    found = present if stays else best
    sent_bytes = bytes_at(found.ratio)
    why = (
        f"{MEMORY.show(sent_bytes, 3)} a step at {BANDWIDTH.show(measured.rate_bps, 3)} and "
        f"{DURATION.show(measured.latency_s, 2)}, beside {DURATION.show(measured.compute_s, 3)} of computing"
    )
    if stays and present != best:
        why += f"; a ratio of {best.ratio:.3g}, {best.staleness} late, would be at most {100 * KEEP:.0f} % faster"
    return Chosen(
        ratio=found.ratio,
        staleness=found.staleness,
        rate_bps=measured.rate_bps,
        latency_s=measured.latency_s,
        compute_s=measured.compute_s,
        step_s=step_s(measured, sent_bytes, found.staleness),
        why=why,
    )
