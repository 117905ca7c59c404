"""The pictures of docs/measuring-honestly.md. Measured numbers are those of that page, of links.md and of records."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path

from canvas import BLUE, FAINT, GREEN, GREY, INK, PALE, PALE_RED, RED, WHITE, Canvas, Scale
from statistics_page import repeats

from bwbench.results.analysis.best_set import best_set
from bwbench.results.analysis.crossover import BELOW, Measured, find_crossovers
from bwbench.results.analysis.host_bound import TOLERANCE
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import geometric_interval
from bwbench.results.analysis.student import student_t
from bwbench.running.tuning.trainings import vertex_of

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
LINK_TOLERANCE = 0.05  # of a rate, docs/measuring-honestly.md


def believed_link() -> Canvas:
    """What links achieved beside what they were asked: most within the tolerance, two outside."""
    canvas, rate, rng = Canvas(), Scale(7.5, 10.9, 230, 20), random.Random(4)
    canvas.box(20, rate(10 * (1 + LINK_TOLERANCE)), 420, rate(10) - rate(10 + 20 * LINK_TOLERANCE), PALE)
    canvas.line([(20, rate(10)), (440, rate(10))], INK, 2)
    for number in range(14):
        achieved = {5: 8.3, 10: 7.9}.get(number, 10 * math.exp(rng.gauss(-0.01, 0.012)))
        x, holds = 40 + 29 * number, abs(achieved / 10 - 1) <= LINK_TOLERANCE
        (canvas.dot if holds else canvas.cross)(x, rate(achieved), BLUE if holds else RED)
    canvas.label(450, rate(10) + 6, "asked: 10 Mbit/s")
    canvas.label(450, rate(10.5) + 4, "within 5 %: counts", BLUE, bold=True)
    canvas.label(368, rate(7.95) + 6, "invalid: no result", RED, bold=True)
    canvas.label(20, 254, "each mark: a link as it was measured", FAINT)
    return canvas


def super_packets() -> Canvas:
    """A queue of three packets: three frames, or three times 45."""
    canvas = Canvas()
    canvas.label(20, 36, "a queue of 3 packets holds 3 frames", bold=True)
    for number in range(3):
        canvas.box(20 + 8 * number, 50, 5, 44, BLUE)
    canvas.label(20, 140, "of super-packets: 135 frames", bold=True)
    for number in range(3):
        for frame in range(45):
            canvas.box(20 + 204 * number + 4 * frame, 154, 2.8, 44, RED if number == 1 else BLUE)
    canvas.label(312, 226, "one loss takes 45", RED, "middle", bold=True)
    return canvas


def queue_length() -> Canvas:
    """Goodput of a ring of TCP by queue, 4 nodes at 100 Mbit/s and 5 ms (docs/links.md)."""
    canvas, share = Canvas(), Scale(0, 1, 20, 560)
    canvas.line([(share(1), 20), (share(1), 225)], FAINT, 2, dashed=True)
    for top, value, words, color in ((48, 0.98, "a queue of 50 ms", BLUE), (150, 0.71, "of 5 ms, one round trip", RED)):
        canvas.label(20, top - 10, words, color, bold=True)
        canvas.box(20, top, share(value) - 20, 46, color)
        canvas.label(share(value) + (8 if color == RED else 30), top + 30, f"{100 * value:.0f} %", color, bold=True)
    canvas.label(share(1), 248, "all that the link carries", FAINT, "end")
    return canvas


def pacing() -> Canvas:
    """One average of 6 MB by three ways, 4 nodes, 100 Mbit/s, queue of 1 bdp, reno (docs/links.md)."""
    canvas, time = Canvas(), Scale(0, 1100, 20, 470)
    for top, time_ms, words, color in (
        (40, 849, "ring: told its link", BLUE),
        (115, 1073, "ring-unpaced: not told", GREY),
        (190, 988, "ddp: cannot be told", GREY),
    ):
        canvas.label(20, top - 8, words, BLUE if color == BLUE else INK, bold=True)
        canvas.box(20, top, time(time_ms) - 20, 34, color)
        canvas.tick(time(time_ms) + 8, top + 23, f"{time_ms} ms", "start")
    canvas.box(time(849), 115, time(1073) - time(849), 34, RED)
    canvas.line([(time(849), 40), (time(849), 149)], RED, 2, dashed=True)
    canvas.label(time(849) + 8, 106, "only pacing", RED, bold=True)
    return canvas


def medium() -> Canvas:
    """Four stations on a switch, and on one air."""
    canvas = Canvas()
    canvas.label(155, 28, "switched: a link each", BLUE, "middle", bold=True)
    canvas.label(485, 28, "shared: one air for all", RED, "middle", bold=True)
    canvas.area([(485 + 140 * math.cos(turn / 20), 135 + 88 * math.sin(turn / 20)) for turn in range(126)], PALE_RED)
    for centre, name in ((155, "switch"), (485, "access point")):
        stations = [(centre + dx, 135 + dy) for dx, dy in ((-105, -55), (105, -55), (-105, 55), (105, 55))]
        for x, y in stations:
            if centre == 155:
                canvas.line([(x, y), (centre, 135)], BLUE, 4)
            canvas.dot(x, y, INK, 10)
        canvas.box(centre - 14, 121, 28, 28, FAINT)
        canvas.tick(centre, 170, name)
    canvas.arrow((392, 86), (465, 126), RED, 4)
    canvas.arrow((505, 126), (578, 86), RED, 4)
    canvas.label(485, 250, "each frame crosses it twice", RED, "middle")
    return canvas


def clock() -> Canvas:
    """The training clock over wall time: it stands while nodes evaluate, and runs until all is sent."""
    canvas = Canvas()
    now, reading = 20.0, 220.0
    places = [(now, reading)]
    for width, color, counts in (
        (120, BLUE, True), (26, RED, True), (80, GREY, False), (120, BLUE, True), (26, RED, True), (80, GREY, False),
        (120, BLUE, True),
    ):  # fmt: skip
        canvas.box(now, 40, width - 2, 30, color)
        now, reading = now + width, reading - (0.24 * width if counts else 0)
        places.append((now, reading))
    canvas.line(places, INK, 3)
    canvas.label(24, 30, "training", BLUE, bold=True)
    canvas.label(125, 30, "draining", RED, bold=True)
    canvas.label(236, 30, "evaluation", FAINT, bold=True)
    canvas.line([(166, 75), (166, places[2][1])], GREY, 1.5, dashed=True)
    canvas.line([(246, 75), (246, places[2][1])], GREY, 1.5, dashed=True)
    canvas.label(206, places[2][1] + 26, "stands still", FAINT, "middle")
    canvas.label(600, 200, "the training clock", anchor="end", bold=True)
    canvas.tick(592, 250, "time on the wall", "end")
    canvas.line([(20, 230), (592, 230)], FAINT, 1.5)
    return canvas


def unseen_average() -> Canvas:
    """Accuracies of four nodes, their mean, and that of a mean of their replicas."""
    canvas, accuracy = Canvas(), Scale(0.78, 0.90, 30, 600)
    canvas.line([(30, 150), (600, 150)], FAINT, 1.5)
    nodes = [0.795, 0.812, 0.826, 0.838]
    for value in nodes:
        canvas.dot(accuracy(value), 150, INK, 8)
    canvas.label(accuracy(nodes[0]) - 10, 204, "what the nodes hold")
    mean = accuracy(statistics.fmean(nodes))
    canvas.line([(mean, 122), (mean, 178)], BLUE, 4)
    canvas.label(mean, 105, "scored: their mean", BLUE, "middle", bold=True)
    canvas.dot(accuracy(0.878), 150, RED, 9, hollow=True)
    canvas.label(accuracy(0.878), 112, "an average", RED, "middle", bold=True)
    canvas.label(accuracy(0.878), 132, "that nobody has", RED, "middle", bold=True)
    canvas.tick(600, 235, "accuracy", "end")
    return canvas


def step_time() -> Canvas:
    """Three nodes that compute unlike long: padded to the declared step, or too long for it."""
    canvas, time = Canvas(), Scale(0, 55, 20, 520)
    for top, computing in ((50, 22), (105, 33), (160, 48)):
        canvas.box(20, top, time(computing) - 20, 34, BLUE if computing <= 40 else RED)
        if computing < 40:
            canvas.box(time(computing), top, time(40) - time(computing), 34, GREY)
    canvas.line([(time(40), 35), (time(40), 212)], INK, 2.5, dashed=True)
    canvas.label(20, 38, "computing", BLUE, bold=True)
    canvas.label(time(29), 38, "padding", FAINT, "middle", bold=True)
    canvas.label(time(40) + 8, 72, "declared step", bold=True)
    canvas.label(time(48) + 10, 183, "too long: invalid", RED, bold=True)
    canvas.label(20, 236, "a step of three nodes", FAINT)
    return canvas


def hidden_waiting() -> Canvas:
    """A backward pass of DDP, and one without communication: what is between them."""
    canvas = Canvas()
    canvas.label(20, 38, "backward pass in DDP")
    canvas.box(20, 50, 500, 44, BLUE)
    canvas.label(20, 138, "the same, nobody communicates")
    canvas.box(20, 150, 300, 44, BLUE)
    canvas.box(320, 150, 200, 44, WHITE, RED)
    canvas.line([(320, 50), (320, 200)], RED, 2, dashed=True)
    canvas.line([(520, 50), (520, 200)], RED, 2, dashed=True)
    canvas.label(420, 228, "waiting: an estimate", RED, "middle", bold=True)
    return canvas


def payload_and_wire() -> Canvas:
    """Wire bytes for one of payload: headers, frames that are not full, gloo's messages (wire_bytes.json)."""
    canvas, size = Canvas(), Scale(0, 1.6, 20, 600)
    rows = {row["preset"]: row for row in json.loads((RECORDS / "wire_bytes.json").read_text(encoding="utf-8"))["rows"]}
    for top, preset, words in ((50, "ring-fp16", "large messages: "), (160, "ddp-powersgd", "of 700 bytes: ")):
        total = rows[preset]["wire_per_payload"]
        canvas.box(20, top, size(1) - 20, 48, BLUE)
        canvas.box(size(1), top, size(total) - size(1), 48, RED)
        canvas.label(20, top - 12, f"{words}{total:.2f} on the wire", bold=True)
    canvas.label(30, 80, "payload: 1", WHITE, bold=True)
    canvas.label(size(1.25), 232, "headers, small frames", RED, "middle", bold=True)
    canvas.line([(size(1), 42), (size(1), 215)], INK, 1.5, dashed=True)
    return canvas


