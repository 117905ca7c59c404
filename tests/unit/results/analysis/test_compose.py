import math
import random
import statistics

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated_runs import BATCH, Machine, clock_of, train

from bwbench.methods.phases import LEAST_STEPS, Phase, timing_steps
from bwbench.records.schema import Evaluation, Step
from bwbench.results.analysis.compose import compose
from bwbench.results.analysis.composition import Composition, NotComposableError

EVERY = (Phase("training"),)
NO_LINK = Machine(compute_s=0.01, exchange_s=0.0)


def composed(phases, machine, target_step, timed_phases=None, num_steps=400, every=16, **options) -> Composition:
    timed_phases = timed_phases or phases
    convergence = train(phases, NO_LINK, num_steps, every, target_step)
    timing = train(timed_phases, machine, timing_steps(timed_phases), every)
    return compose(convergence, [timing], phases, timed_phases, has_target=True, **options)


def whole(phases, machine, target_step, num_steps=400, every=16) -> float:
    return clock_of(train(phases, machine, num_steps, every, target_step))


@st.composite
def methods(draw):
    """Phases without overlap, and the same hurried."""
    period = draw(st.integers(1, 40))
    offset = draw(st.integers(0, period - 1))
    last, hurried = (Phase("rounds", None, p, (min(offset, p - 1),)) for p in (period, min(period, 8)))
    if not draw(st.booleans()):
        return (last,), (hurried,)
    warm_up = draw(st.integers(1, 120))
    return (Phase("warm-up", warm_up), last), (Phase("warm-up", min(warm_up, LEAST_STEPS)), hurried)


@given(methods(), st.integers(1, 380), st.integers(5, 60), st.floats(0.001, 0.5), st.floats(0, 3))
@settings(max_examples=30, deadline=None)
def test_without_chance_a_composed_time_is_that_of_the_whole_run(method, target_step, every, compute_s, exchange_s):
    phases, hurried = method
    machine = Machine(compute_s, exchange_s)
    found = composed(phases, machine, target_step, hurried, every=every)
    assert found.time_to_target_s == pytest.approx(whole(phases, machine, target_step, every=every))
    assert found.training_clock_s == found.time_to_target_s
    assert found.reason == "target"
    assert sum(kind.total_s for kind in found.kinds) == pytest.approx(found.time_to_target_s)
    assert sum(kind.num_steps for kind in found.kinds if kind.name != "evaluation") == found.steps


@given(st.integers(10, 40), st.integers(1, 10), st.floats(0.01, 2.0), st.integers(20, 300), st.integers(7, 50))
@example(period=35, overlap=6, exchange_s=1.0, target_step=205, every=12)  # all that were timed were cut short
@settings(max_examples=30, deadline=None)
def test_exchanges_that_hide_behind_steps(period, overlap, exchange_s, target_step, every):
    """Also where an evaluation cuts them short, and where the link is slower than what there is to hide behind."""
    phases = (Phase("rounds", None, period, (0,), overlap),)
    machine = Machine(0.05, exchange_s)
    found = composed(phases, machine, target_step, every=every)
    expected_s = whole(phases, machine, target_step, every=every)
    if exchange_s > 0.05 * overlap:  # seen in full by those that wait for it
        assert found.time_to_target_s == pytest.approx(expected_s, rel=0.01, abs=0.01)
    else:  # seen only where an evaluation has waited for one
        assert found.time_to_target_s == pytest.approx(expected_s, rel=0.2, abs=exchange_s)


def test_the_curve_is_that_of_the_convergence_run_on_another_clock() -> None:
    found = composed(EVERY, Machine(0.05, 0.2, waited_s=0.01), 100, every=10)
    assert [point.step for point in found.curve] == list(range(0, 101, 10))
    assert found.curve[0].clock_s == 0
    assert found.curve[4].clock_s == pytest.approx(40 * 0.25 + 4 * 0.01)
    assert found.samples_to_target == found.samples == 100 * BATCH
    assert found.steps == 100
    assert found.payload_bytes == found.payload_bytes_to_target == 4 * 100 * 1000


def test_a_target_that_is_not_reached_is_censored_at_the_end_of_the_composed_run() -> None:
    found = composed(EVERY, Machine(0.05, 0.2, waited_s=0.0), None, num_steps=160)
    assert found.time_to_target_s is None
    assert found.censored_at_s == pytest.approx(160 * 0.25)
    assert found.reason == "samples"


def test_the_time_limit_holds_on_the_composed_clock() -> None:
    found = composed(EVERY, Machine(0.05, 0.2, waited_s=0.0), 100, limit_s=10.0)
    assert found.reason == "time"
    assert found.censored_at_s == pytest.approx(10.0)
    assert found.steps == 40
    assert found.curve[-1].step == 32
    assert composed(EVERY, Machine(0.05, 0.2), 100, limit_s=100.0).reason == "target"


