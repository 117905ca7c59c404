"""A link that is changed by hand while it carries frames, in virtual time."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from bwbench.base.errors import ConfigError
from bwbench.network.backend_choice import super_packet_bytes
from bwbench.network.link import Link
from bwbench.network.link.discipline import Red
from bwbench.network.namespaces.addresses import data_port
from bwbench.network.network import Network, changed_link
from bwbench.network.relay.cross_traffic import AbstractSource, sources_of
from bwbench.network.relay.disciplines import AbstractQueue, Packet, Room
from bwbench.network.relay.early_drops import RedQueue, numbers
from bwbench.network.relay.relay_backend import RelayBackend
from bwbench.network.relay.schedule import NEVER, RelayModel
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


@pytest.mark.parametrize(
    "traced, key, words",
    [
        (("up", "down"), "bandwidth", "rate up and down; begin without"),
        (("up", "down"), "up", "begin without"),
        (("up",), "bandwidth", "change 'down' alone"),
        (("up",), "up", "a trace drives the rate up"),
    ],
)
def test_a_rate_that_a_trace_drives_is_refused(traced: tuple[str, ...], key: str, words: str) -> None:
    trace = {name: {"file": "/lte.csv", "mean": "3 Mbit/s"} for name in traced}
    asked = {**ASKED, "trace": trace}
    if traced == ("up", "down"):
        del asked["bandwidth"]
    link = Link.model_validate(asked)
    with pytest.raises(ConfigError, match=words):
        changed_link(link, {key: "2 Mbit/s"})
    assert changed_link(link, {"loss": 0.1}).trace == link.trace
    if traced == ("up",):
        assert changed_link(link, {"down": "2 Mbit/s"}).node(0).down_bps == 2e6


def test_loss_and_jitter_change_by_their_value_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = {"loss_burst": 4, "jitter_kind": "independent", "jitter_distribution": "pareto", "reorder": True}
    asked = Link.model_validate({**ASKED, "loss": 0.01, "jitter": "1 ms", **beside})
    monkeypatch.setattr("bwbench.network.network.AgentClient", _Obedient)
    network = Network(asked, 2)
    assert network.change(loss=0, jitter="0 ms") == Link.model_validate(ASKED)
    expected = {**ASKED, "loss": 0.02, "jitter": "2 ms", **beside}
    assert network.change(loss=0.02, jitter="2 ms") == Link.model_validate(expected)
    network.change(up="1 Mbit/s")
    assert network.change(bandwidth="3 Mbit/s") == Link.model_validate({**expected, "bandwidth": "3 Mbit/s"})
    with pytest.raises(ConfigError, match="nothing is to be changed"):
        network.change()


def test_the_jitter_of_a_node_that_differs_stays_of_its_kind() -> None:
    own = {"jitter_kind": "independent", "overrides": {1: {"jitter": "1 ms"}}}
    asked = Link.model_validate({**ASKED, "jitter": "3 ms", **own})
    assert changed_link(asked, {"jitter": "0 ms"}) == Link.model_validate({**ASKED, **own})


class _Obedient:
    """An agent that takes whatever it is asked."""

    def request(self, request: Any, *_: Any) -> Any:
        return SimpleNamespace(applied={}, backend="relay", backend_reason="")


def test_super_packets_stay_as_large_as_nodes_were_told() -> None:
    backend = RelayBackend.__new__(RelayBackend)
    backend.ports = (data_port(0), data_port(1))
    backend._super_packet_bytes = super_packet_bytes(Link.model_validate({"bandwidth": "400 Mbit/s"}), 2)
    for keys in ({"bandwidth": "400 Mbit/s", "latency": "9 ms"}, {"bandwidth": "1 Gbit/s"}):
        backend._check_packets(Link.model_validate(keys))
    for keys, words in (
        ({"bandwidth": "300 Mbit/s"}, "25 kB, .* at most 18.75 kB"),
        ({"bandwidth": "10 Mbit/s"}, "one by one"),
        ({"bandwidth": "400 Mbit/s", "loss": 0.01}, "one by one; make it anew"),
    ):
        with pytest.raises(ConfigError, match=words):
            backend.change(Link.model_validate(keys))
    backend._super_packet_bytes = None  # it began packet by packet
    backend._check_packets(Link.model_validate({"bandwidth": "1 Gbit/s"}))


def test_delays_go_on_from_where_they_are_where_only_a_rate_or_a_loss_changes() -> None:
    frames = [Submission(number * 0.01, 0, 1, 100) for number in range(600)]
    asked = {"jitter": "2 ms", "latency": "20 ms", "bandwidth": "100 Mbit/s"}
    steady = run(model(**asked), frames)
    changed_rate = run(model(**asked), frames, changes=[(2.0, model(**asked, queue="32 kB"))])
    assert changed_rate.ends_s == steady.ends_s
    changed_jitter = run(model(**asked), frames, changes=[(2.0, model(**{**asked, "jitter": "4 ms"}))])
    assert changed_jitter.ends_s != steady.ends_s


def test_a_share_of_the_rate_follows_the_rate() -> None:
    (source,) = sources_of(
        Link.model_validate({**ASKED, "cross_traffic": {"kind": "share", "share": 0.3}}).cross_traffic,
        0, "down", 8e6, 1000, 1,
    )  # fmt: skip
    source.start(0.0)
    before, after = _packets(source, 100.0), 0
    source.become(100.0, 2e6)
    after = _packets(source, 200.0)
    assert before == pytest.approx(0.3 * 8e6 / 8000 * 100, rel=0.05)
    assert after == pytest.approx(0.3 * 2e6 / 8000 * 100, rel=0.1)
    source.stop()
    source.become(200.0, 8e6)
    assert source.next_s == NEVER


def _packets(source: AbstractSource, until_s: float) -> int:
    packets = 0
    while source.next_s < until_s:
        packets += source.step()
    return packets


def test_red_counts_a_pause_at_the_rate_of_now() -> None:
    def average_bytes(rate_bps: float) -> float:
        queue: AbstractQueue[int] = RedQueue(Red(), Room(120_000), lambda _: None, bool, numbers("1"), 8e6)
        for number in range(2000):
            queue.put(0.0, Packet(number, 1000))
            if queue.num_packets > 20:
                queue.take(0.0)
        while queue.take(0.0):
            pass
        queue.become(Room(120_000), rate_bps)
        queue.put(1.0, Packet(0, 1000))
        assert isinstance(queue, RedQueue)
        return queue.average_bytes

    assert average_bytes(2e6) > 2 * average_bytes(8e6) > 0
