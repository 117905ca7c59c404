"""The pictures of docs/measuring-honestly.md on comparisons, statistics and records. Measured numbers are those of that
page and of composed.md."""

from __future__ import annotations

import math
import random
import statistics

from canvas import BLUE, FAINT, GREEN, GREY, INK, PALE, PALE_RED, RED, WHITE, Canvas, Scale
from statistics_page import repeats

from bwbench.results.analysis.crossover import BELOW, Measured, find_crossovers
from bwbench.results.analysis.host_bound import TOLERANCE
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import geometric_interval
from bwbench.running.tuning.trainings import vertex_of


def tuning_seeds() -> Canvas:
    """Samples to the target by learning rate: one seed's lowest, and a parabola through the means of three seeds."""
    canvas, rng = Canvas(), random.Random(34)
    rate, cost = Scale(0.00625, 0.4, 40, 590, log=True), Scale(-0.5, 1.7, 215, 10)
    rates = [0.0125 * 2**n for n in range(5)]
    seeds = {one: [0.30 * math.log2(one / 0.05) ** 2 + rng.gauss(0, 0.26) for _ in range(3)] for one in rates}
    found = vertex_of({one: statistics.fmean(values) for one, values in seeds.items()})
    assert found is not None
    for one, values in seeds.items():
        for number, value in enumerate(values):
            canvas.dot(rate(one) + 13 * (number - 1), cost(value), RED if number == 0 else GREY, 7)
        mean = cost(statistics.fmean(values))
        canvas.line([(rate(one) - 22, mean), (rate(one) + 22, mean)], BLUE, 4)
    lucky = min(rates, key=lambda one: seeds[one][0])
    canvas.line([(rate(0.05), 20), (rate(0.05), 215)], GREEN, 3)
    canvas.label(rate(0.05) + 10, 24, "truly best", GREEN, bold=True)
    canvas.tick(634, 205, "fewer samples: better", "end")
    canvas.tick(634, 232, "learning rate", "end")
    canvas.arrow((rate(lucky), 250), (rate(lucky), 222), RED, 3)
    canvas.arrow((rate(found[0]), 250), (rate(found[0]), 222), BLUE, 3)
    canvas.label(rate(lucky) - 16, 250, "first seed's best", RED, "end", bold=True)
    canvas.label(rate(found[0]) + 16, 250, "by the means of three", BLUE, bold=True)
    return canvas


def global_batch() -> Canvas:
    """Samples of a step over all nodes: three ways to spread them, of which two are alike."""
    canvas = Canvas()
    for top, nodes, batch, words, color in (
        (38, 4, 32, "4 nodes × 32 samples: 128", BLUE),
        (114, 8, 16, "8 nodes × 16: 128, as many", BLUE),
        (190, 8, 32, "8 nodes × 32: 256, another batch", RED),
    ):
        canvas.label(20, top - 8, words, color, bold=True)
        for number in range(nodes):
            canvas.box(20 + 2.3 * batch * number, top, 2.3 * batch - 3, 32, color)
    canvas.tick(609, 248, "samples of a step, a box a node", "end")
    return canvas


def baselines() -> Canvas:
    """Time over bandwidth of two methods between one node alone and a perfect network."""
    canvas, rate, time = Canvas(), Scale(1, 100, 40, 610, log=True), Scale(8, 320, 215, 12, log=True)

    def method(at: float, sent: float) -> float:
        return 14 + sent / at

    canvas.box(40, 12, rate(600 / (60 - 14)) - 40, 203, PALE_RED)
    for sent, color in ((1500, GREY), (600, BLUE)):
        steps = [1.0 * 100 ** (n / 60) for n in range(61)]
        places = [(rate(at), time(method(at, sent))) for at in steps if method(at, sent) <= 320]
        canvas.line(places, color, 4)
    for value, words, color in ((60, "single: no network", RED), (11, "no-communication: a perfect one", GREEN)):
        canvas.line([(40, time(value)), (610, time(value))], color, 3)
        canvas.label(610, time(value) - 9, words, color, "end", bold=True)
    canvas.label(rate(7.5), 32, "a slow competitor", FAINT)
    canvas.label(50, 150, "better alone", RED)
    canvas.label(rate(24), time(26), "a new method", BLUE, "end", bold=True)
    canvas.line([(40, 215), (610, 215)], FAINT, 1.5)
    canvas.tick(610, 237, "bandwidth", "end")
    canvas.tick(48, 26, "time", "start")
    return canvas