def test_beyond_the_target_to_the_limit() -> None:
    convergence = train(EVERY, NO_LINK, 160, target_step=None)
    for rank_events in convergence.values():
        for number, event in enumerate(rank_events):
            if isinstance(event, Evaluation) and event.step >= 80:
                rank_events[number] = event.model_copy(update={"target_met": True})
    timing = train(EVERY, Machine(0.05, 0.2, waited_s=0.0), timing_steps(EVERY))
    found = compose(convergence, [timing], EVERY, EVERY, has_target=True, ends_at_target=False)
    assert found.time_to_target_s == pytest.approx(80 * 0.25)
    assert found.training_clock_s == pytest.approx(160 * 0.25)
    assert found.reason == "samples"
    assert found.censored_at_s is None


def test_without_a_target_there_is_neither_time_nor_censoring() -> None:
    convergence = train(EVERY, NO_LINK, 64)
    timing = train(EVERY, Machine(), timing_steps(EVERY))
    found = compose(convergence, [timing], EVERY, EVERY, has_target=False)
    assert found.time_to_target_s is None
    assert found.censored_at_s is None
    assert found.training_clock_s > 0


def test_steps_that_send_more_than_those_that_were_timed_take_longer() -> None:
    """As a threshold's do once the residuals have grown."""
    link = Machine(0.05, 0.01, byte_s=2e-4, bytes_of=lambda step: 500 + 10 * step)
    convergence = train(EVERY, Machine(0.01, 0.0, bytes_of=link.bytes_of), 320, target_step=320)
    timing = train(EVERY, link, timing_steps(EVERY))
    per_rank = len(convergence)
    found = compose(convergence, [timing], EVERY, EVERY, has_target=True, seconds_per_byte=2e-4 / per_rank)
    expected_s = clock_of(train(EVERY, link, 320, target_step=320))
    assert found.time_to_target_s == pytest.approx(expected_s, rel=1e-3)
    assert found.max_payload_ratio > 4
    without = compose(convergence, [timing], EVERY, EVERY, has_target=True)
    assert without.time_to_target_s < 0.6 * expected_s


def test_bytes_of_a_link_that_nobody_waits_for_cost_nothing() -> None:
    convergence = train(EVERY, Machine(0.01, 0.0, bytes_of=lambda step: 9000), 64, target_step=64)
    timing = train(EVERY, Machine(0.05, 0.0), timing_steps(EVERY))
    found = compose(convergence, [timing], EVERY, EVERY, has_target=True, seconds_per_byte=1.0)
    assert found.time_to_target_s == pytest.approx(64 * 0.05 + 4 * 0.001)


def test_steps_that_send_less_take_no_less_than_their_computing() -> None:
    convergence = train(EVERY, Machine(0.01, 0.0, bytes_of=lambda step: 0), 64, target_step=64)
    timing = train(EVERY, Machine(0.05, 0.2, waited_s=0.0), timing_steps(EVERY))
    found = compose(convergence, [timing], EVERY, EVERY, has_target=True, seconds_per_byte=1.0)
    assert found.time_to_target_s == pytest.approx(2 * 0.25 + 62 * 0.05)


def test_the_first_steps_count_once_however_slow_they_are() -> None:
    timing = train(EVERY, Machine(0.05, 0.2, waited_s=0.0), timing_steps(EVERY))
    for rank_events in timing.values():
        number = next(number for number, event in enumerate(rank_events) if isinstance(event, Step))
        rank_events[number] = rank_events[number].model_copy(update={"duration_s": 5.25})
    convergence = train(EVERY, NO_LINK, 160, target_step=160)
    found = compose(convergence, [timing], EVERY, EVERY, has_target=True)
    assert found.time_to_target_s == pytest.approx(160 * 0.25 + 5)


def test_ranks_that_wait_for_each_other_count_by_their_mean() -> None:
    """One is always late in local steps, the others wait for it in the round: every rank's clock is the same."""
    phases = (Phase("rounds", None, 4),)
    timing = train(phases, Machine(0.1, 0.2, waited_s=0.0), timing_steps(phases), ranks=2)
    for number, event in enumerate(timing[1]):
        if isinstance(event, Step):
            more_s = 0.03 if event.step % 4 else -0.09
            timing[1][number] = event.model_copy(update={"duration_s": event.duration_s + more_s})
    convergence = train(phases, NO_LINK, 160, target_step=160)
    found = compose(convergence, [timing], phases, phases, has_target=True)
    assert found.time_to_target_s == pytest.approx(160 * 0.1 + 40 * 0.2)


def test_a_kind_that_was_not_timed_is_an_error() -> None:
    phases = (Phase("warm-up", 20), Phase("training"))
    timing = train(phases, Machine(), 20)
    with pytest.raises(NotComposableError, match="'training step'"):
        compose(train(phases, NO_LINK, 64), [timing], phases, phases, has_target=True)


