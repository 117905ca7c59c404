"""A link that is changed by hand while it carries frames, in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bwbench.base.errors import ConfigError
from bwbench.network.link import Link
from bwbench.network.network import changed_link
from bwbench.network.relay.schedule import RelayModel
from tests.unit.network.relay.virtual_relay import LATENCY_S, Submission, model, run, stream

ASKED = {"bandwidth": "8 Mbit/s", "latency": "2.5 ms", "queue": "64 kB"}


def changed(**keys: Any) -> RelayModel:
    return model(**keys)


@pytest.mark.parametrize("asked", [{}, {"medium": "shared"}, {"queue": "fq_codel"}, {"queue": "40 packets"}])
def test_from_a_change_on_the_rate_is_the_new_one(asked: dict[str, Any]) -> None:
    frames = stream(0, 1, 12e6, 6.0)
    halves = 2 if "medium" in asked else 1  # a frame crosses the air twice
    outcome = run(model(**asked), frames, changes=[(3.0, model(bandwidth="2 Mbit/s", **asked))])
    assert outcome.goodput_bps(frames, 1.0, 3.0) == pytest.approx(8e6 / halves, rel=0.03)
    assert outcome.goodput_bps(frames, 3.5, 6.0) == pytest.approx(2e6 / halves, rel=0.03)


@pytest.mark.parametrize("queue", ["64 kB", "fq_codel", "50 packets"])
def test_what_waits_goes_on_at_the_new_rate_and_nothing_overtakes(queue: str) -> None:
    frames = [Submission(0.0, 0, 1, 1000)] * 40
    outcome = run(model(queue=queue), frames, changes=[(0.0205, model(queue=queue, bandwidth="2 Mbit/s"))])
    assert [number for _, _, number in outcome.left] == list(range(40))
    gaps_s = [later.due_s - earlier.due_s for earlier, later in pairwise(outcome.left)]
    assert gaps_s[:15] == pytest.approx([1e-3] * 15)
    assert gaps_s[-15:] == pytest.approx([4e-3] * 15)


def test_latency_and_loss_are_those_of_now() -> None:
    frames = [Submission(number * 0.01, 0, 1, 100) for number in range(1000)]
    outcome = run(model(), frames, changes=[(2.0, model(latency="20 ms")), (5.0, model(latency="20 ms", loss=0.3))])
    delays_s = {
        frames[number].time_s: end_s - frames[number].time_s - 200e-6 for number, end_s in outcome.ends_s.items()
    }
    assert delays_s[1.0] == pytest.approx(LATENCY_S)
    assert delays_s[3.0] == pytest.approx(20e-3)
    assert len(outcome.lost) == pytest.approx(150, rel=0.2)
    assert all(frames[number].time_s > 4.9 for number in outcome.lost)


def test_a_jitter_that_is_added_keeps_the_order() -> None:
    frames = [Submission(number * 0.001, 0, 1, 100) for number in range(4000)]
    outcome = run(model(), frames, changes=[(2.0, model(jitter="2 ms", jitter_kind="independent"))])
    assert [number for _, _, number in outcome.left] == list(range(4000))


def test_what_can_be_changed_goes_on_top_of_what_was_asked() -> None:
    asked = Link.model_validate({**ASKED, "up": "1 Mbit/s"})
    assert changed_link(asked, {"loss": "2 %"}) == Link.model_validate({**ASKED, "up": "1 Mbit/s", "loss": 0.02})
    assert changed_link(asked, {"bandwidth": "4 Mbit/s"}) == Link.model_validate({**ASKED, "bandwidth": "4 Mbit/s"})
    assert changed_link(asked, {"up": "2 Mbit/s"}) == Link.model_validate({**ASKED, "up": "2 Mbit/s"})


@pytest.mark.parametrize(
    "keys, words",
    [({}, "bandwidth"), ({"medium": "shared"}, "medium"), ({"latency": "5"}, "unit"), ({"loss": 2}, "less than 1")],
)
def test_mistakes_are_told(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        changed_link(Link.model_validate(ASKED), keys)