def interleaved() -> Canvas:
    """A machine that is slow for a while: it meets one arm, or all."""
    canvas, colors = Canvas(), {"A": BLUE, "B": GREEN, "C": RED}
    canvas.box(404, 30, 196, 205, "#eeeeee")
    canvas.label(502, 22, "the machine is slow", FAINT, "middle")
    for top, words, order in (
        (78, "one arm after the other: only C is slow", "AAAAABBBBBCCCCC"),
        (172, "repeat by repeat, shuffled: all are", "BACCABABCBCACAB"),
    ):
        canvas.label(20, top - 10, words, bold=True)
        for number, arm in enumerate(order):
            canvas.box(20 + 39 * number, top, 35, 40, colors[arm])
            canvas.tick(37.5 + 39 * number, top + 58, arm)
    return canvas


def outside() -> Canvas:
    """Two measured ratios and a line beyond them."""
    canvas, rate, scale = Canvas(), Scale(1, 200, 50, 610, log=True), Scale(0.3, 1.7, 215, 15, log=True)
    measured = [
        Measured(bandwidth, repeats(30 + number, 100, 0.06, 8), repeats(70 + number, 100 / truth, 0.06, 8))
        for number, (bandwidth, truth) in enumerate(((1e7, 0.78), (1e8, 0.47)))
    ]
    found = find_crossovers(measured)
    assert found.kind == BELOW and found.found[0].high_bps is not None
    canvas.line([(50, scale(1)), (610, scale(1))], INK, 1.5)
    canvas.label(612, scale(1) - 10, "equally fast", anchor="end")
    values = [(one.bandwidth_bps / 1e6, ratio_of(one.reference, one.arm)) for one in measured]
    places = [(rate(at), scale(one.value)) for at, one in values if one is not None]
    slope = (places[1][1] - places[0][1]) / (places[1][0] - places[0][0])
    canvas.line([(rate(1.5), places[0][1] + slope * (rate(1.5) - places[0][0])), places[0]], RED, 3, dashed=True)
    canvas.line(places, BLUE, 4)
    for x, y in places:
        canvas.dot(x, y, BLUE, 8)
    canvas.label(rate(1.6), 42, "a guess", RED, bold=True)
    canvas.label(places[0][0] + 60, places[0][1] + 8, "measured", BLUE, bold=True)
    end = rate(found.found[0].high_bps / 1e6)
    canvas.arrow((end, 192), (70, 192), BLUE, 4)
    canvas.label(80, 180, "below all measured", BLUE, bold=True)
    canvas.axis(rate, 215, [(3, "3"), (10, "10"), (100, "100 Mbit/s")])
    canvas.tick(610, 28, "ratio", "end")
    return canvas


def host_bound() -> Canvas:
    """Steps without communication over the declared one, by nodes (published cells, two processors)."""
    canvas, step, factor = Canvas(), Scale(30, 320, 70, 600, log=True), Scale(0.99, 1.23, 215, 12)
    canvas.box(70, 12, 530, factor(1 + TOLERANCE) - 12, PALE_RED)
    canvas.level(factor, 1, 70, 600, "0 %")
    canvas.level(factor, 1.2, 70, 600, "+20 %")
    canvas.tick(63, factor(1 + TOLERANCE) + 5, f"+{100 * TOLERANCE:.0f} %", "end")
    for words, places, color in (
        ("4 nodes", ((40, 1.20), (80, 1.10), (160, 1.07), (250, 1.06)), RED),
        ("8 nodes", ((80, 1.20),), INK),
        ("2 nodes", ((80, 1.02),), BLUE),
    ):
        canvas.line([(step(at), factor(value)) for at, value in places], color, 3)
        for at, value in places:
            canvas.dot(step(at), factor(value), color, 8)
        foot = -8 if color == RED else 6
        canvas.label(step(places[0][0]) + 16, factor(places[0][1]) + foot, words, color, bold=True)
    canvas.line([(70, factor(1 + TOLERANCE)), (600, factor(1 + TOLERANCE))], RED, 2, dashed=True)
    canvas.label(596, factor(1.14), "host-bound", RED, "end", bold=True)
    canvas.label(600, 256, "declared step", FAINT, "end")
    canvas.tick(592, 28, "longer than declared, by", "end")
    canvas.axis(step, 215, [(at, f"{at} ms") for at in (40, 80, 160, 250)])
    return canvas


def three_repeats() -> Canvas:
    """Twenty experiments of three values: from the least to the greatest, as a bootstrap says, and Student's t."""
    canvas, time = Canvas(), Scale(72, 139, 222, 12, log=True)
    canvas.line([(20, time(100)), (585, time(100))], GREEN, 2.5)
    for number in range(20):
        values = [one.or_infinity for one in repeats(2100 + number, 100, 0.1, 3).values()]
        _, low, high = geometric_interval(values)
        assert low is not None and high is not None
        x, misses = 38 + 28 * number, not min(values) <= 100 <= max(values)
        canvas.line([(x, min(225, time(low))), (x, max(8, time(high)))], GREY, 3)
        canvas.line([(x, time(min(values))), (x, time(max(values)))], RED if misses else BLUE, 9)
    canvas.label(20, 250, "thick: bootstrap, 5 of 20 miss", RED, bold=True)
    canvas.label(632, 250, "thin: Student's t", FAINT, "end", bold=True)
    canvas.label(634, time(100) + 6, "truth", GREEN, "end", bold=True)
    canvas.tick(634, 24, "time", "end")
    return canvas