def test_runs_without_steps_or_with_holes_are_errors() -> None:
    timing = train(EVERY, Machine(), 30)
    with pytest.raises(NotComposableError, match="no steps"):
        compose({0: []}, [timing], EVERY, EVERY, has_target=True)
    torn = {rank: [e for e in events if getattr(e, "step", None) != 7] for rank, events in timing.items()}
    with pytest.raises(NotComposableError, match="missing"):
        compose(timing, [torn], EVERY, EVERY, has_target=True)


@pytest.mark.parametrize("phases", [EVERY, (Phase("rounds", None, 16),)], ids=["every step", "rounds"])
def test_the_interval_covers_whole_runs(phases) -> None:
    """Of 50 timing runs, each against a whole run of its own: 95 % intervals hold at least 88 % of them."""
    hurried = (Phase(phases[0].name, None, min(phases[0].period, 8)),)
    machine = Machine(0.05, 0.3, noise=0.2)
    convergence = train(phases, NO_LINK, 320, target_step=320)
    inside = 0
    widths = []
    for trial in range(50):
        timing = train(hurried, machine, timing_steps(hurried), seed=2 * trial)
        found = compose(convergence, [timing], phases, hurried, has_target=True, seed=trial)
        low, high = found.interval_s
        truth_s = clock_of(train(phases, machine, 320, target_step=320, seed=2 * trial + 1))
        inside += low <= truth_s <= high
        widths.append((high - low) / truth_s)
    assert inside >= 44
    assert sum(widths) / len(widths) < 0.4


def test_the_interval_is_the_same_each_time_and_holds_the_time() -> None:
    convergence = train(EVERY, NO_LINK, 160, target_step=160)
    timing = train(EVERY, Machine(noise=0.3), timing_steps(EVERY), seed=random.Random(1).randrange(1000))
    one, other = (compose(convergence, [timing], EVERY, EVERY, has_target=True, seed=3) for _ in range(2))
    assert one == other
    assert one.interval_s[0] < one.time_to_target_s < one.interval_s[1]


def test_no_interval_where_nothing_varies() -> None:
    assert composed(EVERY, Machine(waited_s=0.0), 100).interval_s is None


def test_of_several_timing_runs_the_geometric_mean_stands() -> None:
    convergence = train(EVERY, NO_LINK, 200, 20, target_step=100)
    timings = [train(EVERY, Machine(0.05, wait_s, waited_s=0.0), timing_steps(EVERY)) for wait_s in (0.15, 0.2, 0.35)]
    alone = [compose(convergence, [timing], EVERY, EVERY, has_target=True) for timing in timings]
    found = compose(convergence, timings, EVERY, EVERY, has_target=True)
    expected_s = statistics.geometric_mean(one.time_to_target_s for one in alone)
    assert found.time_to_target_s == pytest.approx(expected_s)
    assert found.training_clock_s == found.time_to_target_s
    logs = [math.log(one.time_to_target_s) for one in alone]
    assert found.between_share == pytest.approx(statistics.variance(logs))
    assert sum(kind.total_s for kind in found.kinds) == pytest.approx(expected_s)
    assert [kind.num_timed for kind in found.kinds] == [3 * kind.num_timed for kind in alone[0].kinds]
    assert found.interval_s[0] < alone[0].time_to_target_s < alone[2].time_to_target_s < found.interval_s[1]
    assert all(one.between_share is None for one in alone)


def test_the_limit_of_time_ends_the_mean_of_the_runs() -> None:
    convergence = train(EVERY, NO_LINK, 200, 20, target_step=100)
    timings = [train(EVERY, Machine(0.05, wait_s, waited_s=0.0), timing_steps(EVERY)) for wait_s in (0.15, 0.35)]
    found = compose(convergence, timings, EVERY, EVERY, has_target=True, limit_s=2.0)
    step_s = statistics.geometric_mean((0.2, 0.4))
    assert found.reason == "time" and found.censored_at_s == pytest.approx(math.ceil(2.0 / step_s) * step_s)


def test_the_test_split_stands_on_the_composed_curve() -> None:
    """Where the convergence run has looked at it; an evaluation behind ``limit.time`` is no part of the run."""
    convergence = train(EVERY, NO_LINK, 64)
    for events in convergence.values():
        for event in [e for e in events if isinstance(e, Evaluation) and e.step >= 32]:
            test = event.model_copy(update={"split": "test", "mean": {"accuracy": event.step / 100}, "waited_s": None})
            events.insert(events.index(event) + 1, test)
    timing = train(EVERY, Machine(0.05, 0.2), timing_steps(EVERY))
    whole = compose(convergence, [timing], EVERY, EVERY, has_target=False)
    assert [(point.step, point.test["accuracy"]) for point in whole.curve] == [
        (0, None), (16, None), (32, 0.32), (48, 0.48), (64, 0.64)
    ]  # fmt: skip
    assert whole.curve[2].clock_s == pytest.approx(32 * 0.25, rel=0.01)
    cut = compose(convergence, [timing], EVERY, EVERY, has_target=False, limit_s=10.0)
    assert cut.curve[-1].test == {"accuracy": 0.32}
