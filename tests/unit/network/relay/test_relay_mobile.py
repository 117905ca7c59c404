"""Hand-overs and rates that follow demand, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bwbench.network.link import Link
from bwbench.network.relay.schedule import RelayModel
from tests.unit.network.relay.virtual_relay import Outcome, Submission, model, run, stream

PLAY = [(0.0, "play")]
MOVES = {"every": "15 s", "spread": "10 ms", "extra": "30 ms", "lasts": "0.2 s"}
IDLE_S = 50e-3 + 2 * 100e-6  # of a ping of 100 B


def pings(until_s: float, src: int = 0, dst: int = 1) -> list[Submission]:
    return [Submission(number * 0.01, src, dst, 100) for number in range(round(until_s / 0.01))]


def delays_s(outcome: Outcome, frames: list[Submission]) -> dict[float, float]:
    """By the time of sending: how much longer than on the link as it is asked."""
    return {frames[number].time_s: end_s - frames[number].time_s - IDLE_S for number, end_s in outcome.ends_s.items()}


@pytest.mark.parametrize("medium", ["switched", "shared"])
def test_every_fifteen_seconds_there_is_a_new_path(medium: str) -> None:
    frames = pings(300.0)
    outcome = run(model(latency="50 ms", handover=MOVES, medium=medium), frames, commands=PLAY)
    added_s = delays_s(outcome, frames)
    paths_s = []
    for number in range(20):
        inside = [extra for time_s, extra in added_s.items() if 15 * number + 0.3 < time_s < 15 * number + 14.9]
        assert max(inside) - min(inside) < 1e-9  # the same path for as long as it lasts
        paths_s.append(inside[0])
    assert len({round(path_s, 6) for path_s in paths_s}) == 20
    assert max(map(abs, paths_s)) <= 10e-3
    for number in range(1, 20):
        at_first = [extra for time_s, extra in added_s.items() if 15 * number + 0.01 < time_s < 15 * number + 0.19]
        assert at_first == pytest.approx([paths_s[number] + 30e-3] * len(at_first), abs=1e-6)


def test_frames_keep_their_order_where_a_path_is_shorter_than_the_one_before() -> None:
    frames = pings(200.0)
    outcome = run(model(latency="50 ms", handover=MOVES), frames, commands=PLAY)
    assert [number for _, _, number in outcome.left] == list(range(len(frames)))


def test_a_hand_over_loses_its_share_and_nothing_is_lost_between_two() -> None:
    frames = pings(600.0)
    outcome = run(model(latency="50 ms", handover={**MOVES, "loss": 0.5}), frames, commands=PLAY)
    into_s = [frames[number].time_s % 15 for number in outcome.lost]
    assert not outcome.refused
    assert all(time_s > 14.9 or time_s < 0.2 for time_s in into_s)  # a frame is lost where it arrives
    assert len(into_s) == pytest.approx(39 * 20 * 0.5, rel=0.15)


def test_nodes_that_are_not_named_stay_where_they_are() -> None:
    asked = model(latency="50 ms", handover={**MOVES, "nodes": [0]})
    still, half = pings(40.0, 2, 3), pings(40.0, 0, 3)
    assert max(map(abs, delays_s(run(asked, still, commands=PLAY), still).values())) < 1e-9
    at_first = [
        added for time_s, added in delays_s(run(asked, half, commands=PLAY), half).items() if 15.01 < time_s < 15.19
    ]
    after = delays_s(run(asked, half, commands=PLAY), half)[16.0]
    assert at_first == pytest.approx([after + 15e-3] * len(at_first), abs=1e-6)


def test_until_the_link_plays_its_latency_is_what_was_asked() -> None:
    frames = pings(40.0)
    outcome = run(model(latency="50 ms", handover=MOVES), frames, commands=[(20.0, "play")])
    added_s = delays_s(outcome, frames)
    assert max(abs(added) for time_s, added in added_s.items() if time_s < 19.9) < 1e-9
    assert abs(added_s[25.0]) > 1e-6


DEMAND = {"least": 0.25, "rise": "200 ms", "fall": "500 ms"}


def sent_s(num_bytes: int, begin_s: float = 0.0, **asked: Any) -> float:
    """How long a burst takes from its first byte to its last one's arrival, without the latency."""
    frames = [Submission(begin_s, 0, 1, 1000)] * (num_bytes // 1000)
    outcome = run(model(demand=DEMAND, queue="10 MB", latency="0 ms", **asked), frames, commands=PLAY)
    return outcome.left[-1].due_s - begin_s


def test_a_short_burst_gets_less_than_a_long_transfer() -> None:
    """What a replay that was recorded at saturation misses (Sentosa and others, CellReplay, NSDI 2025)."""
    short_bps, long_bps = 20e3 * 8 / sent_s(20_000), 4e6 * 8 / sent_s(4_000_000)
    assert short_bps < 0.35 * 8e6  # 8 Mbit/s is the whole rate; two links are in series
    assert long_bps > 0.95 * 8e6


def test_the_rate_is_there_after_the_rise_and_gone_after_a_silence() -> None:
    frames = [*stream(0, 1, 12e6, 2.0), *stream(0, 1, 12e6, 1.0, begin_s=2.2), *stream(0, 1, 12e6, 1.0, begin_s=5.0)]
    outcome = run(model(demand=DEMAND, queue="20 kB"), frames, commands=PLAY)
    assert outcome.goodput_bps(frames, 0.5, 1.5) == pytest.approx(8e6, rel=0.01)
    assert outcome.goodput_bps(frames, 2.25, 2.3) > 5e6  # 0.2 s of silence take 40 % of what had risen
    assert outcome.goodput_bps(frames, 5.01, 5.06) < 4e6


def test_until_it_plays_and_once_it_is_held_the_rate_is_all_there() -> None:
    frames = [Submission(time_s, 0, 1, 1000) for time_s in (1.0, 3.0, 5.0)]
    outcome = run(model(demand=DEMAND, latency="0 ms"), frames, commands=[(2.0, "play"), (4.0, "hold")])
    took_s = [end_s - frames[number].time_s for number, end_s in sorted(outcome.ends_s.items())]
    assert took_s == pytest.approx([2e-3, 8e-3, 2e-3])


def test_in_slow_motion_it_is_the_same_more_slowly() -> None:
    asked = {"bandwidth": "8 Mbit/s", "latency": "50 ms", "queue": "20 kB", "demand": DEMAND, "handover": MOVES}
    frames = stream(0, 1, 9e6, 32.0)

    def ends_s(factor: float) -> dict[int, float]:
        made = RelayModel.of(Link.model_validate(asked).dilated(factor), 2, lambda trace: pytest.fail("none"))
        slowly = [Submission(time_s * factor, *rest) for time_s, *rest in frames]
        return {number: end_s / factor for number, end_s in run(made, slowly, commands=PLAY).ends_s.items()}

    assert ends_s(4.0) == pytest.approx(ends_s(1.0))


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"handover": {"every": "1 s", "lasts": "2 s", "extra": "1 ms"}}, "lasts"),
        ({"handover": {}}, "changes nothing"),
        ({"demand": {}}, "least"),
        ({"demand": {"least": 0.2}, "medium": "shared"}, "base station"),
    ],
)
def test_mistakes_are_told(asked: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        model(**asked)
