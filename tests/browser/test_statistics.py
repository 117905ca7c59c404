"""The browser's statistics are those of bwbench.results.analysis.statistics, number for number."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from pytest import approx

from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import CENSORED, FIT, UNKNOWN, Budget, arrival_on
from bwbench.results.analysis.cell_arrival import arrival_of_cell, at_target
from bwbench.results.analysis.cells import DONE, setting_of, state_of
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.results import arrivals_by_seed, arrivals_over_bandwidths, cells_table
from bwbench.results.analysis.statistics import Arrival, Estimate, estimate
from bwbench.results.analysis.student import student_t, together
from bwbench.results.analysis.taken_apart import take_apart
from bwbench.results.page.render import scripts

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def javascript(chromium):
    context = chromium.new_context()
    page = context.new_page()
    page.add_script_tag(content=scripts(("words.js", "student.js", "statistics.js", "isotonic.js", "arrivals.js")))
    yield page
    context.close()


def made_up(rng: random.Random) -> dict[int, Arrival]:
    centre, spread = 10 ** rng.uniform(-2, 4), rng.choice([0.0, 0.01, 0.3])
    grid = rng.choice([0.0, 0.02, 0.2, 2.0]) * centre
    arrivals = {}
    for seed in rng.sample(range(8), rng.randint(1, 6)):
        time_s = centre * math.exp(rng.gauss(0, spread))
        if rng.random() < 0.15:
            arrivals[seed] = Arrival(None, rng.choice([time_s, centre]))
        else:
            arrivals[seed] = Arrival(rng.choice([time_s, time_s, time_s, 0.0]), None, grid)
    variance, freedom = rng.choice([(0.0, math.inf), (0.001, math.inf), (0.001, 2.0)])
    kin, by_pilot, pilot = rng.choice(["", "mean", "mean"]), rng.choice([False, True]), rng.choice([3, 8])
    timing = {"timing_variance": variance, "timing_freedom": freedom, "timing_by_pilot": by_pilot}
    samples = {seed: rng.choice([round(10 ** rng.uniform(2, 5)), None]) if rng.random() < 0.05 else 1000 + 37 * seed
               for seed in arrivals}  # fmt: skip
    return {seed: replace(one, kin=kin, of_pilot=seed < pilot, samples=samples[seed], **timing)
            for seed, one in arrivals.items()}  # fmt: skip


def as_json(arrival: Arrival) -> dict[str, object]:
    return {
        "time": arrival.time_s,
        "censoredAt": arrival.censored_at_s,
        "grid": arrival.grid_s,
        "timingVariance": arrival.timing_variance,
        "timingFreedom": arrival.timing_freedom,
        "timingByPilot": arrival.timing_by_pilot,
        "kin": arrival.kin,
        "ofPilot": arrival.of_pilot,
        "samples": arrival.samples,
    }


def arms_as_json(arrivals: dict[int, Arrival]) -> dict[str, dict[str, object]]:
    return {str(seed): as_json(arrival) for seed, arrival in arrivals.items()}


def numbers_of(found: Estimate) -> list[float | None]:
    return [found.value, found.low, found.high, found.at_least, found.num, found.num_censored]


def agree(one: list[float | None], other: list[float | None]) -> bool:
    return all(
        (a is None) == (b is None) and (a is None or a == approx(b, rel=1e-7)) for a, b in zip(one, other, strict=True)
    )


def test_student_t(javascript):
    freedoms = [0.7, 1.0, 1.5, 2.0, 3.3, 7.25, 30.0, 99.0, 1e4, math.inf]
    for confidence in (0.9, 0.95, 0.999):
        found = javascript.evaluate(
            "([freedoms, confidence]) => freedoms.map((f) => studentT(f, confidence))", [freedoms, confidence]
        )
        assert found == approx([student_t(f, confidence) for f in freedoms])


@pytest.mark.parametrize("seed", range(3))
def test_estimates(javascript, seed):
    rng = random.Random(seed)
    samples = [list(made_up(rng).values()) for _ in range(200)]
    found = javascript.evaluate(
        "samples => samples.map(estimate).map((e) => [e.value, e.low, e.high, e.atLeast, e.num, e.numCensored])",
        [[as_json(arrival) for arrival in arrivals] for arrivals in samples],
    )
    for arrivals, numbers in zip(samples, found, strict=True):
        assert agree(numbers_of(estimate(arrivals)), numbers), arrivals


@pytest.mark.parametrize("seed", range(3))
def test_ratios(javascript, seed):
    rng = random.Random(100 + seed)
    pairs = [(made_up(rng), made_up(rng)) for _ in range(200)]
    found = javascript.evaluate(
        "pairs => pairs.map(([one, other]) => ratioOf(one, other))",
        [[arms_as_json(one), arms_as_json(other)] for one, other in pairs],
    )
    for (one, other), js in zip(pairs, found, strict=True):
        ratio: Ratio | None = ratio_of(one, other)
        assert (ratio is None) == (js is None), (one, other)
        if ratio is not None:
            numbers = [js["value"], js["low"], js["high"], js["num"], js["numCensored"]]
            assert agree([ratio.value, ratio.low, ratio.high, ratio.num, ratio.num_censored], numbers), (one, other)
            assert ratio.bound == js["bound"] and ratio.paired == bool(js.get("paired"))
            ends = ratio.ends(1 - 2 * (1 - together(7)))
            lowest = javascript.evaluate("([one, other]) => lowestEnd(ratioOf(one, other), 7)", [
                arms_as_json(one), arms_as_json(other)])  # fmt: skip
            assert lowest == (None if ends is None else approx(ends[0], rel=1e-6))


def test_ratios_are_taken_apart_alike(javascript):
    rng = random.Random(7)
    pairs = [(made_up(rng), made_up(rng)) for _ in range(200)]
    found = javascript.evaluate(
        "pairs => pairs.map(([one, other]) => takeApart(one, other))",
        [[arms_as_json(one), arms_as_json(other)] for one, other in pairs],
    )
    for (one, other), js in zip(pairs, found, strict=True):
        parts = take_apart(one, other)
        assert (parts is None) == (js is None), (one, other)
        for name in ("step", "samples") if parts is not None else ():
            ratio = getattr(parts, name)
            assert agree([ratio.value, ratio.low, ratio.high], [js[name][key] for key in ("value", "low", "high")])
    assert sum(js is not None for js in found) > 100


def test_the_page_shows_the_times_of_the_tables(opened, cells):
    """At the recorded target: every arm and bandwidth, from the same cells."""
    done = [cell for cell in cells if state_of(cell) == DONE]
    table = cells_table(done)
    points = opened.page.evaluate(
        "pointsOf(chosenCells(), state.target).map(({arm, bandwidth, limit, estimate: e}) =>"
        " [armName(arm), bandwidth, limit, e.value, e.low, e.high, e.atLeast, e.num, e.numCensored])"
    )
    assert {point[0] for point in points} == set(table["arm"])
    for arm, bandwidth, limit, *numbers in points:
        part = table[table["arm"] == arm]
        arrivals = (
            arrivals_over_bandwidths(part) if limit else arrivals_by_seed(part[part["bandwidth_bps"] == bandwidth])
        )
        assert agree(numbers_of(estimate(list(arrivals.values()))), numbers), (arm, bandwidth)


@pytest.mark.parametrize("target", [0.6, 0.85])
def test_another_target_is_read_from_the_curves(opened, cells, target):
    """As the tables have it: by the fit, censored, or not known where too little lies behind it."""
    points = opened.page.evaluate(
        "target => pointsOf(chosenCells(), target).filter((p) => !p.limit)"
        ".map((p) => [armName(p.arm), p.bandwidth, p.seeds])",
        target,
    )
    found = {(arm, bandwidth, int(seed)): one for arm, bandwidth, seeds in points for seed, one in seeds.items()}
    checked = 0
    for cell in at_target(cells, ("accuracy", target)):
        if state_of(cell) != DONE or cell.cell.arm in ("single", "no-communication"):
            continue
        setting, arrival = setting_of(cell.cell.config), arrival_of_cell(cell)
        place = (cell.cell.arm, setting.bandwidth_bps, setting.seed)
        if arrival.arrival_kind == UNKNOWN:
            assert place not in found
            continue
        if arrival.arrival_kind == CENSORED:
            assert found[place]["time"] is None
            assert found[place]["censoredAt"] == approx(arrival.censored_at_s, rel=1e-4)
        else:
            assert arrival.arrival_kind == FIT
            assert found[place]["time"] == approx(arrival.time_to_target_s, rel=1e-4)
            assert found[place]["grid"] == 0
        checked += 1
    assert checked == len(found) > 20


def test_the_fit_is_that_of_the_analysis(javascript):
    """On noisy curves of every kind, with a limit or without, ended at a target or not."""
    rng, cases, expected = random.Random(5), [], []
    for _ in range(300):
        metric, num = rng.choice(["accuracy", "loss"]), rng.randint(0, 40)
        sign = -1.0 if metric == "loss" else 1.0
        first = rng.choice([0, 100])
        samples = [first + 100 * number for number in range(num)]
        values = [round(sign * (math.log1p(at / 1000) + rng.gauss(0, 0.1)), rng.choice([1, 3])) for at in samples]
        budget = Budget(rng.choice([None, 4000.0]), rng.choice([None, 60.0]))
        target, went_on = sign * rng.choice([0.0, 0.5, 1.0, 1.3, 2.0]), rng.random() < 0.5
        points = [{"samples": at, "value": value, "clock": at / 50} for at, value in zip(samples, values, strict=True)]
        cases.append([points, metric, target, {"samples": budget.samples, "time": budget.time_s}, went_on])
        curve = [CurvePoint(step=at, samples=at, clock_s=at / 50, metrics={metric: value})
                 for at, value in zip(samples, values, strict=True)]  # fmt: skip
        expected.append(arrival_on(curve, metric, target, budget, went_on=went_on))
    found = javascript.evaluate("cases => cases.map((one) => fittedArrival(...one))", cases)
    for one, js in zip(expected, found, strict=True):
        assert js["kind"] == one.kind
        assert js.get("time") == (None if one.clock_s is None else approx(one.clock_s))
    assert {one.kind for one in expected} == {FIT, CENSORED, UNKNOWN}