def timing_runs() -> Canvas:
    """What runs of the same cell differ by, and the mean of three such runs: standard deviations (docs/composed.md)."""
    canvas, share = Canvas(), Scale(0, 4, 20, 560)
    for top, value, words, color in (
        (42, 0.8, "runs within half an hour: 0.8 %", GREY),
        (118, 3.3, "hours between them: 3.3 %", RED),
        (194, 3.3 / math.sqrt(3), f"the mean of three of those: {3.3 / math.sqrt(3):.1f} %", BLUE),
    ):
        canvas.label(20, top - 8, words, INK if color == GREY else color, bold=True)
        canvas.box(20, top, share(value) - 20, 34, color)
    canvas.tick(628, 250, "standard deviation", "end")
    return canvas


def composed() -> Canvas:
    """One training without the link and some steps on it, in place of a training on it."""
    canvas = Canvas()
    canvas.label(20, 32, "whole: every step on the slow link")
    for number in range(30):
        canvas.box(20 + 19.5 * number, 42, 17, 30, GREY)
    canvas.label(20, 116, "without the link: how many steps?", BLUE, bold=True)
    for number in range(30):
        canvas.box(20 + 5 * number, 126, 3.5, 30, BLUE)
    canvas.label(20, 200, "on the link: how long is a step?", RED, bold=True)
    for number in range(3):
        canvas.box(20 + 19.5 * number, 210, 17, 30, RED)
    canvas.label(380, 184, "steps", BLUE, bold=True)
    canvas.label(442, 184, "× time of a step", RED, bold=True)
    return canvas


def test_split() -> Canvas:
    """The data of fashion-mnist: what is learnt from, what decides, what decides nothing."""
    canvas, samples = Canvas(), Scale(0, 72_000, 20, 610)
    canvas.box(samples(0), 90, samples(55_000) - samples(0) - 2, 60, GREY)
    canvas.box(samples(55_000), 90, samples(60_000) - samples(55_000), 60, BLUE)
    canvas.box(samples(62_000), 90, samples(72_000) - samples(62_000), 60, RED)
    canvas.label(samples(27_500), 126, "55,000 to learn from", WHITE, "middle", bold=True)
    canvas.line([(samples(57_500), 90), (samples(57_500), 40)], BLUE, 2)
    canvas.arrow((samples(57_500), 40), (330, 40), BLUE)
    canvas.label(322, 46, "target reached? best rate?", BLUE, "end")
    canvas.label(samples(60_000), 178, "5,000 for validation: decide", BLUE, "end", bold=True)
    canvas.label(samples(72_000), 210, "10,000 for the test: decide nothing", RED, "end", bold=True)
    canvas.tick(610, 244, "fashion-mnist", "end")
    return canvas


def record() -> Canvas:
    """From cells to a figure: what has to go with it."""
    canvas = Canvas()
    for number in range(15):
        x, y = 40 + 38 * (number % 5), 66 + 38 * (number // 5)
        canvas.box(x - 14, y - 14, 28, 28, PALE)
        if number == 8:
            canvas.cross(x, y)
        else:
            canvas.dot(x, y, BLUE, 8)
    canvas.label(20, 34, "15 cells", bold=True)
    canvas.label(20, 200, "1 invalid: named, with its log", RED)
    canvas.label(20, 236, "all machine hours, of tuning too", FAINT)
    canvas.arrow((222, 104), (262, 104), INK, 3)
    for row in range(4):
        canvas.box(272, 58 + 24 * row, 120, 20, GREY if row else INK)
    canvas.label(332, 34, "numbers, ids", INK, "middle", bold=True)
    canvas.arrow((402, 104), (442, 104), INK, 3)
    canvas.line([(458, 54), (458, 156), (610, 156)], INK, 2)
    canvas.line([(470, 140), (515, 92), (560, 78), (600, 70)], BLUE, 4)
    canvas.label(534, 34, "figure", INK, "middle", bold=True)
    return canvas


PICTURES = {
    "tuning-seeds": tuning_seeds,
    "global-batch": global_batch,
    "baselines": baselines,
    "interleaved": interleaved,
    "outside-measured": outside,
    "host-bound": host_bound,
    "three-repeats": three_repeats,
    "timing-runs": timing_runs,
    "test-split": test_split,
    "composed": composed,
    "record": record,
}
"""By the name of the file, in the order of the page."""
