"""The pictures of docs/statistics.md: made-up repeats with fixed seeds, and what bwbench's functions make of them."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from canvas import BLUE, FAINT, GREEN, GREY, GRID, INK, PALE, RED, Canvas, Scale

from bwbench.results.analysis.best_set import best_set
from bwbench.results.analysis.comparison import non_dominated
from bwbench.results.analysis.crossover import Measured, find_crossovers
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival, estimate, geometric_interval
from bwbench.results.analysis.student import together
from bwbench.results.analysis.welch import SEEDS, TIMING_RUNS, ErrorPart, MeanError

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"


def repeats(seed: int, centre_s: float, spread: float, num: int = 5, kin: str = "") -> dict[int, Arrival]:
    """Times to a target by seed, log-normal around ``centre_s``."""
    rng = random.Random(seed)
    return {number: Arrival(centre_s * math.exp(rng.gauss(0, spread)), kin=kin) for number in range(num)}


def times_of(arm: dict[int, Arrival]) -> list[float]:
    """Of repeats that arrived."""
    return [one.time_s for one in arm.values() if one.time_s is not None]


def answer() -> Canvas:
    """The three times behind the sentence that the page begins with, and their ratios."""
    canvas, time = Canvas(), Scale(15, 320, 120, 620, log=True)
    arms = {"diloco": (24, 20, 28, 40, BLUE), "one node": (33.6, 20, 56, 110, GREY), "ddp": (240, 205, 280, 172, RED)}
    for name, (value, low, high, y, color) in arms.items():
        canvas.label(12, y + 6, name, FAINT if color == GREY else color, bold=True)
        canvas.interval(time(low), time(value), time(high), y, color)
    canvas.line([(time(24), 40), (time(24), 148)], BLUE, 1.5, dashed=True)
    canvas.arrow((time(33.6), 80), (time(24), 80))
    canvas.label(time(33.6) + 12, 86, "perhaps 1.4 times sooner")
    canvas.arrow((time(240), 140), (time(24), 140))
    canvas.label(time(76), 132, "10 times sooner", anchor="middle", bold=True)
    canvas.axis(time, 205, [(value, f"{value} s") for value in (20, 50, 100, 200)])
    canvas.tick(620, 248, "time to the target", "end")
    return canvas


def compared() -> Canvas:
    """Three arms on three links: what stands in one column is compared."""
    canvas, rng = Canvas(), random.Random(7)
    canvas.box(294, 34, 152, 166, PALE)
    for name, y in (("ddp", 66), ("ring-fp16", 116), ("top-k", 166)):
        canvas.tick(12, y + 5, name, "start")
        for centre in (200, 370, 540):
            for number in range(5):
                color = BLUE if centre == 370 else GREY
                canvas.dot(centre + 24 * (number - 2), y + 8 * rng.uniform(-1, 1), color, 7)
    canvas.label(370, 24, "compared: equal but for the arm", BLUE, "middle", bold=True)
    for centre, words in ((200, "1 Mbit/s"), (370, "10 Mbit/s"), (540, "100 Mbit/s")):
        canvas.tick(centre, 222, words)
    canvas.line([(450, 91), (482, 91)], RED, 2)
    canvas.cross(466, 91)
    canvas.line([(466, 104), (466, 232)], RED, 1.5, dashed=True)
    canvas.label(466, 252, "another link: not compared", RED, "middle")
    canvas.tick(12, 252, "each dot: a repeat", "start")
    return canvas


def ratio() -> Canvas:
    """Two arms on a logarithmic axis, and the distance of their means."""
    canvas, time = Canvas(), Scale(25, 200, 130, 610, log=True)
    arms = {"ddp": (repeats(1, 110, 0.15), 80, RED), "ring-fp16": (repeats(2, 54, 0.15), 165, BLUE)}
    for name, (arm, y, color) in arms.items():
        canvas.label(12, y + 6, name, color, bold=True)
        for value in times_of(arm):
            canvas.dot(time(value), y, GREY)
        canvas.line([(time(estimate(list(arm.values())).value), y + side) for side in (-20, 20)], color, 4)
    found = ratio_of(arms["ddp"][0], arms["ring-fp16"][0])
    assert found is not None
    ends = [time(estimate(list(arm.values())).value) for arm, _, _ in arms.values()]
    canvas.arrow((ends[0], 122), (ends[1], 122))
    canvas.label(sum(ends) / 2, 114, f"ratio {found.value:.1f}", anchor="middle", bold=True)
    canvas.label(370, 254, "time to the target", FAINT, "middle")
    canvas.axis(time, 210, [(value, f"{value} s") for value in (25, 50, 100, 200)])
    return canvas


def kin_paired() -> Canvas:
    """Lines between equal seeds: parallel for kin, across for others; and the width that follows."""
    canvas, time = Canvas(), Scale(60, 150, 205, 50, log=True)
    rng = random.Random(5)
    shared = [rng.gauss(0, 0.17) for _ in range(6)]

    def arm(centre_s: float, kin: str, common: float) -> dict[int, Arrival]:
        own = [rng.gauss(0, 0.02 if common else 0.17) for _ in shared]
        logs = [common * one + other for one, other in zip(shared, own, strict=True)]
        return {seed: Arrival(centre_s * math.exp(log), kin=kin) for seed, log in enumerate(logs)}

    sides = [
        ("kin: seed by seed", 20, "ring", BLUE, arm(105, "mean", 1), arm(90, "mean", 1)),
        ("not kin: by their means", 340, "top-k", RED, arm(105, "mean", 1), arm(90, "", 0)),
    ]
    for words, left, name, color, reference, other in sides:
        canvas.label(left, 26, words, color, bold=True)
        for one, another in zip(times_of(reference), times_of(other), strict=True):
            canvas.line([(left + 50, time(one)), (left + 210, time(another))], color, 2)
            canvas.dot(left + 50, time(one), INK)
            canvas.dot(left + 210, time(another), INK)
        canvas.tick(left + 50, 230, "ddp")
        canvas.tick(left + 210, 230, name)
        found = ratio_of(reference, other)
        assert found is not None and found.paired == (name == "ring")
        canvas.label(left + 130, 252, f"ratio ± {100 * _half_width(found):.0f} %", color, "middle", bold=True)
    canvas.label(12, 130, "time", FAINT)
    return canvas


def censored() -> Canvas:
    """Three of eight are late: the mean without them, and the fit with them."""
    canvas, time, limit = Canvas(), Scale(50, 400, 40, 610, log=True), 170.0
    arm = repeats(21, 135, 0.35, 8)
    told = [one if one.or_infinity < limit else Arrival(None, limit) for one in arm.values()]
    reached = [one.or_infinity for one in told if one.time_s is not None]
    canvas.line([(time(limit), 20), (time(limit), 205)], FAINT, 2, dashed=True)
    for number, value in enumerate(sorted(reached)):
        canvas.dot(time(value), 50 + 12 * (number % 2))
    for number in range(len(told) - len(reached)):
        y = 44 + 16 * number
        canvas.dot(time(limit), y)
        canvas.arrow((time(limit), y), (time(limit) + 46, y))
    canvas.label(time(limit) + 56, 66, "these took longer")
    for y, words, color, (value, low, high) in (
        (120, "late ones left out", RED, geometric_interval(reached)),
        (175, "late ones fitted", BLUE, ends_of(told)),
    ):
        canvas.interval(time(low), time(value), time(high), y, color)
        canvas.label(time(high) + 14, y + 6, words, color, bold=True)
    canvas.line([(time(135), 88), (time(135), 205)], GREEN, 3)
    canvas.label(time(135) - 8, 200, "truth", GREEN, "end", bold=True)
    canvas.axis(time, 205, [(50, "50 s"), (100, "100 s"), (limit, "limit"), (400, "400 s")])
    canvas.tick(610, 248, "time to the target", "end")
    return canvas


def interval() -> Canvas:
    """Twenty experiments whose truth is known: about one interval does not hold it."""
    canvas, time = Canvas(), Scale(75, 134, 222, 26, log=True)
    canvas.line([(20, time(100)), (585, time(100))], GREEN, 2.5)
    for number in range(20):
        value, low, high = ends_of(list(repeats(400 + number, 100, 0.1).values()))
        holds, x = low <= 100 <= high, 38 + 28 * number
        color = BLUE if holds else RED
        canvas.line([(x, time(low)), (x, time(high))], color, 5)
        canvas.dot(x, time(value), color, 7)
        if not holds:
            canvas.label(x, time(high) - 10, "misses", RED, "middle", bold=True)
    canvas.label(634, time(100) + 6, "truth", GREEN, "end", bold=True)
    canvas.label(320, 250, "the same experiment, twenty times", FAINT, "middle")
    canvas.tick(634, 24, "time", "end")
    return canvas


def own_spread() -> Canvas:
    """A quiet arm and a noisy one, each with its own spread and with that of all arms."""
    canvas, time = Canvas(), Scale(55, 150, 20, 540, log=True)
    arms = [repeats(40 + number, 100, 0.08) for number in range(10)] + [
        repeats(32 + number, 100, 0.3) for number in range(2)
    ]
    logs = [[math.log(value) for value in times_of(arm)] for arm in arms]
    pooled = statistics.fmean(statistics.variance(values) for values in logs)
    error = MeanError((ErrorPart(SEEDS, pooled / 5, 4.0 * len(arms)),))
    canvas.line([(time(100), 12), (time(100), 228)], GREEN, 3)
    canvas.label(time(100) + 10, 252, "truth", GREEN, bold=True)
    canvas.tick(20, 252, "time to the target", "start")
    for top, words, number in ((22, "quiet arm", 0), (136, "noisy arm", 11)):
        value, low, high = ends_of(list(arms[number].values()))
        half = error.half_width()
        for one in times_of(arms[number]):
            canvas.dot(time(one), top + 12, GREY)
        canvas.label(632, top + 18, words, anchor="end", bold=True)
        canvas.interval(time(low), time(value), time(high), top + 42, BLUE)
        canvas.interval(time(value * math.exp(-half)), time(value), time(value * math.exp(half)), top + 72, RED)
    canvas.label(632, 184, "own spread", BLUE, "end", bold=True)
    canvas.label(632, 214, "one for all", RED, "end", bold=True)
    return canvas


def causes() -> Canvas:
    """Variance of a composed time, of seeds and of three timing runs, over the number of repeats."""
    canvas, variance = Canvas(), Scale(0, 0.00255, 215, 20)
    for number, num in enumerate((3, 5, 10, 20, 40)):
        parts = (ErrorPart(SEEDS, 0.08**2 / num, num - 1.0), ErrorPart(TIMING_RUNS, 0.03**2 / 3, 2.0))
        left, bottom = 50 + 58 * number, variance(0)
        for part, color in zip(reversed(parts), (RED, BLUE), strict=True):
            top = bottom - (variance(0) - variance(part.variance))
            canvas.box(left, top, 44, bottom - top, color)
            bottom = top
        canvas.tick(left + 22, 235, f"{num}")
    assert MeanError(parts).dominant == TIMING_RUNS
    canvas.label(205, 70, "seeds: less with every repeat", BLUE, bold=True)
    canvas.label(342, 210, "timing runs: shared, stays", RED, bold=True)
    canvas.label(342, 172, "now it decides the width", RED)
    canvas.line([(40, 215), (335, 215)], FAINT, 1.5)
    canvas.tick(342, 235, "repeats", "start")
    canvas.label(105, 32, "squared error", FAINT)
    return canvas


def at_once() -> Canvas:
    """Twelve ratios whose truth is 1: one of the ordinary intervals misses it, none of the wider ones."""
    canvas, ratio_scale = Canvas(), Scale(0.62, 1.6, 215, 25, log=True)
    canvas.line([(20, ratio_scale(1)), (600, ratio_scale(1))], GREEN, 2.5)
    missed = 0
    for number in range(12):
        found = ratio_of(repeats(1100 + number, 100, 0.12, 6), repeats(6100 + number, 100, 0.12, 6))
        assert found is not None and found.low is not None and found.high is not None
        wide = found.ends(together(12))
        assert wide is not None
        x, holds = 45 + 48 * number, found.low <= 1 <= found.high
        color = BLUE if holds else RED
        canvas.line([(x, ratio_scale(end)) for end in wide], GREY, 3)
        canvas.line([(x, ratio_scale(found.low)), (x, ratio_scale(found.high))], color, 9)
        if not holds:
            missed += 1
            canvas.label(x - 12, ratio_scale(found.low) + 8, "misses", RED, "end", bold=True)
    assert missed == 1
    canvas.label(20, 20, "thick: each for itself", BLUE, bold=True)
    canvas.label(20, 252, "thin: all twelve hold at once", FAINT, bold=True)
    canvas.label(634, ratio_scale(1) - 8, "truth", GREEN, "end", bold=True)
    canvas.tick(634, 24, "ratio", "end")
    return canvas


def taken_apart() -> Canvas:
    """ring-fp16 over ddp at 100 Mbit/s in benchmarks/records/bandwidth-cnn: 1.49 = 1.73 x 0.86."""
    canvas, scale = Canvas(), Scale(0.92, 1.95, 20, 600, log=True)
    for value, words in ((1, "1: as fast as ddp"), (1.5, "1.5")):
        canvas.line([(scale(value), 15), (scale(value), 222)], FAINT if value == 1 else GRID, 1.5)
        canvas.tick(scale(value), 242, words)
    for y, begin, end, words, color in (
        (52, 1.0, 1.73, "× 1.73: its steps are shorter", BLUE),
        (117, 1.73, 1.73 * 0.86, "× 0.86: it needs more samples", RED),
        (190, 1.0, 1.49, "ratio 1.49", INK),
    ):
        canvas.arrow((scale(begin), y), (scale(end), y), color, 5)
        canvas.label(scale(1) + 12 if color != RED else scale(1.0) + 12, y - 14, words, color, bold=True)
    canvas.line([(scale(1.73), 52), (scale(1.73), 117)], FAINT, 1.5, dashed=True)
    canvas.line([(scale(1.488), 117), (scale(1.488), 190)], FAINT, 1.5, dashed=True)
    canvas.tick(632, 242, "times as fast", "end")
    return canvas


def best() -> Canvas:
    """Four arms: the shortest time, one close behind, a noisy one, one that is certainly slower."""
    canvas, time = Canvas(), Scale(55, 230, 20, 410, log=True)
    arms = {
        "shortest time": repeats(1, 80, 0.08),
        "in: close behind": repeats(14, 90, 0.09),
        "in: noisy, may be first": repeats(6, 108, 0.35),
        "out: certainly slower": repeats(18, 140, 0.08),
    }
    found = best_set(arms)
    assert list(found.times) == list(arms) and found.members == tuple(arms)[:3]
    for y, (name, of_arm) in zip((40, 95, 150, 205), found.times.items(), strict=True):
        assert of_arm.low is not None and of_arm.high is not None
        color = BLUE if name in found.members else GREY
        canvas.interval(max(8, time(of_arm.low)), time(of_arm.value), min(time(of_arm.high), 415), y, color)
        canvas.label(425, y + 6, name, color if color == BLUE else FAINT, bold=True)
    canvas.axis(time, 230, [])
    canvas.label(20, 252, "time to the target", FAINT)
    return canvas


def coverage() -> Canvas:
    """How often three rules hold the ratio of the arm that they cover worst (benchmarks/records/coverage.json)."""
    canvas, share, repeat = Canvas(), Scale(0.68, 1.0, 215, 12), Scale(3, 12, 70, 400, log=True)
    rows = json.loads((RECORDS / "coverage.json").read_text(encoding="utf-8"))["rows"]
    for value in (0.7, 0.8, 0.9):
        canvas.level(share, value, 55, 410, f"{100 * value:.0f} %")
    canvas.line([(55, share(0.95)), (410, share(0.95))], GREEN, 2, dashed=True)
    canvas.label(235, share(0.95) - 10, "promised: 95 %", GREEN, "middle", bold=True)
    for by, words, color in (
        ("welch", "each its own spread", BLUE),
        ("moderated", "drawn together", GREY),
        ("pooled", "one spread for all", RED),
    ):
        found = [row for row in rows if (row["what"], row["arms"], row["by"]) == ("ratio", "ten 8 %, two 30 %", by)]
        places = [(repeat(row["n"]), share(row["worst"])) for row in found]
        canvas.line(places, color, 3)
        for x, y in places:
            canvas.dot(x, y, color, 6)
        canvas.label(418, places[-1][1] + 6, words, FAINT if by == "moderated" else color,
                     bold=True)  # fmt: skip
    canvas.axis(repeat, 215, [(num, f"{num}") for num in (3, 5, 8, 12)])
    canvas.label(418, 236, "repeats", FAINT)
    canvas.tick(418, 24, "intervals that hold the truth", "start")
    return canvas


def crossover() -> Canvas:
    """Ratio over bandwidth with its interval: where they are 1."""
    canvas, rate, scale = Canvas(), Scale(1e6, 1e9, 60, 610, log=True), Scale(0.4, 5, 215, 12, log=True)
    measured = []
    for number, (bandwidth, truth) in enumerate(((1e6, 3.4), (1e7, 2.3), (1e8, 1.1), (1e9, 0.55))):
        measured.append(Measured(bandwidth, repeats(20 + number, 100, 0.18), repeats(80 + number, 100 / truth, 0.18)))
    ratios = [ratio_of(one.reference, one.arm) for one in measured]
    told = [(rate(one.bandwidth_bps), found) for one, found in zip(measured, ratios, strict=True) if found]
    band = [(x, scale(found.low or 1)) for x, found in told] + [(x, scale(found.high or 1)) for x, found in told[::-1]]
    canvas.area(band, PALE)
    canvas.line([(60, scale(1)), (610, scale(1))], INK, 1.5)
    canvas.tick(52, scale(1) + 5, "1", "end")
    canvas.line([(x, scale(found.value)) for x, found in told], BLUE, 3)
    for x, found in told:
        canvas.dot(x, scale(found.value), BLUE, 6)
    (only,) = find_crossovers(measured).found
    assert only.bandwidth_bps is not None and only.low_bps is not None and only.high_bps is not None
    for end in (only.low_bps, only.high_bps):
        canvas.line([(rate(end), scale(1)), (rate(end), 205)], RED, 1.5, dashed=True)
    canvas.interval(rate(only.low_bps), rate(only.bandwidth_bps), rate(only.high_bps), 205, RED)
    canvas.label(rate(only.low_bps) - 12, 204, "crossover, interval", RED, "end", bold=True)
    canvas.label(rate(1.5e6), 28, "ratio, with its interval", BLUE, bold=True)
    canvas.label(70, scale(1) - 9, "arm is faster", FAINT)
    canvas.label(70, scale(1) + 22, "arm is slower", FAINT)
    canvas.axis(rate, 222, [(1e6, "1 Mbit/s"), (1e7, "10"), (1e8, "100")])
    canvas.tick(632, 242, "1 Gbit/s", "end")
    return canvas


def pareto() -> Canvas:
    """Arms by time and final metric; a staircase through those that no other beats in both."""
    canvas, time, metric = Canvas(), Scale(20, 400, 60, 600, log=True), Scale(0.84, 0.9, 215, 20)
    arms = [(30.0, 0.852), (52.0, 0.872), (150.0, 0.886), (95.0, 0.861), (260.0, 0.874), (210.0, 0.848)]
    optimal = non_dominated([(time_s, -good) for time_s, good in arms])
    kept = sorted(arm for arm, best_one in zip(arms, optimal, strict=True) if best_one)
    steps = [(time(kept[0][0]), metric(kept[0][1]))]
    for one, other in pairwise(kept):
        steps += [(time(other[0]), metric(one[1])), (time(other[0]), metric(other[1]))]
    canvas.line(steps, BLUE, 2, dashed=True)
    for arm in arms:
        canvas.dot(time(arm[0]), metric(arm[1]), BLUE if arm in kept else GREY, 9)
    canvas.arrow((time(93), metric(0.8625)), (time(55), metric(0.8712)), FAINT)
    canvas.label(time(95) + 14, metric(0.861) + 6, "beaten: later, and worse", FAINT)
    canvas.label(time(52) - 14, metric(0.872) - 10, "Pareto set", BLUE, "end", bold=True)
    canvas.line([(60, 20), (60, 215), (600, 215)], FAINT, 1.5)
    canvas.label(70, 30, "final metric", FAINT)
    canvas.label(600, 240, "time to the target", FAINT, "end")
    return canvas


def equal_footing() -> Canvas:
    """Two arms that train as many samples, one of them in half the time: which is ahead depends on what is equal."""
    canvas, time, metric = Canvas(), Scale(0, 110, 40, 560), Scale(0.70, 0.92, 215, 15)

    def quick(at: float) -> float:
        return 0.875 - 0.16 * math.exp(-at / 15)

    def thorough(at: float) -> float:
        return 0.925 - 0.21 * math.exp(-at / 50)

    for rule, color, end in ((quick, BLUE, 52), (thorough, RED, 104)):
        canvas.line([(time(at), metric(rule(at))) for at in range(2, end + 1, 2)], color, 3)
    canvas.line([(time(52), 15), (time(52), 215)], FAINT, 2, dashed=True)
    canvas.line([(time(52), metric(quick(52))), (time(104), metric(thorough(104)))], INK, 2, dashed=True)
    for at, rule, color in ((52, quick, BLUE), (52, thorough, RED), (104, thorough, RED)):
        canvas.dot(time(at), metric(rule(at)), color, 8)
    canvas.label(time(50), metric(quick(52)) - 20, "quick steps", BLUE, "end", bold=True)
    canvas.label(time(70), metric(thorough(70)) + 28, "learns more per sample", RED, bold=True)
    canvas.label(time(52) + 8, 207, "equal time: blue is ahead", FAINT)
    canvas.label(time(104) + 8, 18, "equal samples: red is ahead", FAINT, "end")
    canvas.line([(40, 15), (40, 215), (600, 215)], FAINT, 1.5)
    canvas.tick(48, 26, "accuracy", "start")
    canvas.tick(600, 235, "time", "end")
    return canvas


def ends_of(arrivals: Sequence[Arrival]) -> tuple[float, float, float]:
    """Value, low and high of repeats that have an interval."""
    found = estimate(arrivals)
    assert found.low is not None and found.high is not None
    return found.value, found.low, found.high


def _half_width(found: Ratio) -> float:
    """As a share of the ratio."""
    assert found.low is not None and found.high is not None
    return math.sqrt(found.high / found.low) - 1


PICTURES = {
    "answer": answer,
    "compared": compared,
    "ratio": ratio,
    "kin-paired": kin_paired,
    "censored": censored,
    "interval": interval,
    "own-spread": own_spread,
    "causes-add-up": causes,
    "all-at-once": at_once,
    "taken-apart": taken_apart,
    "best-set": best,
    "coverage": coverage,
    "crossover": crossover,
    "pareto-set": pareto,
    "equal-footing": equal_footing,
}
"""By the name of the file, in the order of the page."""