def early_counter() -> Canvas:
    """A counter of sent bytes goes on after the last step: what is read at its end is too little."""
    canvas, time, count = Canvas(), Scale(0, 100, 30, 600), Scale(0, 100, 215, 25)
    canvas.line([(time(0), count(0)), (time(78), count(88)), (time(100), count(88))], BLUE, 4)
    canvas.line([(time(55), 20), (time(55), 215)], RED, 2, dashed=True)
    canvas.line([(time(86), 20), (time(86), 215)], GREEN, 2, dashed=True)
    canvas.dot(time(55), count(88 * 55 / 78), RED, 9)
    canvas.dot(time(86), count(88), GREEN, 9)
    canvas.label(time(55) - 14, count(64), "too early", RED, "end", bold=True)
    canvas.label(time(84), 118, "all sent", GREEN, "end", bold=True)
    canvas.tick(time(55), 236, "last step ends")
    canvas.tick(time(86), 236, "all stand still")
    canvas.label(40, 40, "bytes that left", BLUE)
    canvas.line([(30, 215), (600, 215)], FAINT, 1.5)
    return canvas


def bytes_and_accuracy() -> Canvas:
    """Difference to fp32 at equal samples over bytes a step, ± sd (docs/algorithms/accuracy.md)."""
    canvas, size, points = Canvas(), Scale(15, 2000, 70, 610, log=True), Scale(-2.3, 1.5, 215, 15)
    canvas.level(points, 0, 70, 610, "0", FAINT)
    canvas.level(points, -2, 70, 610, "−2")
    for name, kilobytes, difference, deviation, color in (
        ("fp32", 1242.1, 0.0, 0.0, INK), ("ring-fp16", 621.1, 0.29, 0.74, BLUE), ("bytegrad", 310.6, -0.04, 0.38, BLUE),
        ("top-k: 1.3 points below", 31.4, -1.32, 0.65, RED),
    ):  # fmt: skip
        x, y = size(kilobytes), points(difference)
        canvas.line([(x, points(difference - deviation)), (x, points(difference + deviation))], color, 4)
        canvas.dot(x, y, color, 8)
        if color == RED:
            canvas.label(x + 14, y + 6, name, color, bold=True)
        else:
            above = points(difference + deviation) - 10 if deviation else y + 30
            canvas.label(x, above, name, color, "middle", bold=True)
    canvas.axis(size, 215, [(31.4, "31 kB"), (310.6, "311 kB"), (1242.1, "1242 kB")])
    canvas.label(78, 30, "accuracy, to fp32", FAINT)
    return canvas


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
    canvas.arrow((rate(lucky), 250), (rate(lucky), 222), RED, 3)
    canvas.arrow((rate(found[0]), 250), (rate(found[0]), 222), BLUE, 3)
    canvas.label(rate(lucky) - 16, 250, "first seed's best", RED, "end", bold=True)
    canvas.label(rate(found[0]) + 16, 250, "by the means of three", BLUE, bold=True)
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
    return canvas


