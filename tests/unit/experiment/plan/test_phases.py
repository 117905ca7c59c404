import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.base.registry import ALGORITHMS
from bwbench.methods.phases import LEAST_PERIODS, LEAST_STEPS, Phase, first_exchange, timing_steps, walk

SHAPES = ((200, 100), (100,), (100, 10), (10,))


def kinds(phases, num_steps, drained_after=()) -> list[str]:
    return [step.kind for step in walk(phases, num_steps, drained_after)]


def test_one_kind() -> None:
    assert set(kinds([Phase("training")], 50)) == {"training step"}


def test_rounds_after_a_warm_up() -> None:
    found = kinds([Phase("warm-up", 3), Phase("rounds", None, 4)], 12)
    assert found[:3] == ["warm-up step"] * 3
    assert found[3:] == [*["rounds local"] * 3, "rounds exchange"] * 2 + ["rounds local"]


def test_a_round_that_hides_behind_two_steps() -> None:
    steps = list(walk([Phase("rounds", None, 5, (0,), 2)], 12))
    names = [step.kind.removeprefix("rounds ") for step in steps]
    assert names == [*["local"] * 5, "meanwhile", "awaiting", *["local"] * 3, "meanwhile", "awaiting"]
    assert [step.age for step in steps[4:8]] == [0, 1, None, None]


def test_an_evaluation_drains_what_is_on_its_way() -> None:
    names = kinds([Phase("rounds", None, 5, (0,), 2)], 9, drained_after={6})
    assert names[5:] == ["rounds meanwhile", *["rounds local"] * 3]


@given(st.integers(1, 60), st.integers(1, 400))
def test_every_step_has_one_kind_and_rounds_come_in_their_period(period: int, num_steps: int) -> None:
    steps = list(walk([Phase("rounds", None, period)], num_steps))
    assert [step.number for step in steps] == list(range(1, num_steps + 1))
    rounds = [step.number for step in steps if step.kind in ("rounds exchange", "rounds step")]
    assert rounds == list(range(period, num_steps + 1, period))


@pytest.mark.parametrize(
    ("phases", "first"),
    [
        ([Phase("training")], 1),
        ([Phase("rounds", None, 50)], 50),
        ([Phase("rounds", None, 30, (0, 7, 15))], 7),
        ([Phase("warm-up", 3), Phase("rounds", None, 4)], 1),
        ([Phase("local", 10, 2, ()), Phase("rounds", None, 4)], 14),
        ([Phase("rounds", 3, 50), Phase("training")], 4),
        ([Phase("never", None, 4, ())], None),
        ([], None),
    ],
)
def test_when_anything_is_sent_for_the_first_time(phases: list[Phase], first: int | None) -> None:
    assert first_exchange(phases) == first
    if first is not None and phases[-1].exchanges:
        sent = [step.number for step in walk(phases, 100) if step.kind.endswith((" exchange", " step"))]
        assert sent[0] == first


@pytest.mark.parametrize("name", [name for name in ALGORITHMS.names() if name not in ("async", "deco-sgd")])
def test_a_timing_run_meets_every_kind_of_step_of_the_method_often(name: str) -> None:
    algorithm = ALGORITHMS.load(name)()
    hurried = ALGORITHMS.load(name)(algorithm.for_timing())
    phases, timed = algorithm.phases(SHAPES), hurried.phases(SHAPES)
    found = kinds(timed, timing_steps(timed))
    assert set(kinds(phases, 2000)) <= set(found)
    assert len(found) <= 300
    for kind in {kind for kind in found if not kind.endswith(" awaiting")}:
        assert found.count(kind) >= LEAST_PERIODS
    assert algorithm.depends_on_link() is None
    assert len([phase for phase in timed if phase.num_steps is not None and phase.num_steps > LEAST_STEPS]) == 0


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5, 50])
@pytest.mark.parametrize("second", [1, 2, 3, 6, 7, 50])
@pytest.mark.parametrize("period", [1, 2, 16])
def test_rounds_with_moments_of_adam_are_timed_too(first: int, second: int, period: int) -> None:
    load = ALGORITHMS.load("des-loc")
    asked = load(load.Config(period=period, first_moment=first, second_moment=second))
    timed = load(asked.for_timing()).phases(SHAPES)
    found = kinds(timed, timing_steps(timed))
    assert set(kinds(asked.phases(SHAPES), period * first * second)) == set(found)
    assert len(found) <= 66
    assert all(found.count(kind) >= LEAST_PERIODS for kind in found)


def test_a_round_says_what_it_has_along() -> None:
    load = ALGORITHMS.load("des-loc")
    found = kinds(load(load.Config(period=2)).phases(SHAPES), 12)
    plain, first = "rounds exchange", "rounds exchange with first moments"
    assert found[1::2] == [plain, plain, first, plain, plain, f"{first} with second moments"]


def test_options_that_make_the_result_depend_on_the_link() -> None:
    load = ALGORITHMS.load
    assert "link" in load("async")().depends_on_link()
    periodic = load("local-sgd")
    assert "overlap" in periodic(periodic.Config(overlap="auto")).depends_on_link()
    assert periodic(periodic.Config(overlap=3)).depends_on_link() is None
    every_step = load("every-step")
    assert "bucket" in every_step(every_step.Config(bucket_bytes="auto")).depends_on_link()


@pytest.mark.parametrize("name", ["local-sgd", "diloco", "streaming-diloco"])
@pytest.mark.parametrize("overlap", [0, 4])
@pytest.mark.parametrize("warmup", [0, 7])
def test_phases_agree_with_the_schedule_of_rounds(name: str, overlap: int, warmup: int) -> None:
    algorithm = ALGORITHMS.load(name)
    more = {"warmup": warmup} if name == "local-sgd" else {}
    made = algorithm(algorithm.Config(period=12, overlap=overlap, **more))
    schedule = made.rounds(len(made.layout(SHAPES).parts))
    begun: list[int] = []
    for step in walk(made.phases(SHAPES), 100):
        begins = any(schedule.begins(part, step.number) for part in range(len(schedule.offsets)))
        if overlap == 0:
            assert step.kind.endswith(" exchange") == begins
            continue
        due = [number for number in begun if schedule.due(number, step.number)]
        assert step.kind.endswith(" awaiting") == bool(due)
        begun = [number for number in begun if number not in due] + [step.number] * begins
        assert step.age == (step.number - begun[-1] if begun else None)
