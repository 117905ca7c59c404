"""The pictures of docs/measuring-honestly.md on link, clock and bytes. Measured numbers are those of links.md and of
records."""

from __future__ import annotations

import json
import math
import random
import statistics

from canvas import BLUE, FAINT, GREEN, GREY, INK, PALE, PALE_RED, RED, WHITE, Canvas, Scale
from statistics_page import RECORDS

from bwbench.results.analysis.student import student_t

LINK_TOLERANCE = 0.05  # of a rate, docs/measuring-honestly.md
TUNING_SEEDS = 1000  # and those above it: no results


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
    """Goodput of a ring of TCP by queue, 8 nodes, cubic, 100 Mbit/s, round trip of 5 ms (docs/links.md)."""
    canvas, share = Canvas(), Scale(0, 1, 20, 560)
    canvas.line([(share(1), 20), (share(1), 225)], FAINT, 2, dashed=True)
    for top, value, words, color in ((48, 0.99, "a queue of 50 ms", BLUE), (150, 0.74, "of 5 ms, one round trip", RED)):
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


def latency() -> Canvas:
    """A frame there and one back, over time: what is asked for is one way, what tables show is both and the wire."""
    canvas = Canvas()
    for y, name in ((60, "node A"), (160, "node B")):
        canvas.line([(90, y), (560, y)], FAINT, 1.5)
        canvas.tick(80, y + 5, name, "end")
    for left, top, foot in ((110, 60, 160), (312, 160, 60)):
        canvas.area([(left, top), (left + 42, top), (left + 202, foot), (left + 160, foot)], PALE)
        canvas.line([(left, top), (left + 42, top)], RED, 6)
        canvas.arrow((left, top), (left + 160, foot), BLUE, 3)
    canvas.label(312, 94, "latency: one way", BLUE, "middle", bold=True)
    canvas.label(152, 40, "time on the wire", RED, "middle", bold=True)
    for x, y in ((110, 60), (514, 60)):
        canvas.line([(x, y), (x, 216)], INK, 1.5, dashed=True)
    canvas.arrow((312, 208), (110, 208))
    canvas.arrow((312, 208), (514, 208))
    canvas.label(312, 238, "round trip, in tables", INK, "middle", bold=True)
    canvas.tick(628, 65, "time", "end")
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


def slow_node() -> Canvas:
    """A step of four nodes, of which one computes twice as long: where the others' time goes."""
    canvas, time = Canvas(), Scale(0, 130, 80, 560)
    for number, computing in enumerate((60, 60, 60, 120)):
        top = 22 + 46 * number
        canvas.tick(70, top + 22, f"node {number}", "end")
        canvas.box(time(0), top, time(computing) - time(0), 32, BLUE)
        if computing < 120:
            canvas.box(time(computing), top, time(120) - time(computing), 32, RED)
        canvas.box(time(120), top, time(130) - time(120), 32, GREY)
    canvas.label(time(30), 44, "computing", WHITE, "middle", bold=True)
    canvas.label(time(90), 44, "waiting for peers", WHITE, "middle", bold=True)
    canvas.label(time(60), 182, "slow: waits for nobody", WHITE, "middle", bold=True)
    canvas.label(570, 44, "the link", FAINT)
    for at in (0, 60, 120):
        canvas.tick(time(at), 230, f"{at} ms")
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


def codec_cost() -> Canvas:
    """A step that sends all, and one that sends less: what encoding and decoding take is part of it."""
    canvas = Canvas()
    canvas.label(20, 42, "a step that sends everything")
    canvas.box(20, 54, 190, 44, BLUE)
    canvas.box(212, 54, 390, 44, GREY)
    canvas.label(115, 82, "computing", WHITE, "middle", bold=True)
    canvas.tick(407, 118, "the link")
    canvas.label(20, 156, "one that sends a tenth")
    canvas.box(20, 168, 190, 44, BLUE)
    canvas.box(212, 168, 170, 44, RED)
    canvas.box(384, 168, 39, 44, GREY)
    canvas.label(297, 196, "codec", WHITE, "middle", bold=True)
    canvas.label(433, 196, "on the clock as well", RED, bold=True)
    canvas.tick(602, 244, "time", "end")
    return canvas


def bytes_and_accuracy() -> Canvas:
    """Difference to fp32 at equal seeds and samples over bytes a step, with its 95 % interval (accuracy.jsonl)."""
    canvas, size, points = Canvas(), Scale(0.2, 2500, 60, 620, log=True), Scale(-5.2, 1.6, 212, 15)
    text = (RECORDS / "accuracy.jsonl").read_text(encoding="utf-8")
    rows = [row for row in map(json.loads, text.splitlines()) if row["lr"] == 0.05 and row["seed"] < TUNING_SEEDS]
    by_arm = {arm: {row["seed"]: row for row in rows if row["arm"] == arm} for arm in {row["arm"] for row in rows}}
    canvas.level(points, 0, 60, 620, "0", FAINT)
    for value in (-2, -4):
        canvas.level(points, value, 60, 620, f"−{-value}")
    canvas.dot(size(1242.1), points(0), INK, 8)
    canvas.label(size(1242.1) + 12, points(0) + 30, "fp32", INK, "middle", bold=True)
    for arm, kilobytes, words, color in (
        ("bytegrad", 310.6, "bytegrad", BLUE),
        ("top-k", 31.4, "top-k: perhaps lower", INK),
        ("sparseloco", 0.4, "sparseloco: lower", RED),
    ):
        off = [100 * (row["accuracy"] - by_arm["ring"][seed]["accuracy"]) for seed, row in by_arm[arm].items()]
        x, mean = size(kilobytes), statistics.fmean(off)
        half = student_t(len(off) - 1) * statistics.stdev(off) / math.sqrt(len(off))
        assert (mean + half < 0) == (color == RED)
        canvas.line([(x, points(mean - half)), (x, points(mean + half))], color, 4)
        canvas.dot(x, points(mean), color, 8)
        if color == BLUE:
            canvas.label(x, points(mean + half) - 10, words, color, "middle", bold=True)
        else:
            canvas.label(x + 14, points(mean - half) - 2, words, color, bold=True)
    canvas.axis(size, 212, [(0.4, "0.4 kB"), (31.4, "31 kB"), (310.6, "311 kB"), (1242.1, "1242 kB")])
    canvas.tick(70, 28, "points of accuracy, against fp32", "start")
    canvas.tick(628, 252, "bytes a step", "end")
    return canvas


PICTURES = {
    "believed-link": believed_link,
    "super-packets": super_packets,
    "queue-length": queue_length,
    "pacing": pacing,
    "medium": medium,
    "latency": latency,
    "training-clock": clock,
    "unseen-average": unseen_average,
    "step-time": step_time,
    "slow-node": slow_node,
    "hidden-waiting": hidden_waiting,
    "payload-and-wire": payload_and_wire,
    "early-counter": early_counter,
    "codec-cost": codec_cost,
    "bytes-and-accuracy": bytes_and_accuracy,
}
"""By the name of the file, in the order of the page."""