def host_bound() -> Canvas:
    """Steps without communication over the declared one, by nodes (published cells, two processors)."""
    canvas, step, factor = Canvas(), Scale(30, 320, 70, 600, log=True), Scale(0.99, 1.23, 215, 12)
    canvas.box(70, 12, 530, factor(1 + TOLERANCE) - 12, PALE_RED)
    canvas.level(factor, 1, 70, 600, "0 %")
    canvas.level(factor, 1.2, 70, 600, "+20 %")
    for words, places, color in (
        ("4 nodes", ((40, 1.20), (80, 1.10), (160, 1.07), (250, 1.06)), RED),
        ("8 nodes", ((80, 1.20),), INK),
        ("2 nodes", ((80, 1.015),), BLUE),
    ):
        canvas.line([(step(at), factor(value)) for at, value in places], color, 3)
        for at, value in places:
            canvas.dot(step(at), factor(value), color, 8)
        canvas.label(step(places[0][0]) + 16, factor(places[0][1]) + 6, words, color, bold=True)
    canvas.line([(70, factor(1 + TOLERANCE)), (600, factor(1 + TOLERANCE))], RED, 2, dashed=True)
    canvas.label(596, factor(1.14), "host-bound", RED, "end", bold=True)
    canvas.label(600, 256, "declared step", FAINT, "end")
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
    return canvas


