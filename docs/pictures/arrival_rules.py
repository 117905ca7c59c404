"""The pictures of docs/statistics.md on when a curve has arrived: made-up curves, and what is found in them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence

from canvas import BLUE, FAINT, GREEN, GREY, GRID, INK, PALE, RED, Canvas, Scale
from statistics_page import RECORDS, ends_of

from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import crossing, first_crossing, isotonic
from bwbench.results.analysis.statistics import Arrival

TARGET = 0.87


def flickering(seed: int, end: int, flicker: float) -> list[CurvePoint]:
    """An accuracy that rises like those of results/published/precision, and truly meets 0.87 after 38,000 samples."""
    rng = random.Random(seed)
    found = []
    for samples in range(4000, end + 1, 4000):
        u = math.log(samples / 38_000)
        accuracy = TARGET + 0.03 * (u - 0.2 * u * u) + rng.gauss(0, flicker)
        found.append(CurvePoint(step=samples, metrics={"accuracy": accuracy}, samples=samples, clock_s=samples))
    return found


def arrival() -> Canvas:
    """The first evaluation that meets the target, and where the fit does."""
    canvas, samples, accuracy = Canvas(), Scale(9000, 120_000, 50, 620, log=True), Scale(0.822, 0.905, 215, 15)
    curve = flickering(35, 120_000, 0.0085)
    canvas.level(accuracy, TARGET, 50, 620, "0.87", INK)
    canvas.label(620, accuracy(TARGET) + 20, "target", anchor="end")
    for point in curve:
        if point.samples > 9000:
            canvas.dot(samples(point.samples), accuracy(point.metrics["accuracy"] or 0), GREY, 5)
    _fit(canvas, curve, samples, accuracy)
    first, fitted = first_crossing(curve, "accuracy", TARGET), crossing(curve, "accuracy", TARGET)
    assert first is not None and fitted is not None
    x, y = samples(first.samples), accuracy(first.metrics["accuracy"] or 0)
    canvas.dot(x, y, RED, 8)
    canvas.label(x - 4, y - 14, "first crossing: a lucky peak", RED, "end", bold=True)
    canvas.dot(samples(fitted), accuracy(TARGET), BLUE, 8)
    canvas.label(samples(fitted) + 4, 205, "arrival: the fit crosses", BLUE, bold=True)
    canvas.line([(samples(fitted), accuracy(TARGET) + 8), (samples(fitted), 215)], BLUE, 2, dashed=True)
    canvas.axis(samples, 215, [(10_000, "10,000"), (30_000, "30,000")])
    canvas.tick(620, 235, "100,000 samples", "end")
    canvas.tick(58, 28, "accuracy", "start")
    return canvas


def another_target() -> Canvas:
    """A curve that ended at its first crossing: evaluations on both sides of a lower target, none behind its own."""
    canvas, samples, accuracy = Canvas(), Scale(5500, 70_000, 50, 620, log=True), Scale(0.79, 0.885, 215, 15)
    whole = flickering(6, 120_000, 0.0085)
    first = first_crossing(whole, "accuracy", TARGET)
    curve = [point for point in whole if first is not None and point.samples <= first.samples]
    for value, color in ((TARGET, RED), (0.84, BLUE)):
        canvas.level(accuracy, value, 50, 620, f"{value}", color)
    for point in curve:
        if point.samples > 5500:
            canvas.dot(samples(point.samples), accuracy(point.metrics["accuracy"] or 0), GREY, 5)
    _fit(canvas, curve, samples, accuracy)
    fitted = crossing(curve, "accuracy", 0.84)
    assert fitted is not None
    canvas.dot(samples(fitted), accuracy(0.84), BLUE, 8)
    canvas.label(samples(fitted) + 12, accuracy(0.84) + 26, "arrival: points before and behind", BLUE, bold=True)
    end = curve[-1]
    canvas.dot(samples(end.samples), accuracy(end.metrics["accuracy"] or 0), RED, 8)
    canvas.label(samples(end.samples) - 14, accuracy(TARGET) - 16, "the run ended here", RED, "end", bold=True)
    canvas.axis(samples, 215, [(10_000, "10,000"), (30_000, "30,000")])
    canvas.tick(620, 235, "samples", "end")
    canvas.tick(58, 28, "accuracy", "start")
    return canvas


def arrival_bias() -> Canvas:
    """By how much four rules are off on average, of two kinds of curves (benchmarks/records/arrival.json)."""
    canvas, off = Canvas(), Scale(-0.30, 0.14, 235, 620)
    shapes = {row["name"]: row for row in json.loads((RECORDS / "arrival.json").read_text(encoding="utf-8"))["shapes"]}
    for value in (-0.2, -0.1, 0.1):
        canvas.line([(off(value), 15), (off(value), 195)], GRID, 1.5)
    canvas.line([(off(0), 15), (off(0), 195)], GREEN, 3)
    for y, words, rule in (
        (35, "first crossing", "first"),
        (80, "mean of three", "three"),
        (125, "mean of five", "moving"),
        (170, "the fit", "fit"),
    ):
        color = BLUE if rule == "fit" else RED
        ring, top_k = (shapes[name][f"{rule}_bias"] for name in ("ring", "top-k"))
        canvas.label(12, y + 6, words, color, bold=True)
        canvas.line([(off(ring), y), (off(top_k), y)], color, 3)
        canvas.dot(off(ring), y, color, 8)
        canvas.dot(off(top_k), y, color, 8, hollow=True)
    canvas.axis(off, 195, [(-0.2, "−20 %"), (-0.1, "−10 %"), (0, "0"), (0.1, "+10 %")])
    canvas.tick(off(-0.15), 240, "arrival found too early")
    canvas.tick(620, 240, "too late", "end")
    canvas.dot(20, 234, INK, 7)
    canvas.tick(32, 240, "like ring", "start")
    canvas.dot(120, 234, INK, 7, hollow=True)
    canvas.tick(132, 240, "like top-k", "start")
    return canvas


def grid() -> Canvas:
    """Three repeats that meet the target at the same evaluation: somewhere in the interval before it."""
    canvas, time, accuracy = Canvas(), Scale(60, 140, 30, 610), Scale(0.76, 0.93, 180, 10)
    told = [Arrival(110.0, grid_s=20.0) for _ in range(3)]
    canvas.box(time(90), 10, time(110) - time(90), 205, PALE)
    for value in (70, 90, 110, 130):
        canvas.line([(time(value), 15), (time(value), 215)], GRID, 1.5)
    canvas.level(accuracy, TARGET, 30, 610, color=INK)
    canvas.label(32, accuracy(TARGET) - 8, "target")
    for shift, color in ((-5, GREY), (0, GREY), (5, GREY)):
        curve = [(value, TARGET + 0.1 * math.log((value + shift) / 100) * 1.8) for value in range(60, 141, 2)]
        canvas.line([(time(value), accuracy(height)) for value, height in curve if 0.76 <= height <= 0.93], color, 3)
    value, low, high = ends_of(told)
    canvas.interval(time(low), time(told[0].middle_s), time(high), 198, BLUE)
    canvas.dot(time(value), accuracy(TARGET), RED, 8)
    canvas.label(time(value) + 10, accuracy(TARGET) + 26, "recorded: the latest", RED, bold=True)
    canvas.label(time(100), 250, "met somewhere in here", BLUE, "middle", bold=True)
    for value in (70, 90, 110, 130):
        canvas.line([(time(value), 208), (time(value), 222)], INK, 3)
    canvas.label(610, 250, "evaluations", FAINT, "end")
    canvas.tick(38, 26, "accuracy", "start")
    canvas.tick(610, 230, "time", "end")
    return canvas


def _fit(canvas: Canvas, curve: Sequence[CurvePoint], samples: Scale, accuracy: Scale) -> None:
    """The isotonic fit, straight between the centres of its blocks."""
    blocks = [(math.exp(block.centre), block.value) for block in isotonic(curve, "accuracy")]
    inside = [(at, value) for at, value in blocks if at >= samples.low]
    canvas.line([(samples(at), accuracy(value)) for at, value in inside], BLUE, 3)


PICTURES = {"arrival": arrival, "another-target": another_target, "arrival-bias": arrival_bias, "evaluation-grid": grid}
"""By the name of the file, in the order of the page."""