def first_of_twelve() -> Canvas:
    """Twelve arms that are equally fast in truth, in the order that five repeats each put them."""
    canvas, time = Canvas(), Scale(82, 121, 220, 20, log=True)
    arms = {f"arm {number}": repeats(1300 + number, 100, 0.1) for number in range(12)}
    found = best_set(arms)
    assert set(found.members) == set(arms)
    canvas.line([(20, time(100)), (600, time(100))], GREEN, 2.5)
    for number, of_arm in enumerate(found.times.values()):
        assert of_arm.low is not None and of_arm.high is not None
        x, color = 40 + 48 * number, RED if number == 0 else BLUE
        canvas.line([(x, min(226, time(of_arm.low))), (x, max(8, time(of_arm.high)))], color, 4)
        canvas.dot(x, time(of_arm.value), color, 8)
    canvas.label(20, 252, "first, by luck", RED, bold=True)
    canvas.label(600, 252, "best set: all twelve", BLUE, "end", bold=True)
    canvas.label(20, 30, "truth: all alike", GREEN, bold=True)
    return canvas


def timing_runs() -> Canvas:
    """What runs of the same cell differ by, and what is left in the mean of three (docs/composed.md)."""
    canvas, share = Canvas(), Scale(0, 8, 20, 560)
    left = 100 * student_t(2) * 0.03 / math.sqrt(3)
    for top, value, words, color in (
        (42, 0.8, "runs within half an hour: 0.8 %", GREY),
        (118, 3.3, "hours between them: 3.3 %", RED),
        (194, left, f"left in the mean of three runs: ± {math.floor(left)} %", BLUE),
    ):
        canvas.label(20, top - 8, words, INK if color == GREY else color, bold=True)
        canvas.box(20, top, share(value) - 20, 34, color)
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


PICTURES = {
    "believed-link": believed_link,
    "super-packets": super_packets,
    "queue-length": queue_length,
    "pacing": pacing,
    "medium": medium,
    "training-clock": clock,
    "unseen-average": unseen_average,
    "step-time": step_time,
    "hidden-waiting": hidden_waiting,
    "payload-and-wire": payload_and_wire,
    "early-counter": early_counter,
    "bytes-and-accuracy": bytes_and_accuracy,
    "tuning-seeds": tuning_seeds,
    "baselines": baselines,
    "interleaved": interleaved,
    "outside-measured": outside,
    "host-bound": host_bound,
    "three-repeats": three_repeats,
    "first-of-twelve": first_of_twelve,
    "timing-runs": timing_runs,
    "composed": composed,
}
"""By the name of the file, in the order of the page."""
