"""What others send over a link, in virtual time: how much, when, and what it leaves to the nodes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bwbench.base.explain import explain
from bwbench.network.link import Link
from bwbench.network.relay.cross_traffic import AbstractSource, Connection, sources_of
from bwbench.network.relay.disciplines import Packet
from bwbench.network.relay.managed import ManagedBottleneck, queue_of
from bwbench.network.relay.schedule import Direction
from bwbench.network.relay.switched import Line
from tests.unit.network.relay.virtual_relay import FRAME_BYTES, Outcome, Submission, model, run, stream

PLAY = [(0.0, "play")]
RATE_BPS = 8e6


def link_with(*traffic: Any, **asked: Any) -> Any:
    return model(cross_traffic=list(traffic), **asked)


def carried(sources: list[AbstractSource], until_s: float, queue_bytes: int = 64_000) -> list[tuple[float, int]]:
    """What goes over a bottleneck of 8 Mbit/s of these sources alone: (when it has been sent, flow)."""
    seen: list[tuple[float, int]] = []
    direction = Direction(RATE_BPS, queue_bytes)

    def make(dropped: Any, mark: Any) -> Any:
        queue = queue_of(direction, FRAME_BYTES, "1", dropped, mark)
        take = queue.take

        def noted(now_s: float) -> Packet[Any] | None:
            packet = take(now_s)
            if packet is not None:
                seen.append((now_s, packet.flow))
            return packet

        queue.take = noted  # type: ignore[method-assign]
        return queue

    alone = ManagedBottleneck[Any](Line(direction), make, lambda *_: None, lambda *_: None, bool, sources, FRAME_BYTES)
    alone.switch(0.0, 0.0)
    alone.serve(until_s)
    return seen


def of(traffic: Any, seed: int = 1) -> list[AbstractSource]:
    asked = Link.model_validate({"bandwidth": "8 Mbit/s", "cross_traffic": traffic})
    direction = asked.cross_traffic[0].direction or "down"
    return sources_of(asked.cross_traffic, 0, direction, RATE_BPS, FRAME_BYTES, seed)


def rate_bps(seen: list[tuple[float, int]], begin_s: float, end_s: float) -> float:
    return sum(begin_s < time_s <= end_s for time_s, _ in seen) * FRAME_BYTES * 8 / (end_s - begin_s)


def test_a_share_takes_its_share_and_leaves_the_rest() -> None:
    frames = stream(0, 1, 12e6, 10.0)
    asked = link_with({"kind": "share", "share": 0.3, "direction": "up", "nodes": [0]})
    outcome = run(asked, frames, commands=PLAY, until_s=10.0)
    # Who floods a drop-tail queue takes some of what others, who do not give way either, have asked for.
    assert 5.6e6 < outcome.goodput_bps(frames, 1.0, 10.0) < 7.2e6
    modest = stream(0, 1, 4e6, 10.0)
    outcome = run(asked, modest, commands=PLAY, until_s=11.0)
    assert len(outcome.left) == len(modest)
    assert rate_bps(carried(of({"kind": "share", "share": "30 %"}), 100.0), 0.0, 100.0) == pytest.approx(
        2.4e6, rel=0.03
    )


def test_until_the_link_plays_nobody_else_is_there_and_once_it_is_held_neither() -> None:
    frames = stream(0, 1, 12e6, 9.0)
    asked = link_with({"kind": "share", "share": "50 %", "direction": "up"})
    outcome = run(asked, frames, commands=[(3.0, "play"), (6.0, "hold")], until_s=9.0)
    told = [outcome.goodput_bps(frames, begin_s, begin_s + 2.5) for begin_s in (0.3, 3.3, 6.3)]
    assert [told[0], told[2]] == pytest.approx([8e6, 8e6], rel=0.03)
    assert 4e6 < told[1] < 6.6e6


def test_a_connection_grows_by_slow_start_and_halves_its_window_at_a_loss() -> None:
    connection = Connection(1, 0.1)
    connection.start(0.0)
    assert (connection.next_s, connection.step()) == (0.0, 10)
    for _ in range(10):
        connection.sent(0.01)
    assert [connection.next_s, sum(connection.step() for _ in range(10))] == [pytest.approx(0.11), 20]
    connection.dropped(0.12)
    connection.dropped(0.12)
    window = connection.window
    assert connection.step() == connection.step() == 0
    assert connection.window == window / 2  # once, of what was lost in the same round trip


@pytest.mark.parametrize("kind", ["upload", "download"])
def test_a_connection_that_sends_for_ever_fills_the_link(kind: str) -> None:
    assert rate_bps(carried(of(kind), 20.0), 5.0, 20.0) > 0.95 * RATE_BPS


def test_two_connections_share_the_link() -> None:
    seen = carried(of({"kind": "upload", "connections": 2}), 60.0)
    flows = {flow for _, flow in seen}
    shares = [sum(mine == flow for time_s, mine in seen if time_s > 10) for flow in flows]
    assert len(shares) == 2
    assert min(shares) / sum(shares) > 0.35


def test_an_upload_of_others_leaves_less_and_fq_codel_keeps_its_delay_from_us() -> None:
    pings = [Submission(2.0 + number * 0.05, 0, 1, 100) for number in range(200)]
    delays_s = {}
    for queue in ("64 kB", "fq_codel"):
        asked = link_with({"kind": "upload", "nodes": [0]}, queue=queue)
        outcome = run(asked, pings, commands=PLAY, until_s=12.5)
        delays_s[queue] = sum(due_s - pings[number].time_s for due_s, _, number in outcome.left) / len(outcome.left)
    idle_s = 2.5e-3 + 2 * 100e-6
    assert delays_s["64 kB"] - idle_s > 20e-3
    assert delays_s["fq_codel"] - idle_s < 2e-3


def test_a_video_comes_in_segments() -> None:
    seen = carried(of({"kind": "video", "rate": "2 Mbit/s", "segment": "4 s"}), 41.0)
    assert rate_bps(seen, 0.0, 40.0) == pytest.approx(2e6, rel=0.01)
    assert rate_bps(seen, 4.3, 5.0) > 0.9 * RATE_BPS  # as fast as the link goes
    assert rate_bps(seen, 6.0, 8.0) < 0.01 * RATE_BPS  # 1 MB takes a second, and a little more after losses


def test_web_pages_come_with_pauses_and_have_the_mean_size_that_is_asked() -> None:
    seen = carried(of({"kind": "web", "page": "200 kB", "pause": "2 s"}), 2000.0, 10**7)
    total_bytes = len(seen) * FRAME_BYTES
    pages = 2000.0 / (2.0 + 0.15)  # six connections, each with a sixth of the page
    assert total_bytes / pages == pytest.approx(200e3, rel=0.25)
    gaps_s = [later[0] - earlier[0] for earlier, later in zip(seen, seen[1:], strict=False)]
    assert max(gaps_s) > 0.5


def test_the_same_seed_sends_the_same_and_slow_motion_the_same_more_slowly() -> None:
    kinds = [{"kind": "web", "page": "100 kB", "pause": "1 s"}, {"kind": "share", "share": 0.2, "direction": "down"}]
    assert carried(of(kinds), 5.0) == carried(of(kinds), 5.0)
    assert carried(of(kinds), 5.0) != carried(of(kinds, seed=2), 5.0)
    frames = stream(0, 1, 6e6, 3.0)
    asked = {"bandwidth": "8 Mbit/s", "latency": "2.5 ms", "queue": "20 kB", "cross_traffic": ["upload"]}
    usual = Link.model_validate(asked)

    def outcome(factor: float) -> Outcome:
        from bwbench.network.relay.schedule import RelayModel

        slowly = [Submission(time_s * factor, *rest) for time_s, *rest in frames]
        made = RelayModel.of(usual.dilated(factor), 2, lambda trace: pytest.fail("there is none"))
        return run(made, slowly, commands=PLAY, until_s=4.0 * factor)

    one, four = outcome(1.0), outcome(4.0)
    assert one.refused == four.refused and one.refused
    assert {number: 4 * time_s for number, time_s in one.ends_s.items()} == pytest.approx(four.ends_s)


@pytest.mark.parametrize(
    "traffic, words",
    [
        ("radio", ["radio", "upload"]),
        ({"kind": "share"}, ["share: 30 %"]),
        ({"kind": "video", "page": "1 MB"}, ["page", "rate, segment"]),
        ({"kind": "upload", "connections": 0}, ["0", "1 or more"]),
        ({"kind": "upload", "rtt": "0 s"}, ["0 s", "1 ms or more"]),
        ({"kind": "video", "segment": "10 us"}, ["10 us", "1 ms or more"]),
        ({"kind": "upload", "speed": 3}, ["speed", "Known"]),
    ],
)
def test_mistakes_are_told(traffic: Any, words: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        Link.model_validate({"bandwidth": "8 Mbit/s", "cross_traffic": traffic})
    told = " ".join(message for _, message in explain(caught.value, Link))
    assert all(word in told for word in words), told


def test_a_shared_air_takes_none() -> None:
    with pytest.raises(ValidationError, match="shared air"):
        link_with("upload", medium="shared")


def test_it_is_recorded_with_all_that_holds() -> None:
    asked = Link.model_validate(
        {"bandwidth": "8 Mbit/s", "cross_traffic": ["video", {"kind": "share", "share": "5 %"}]}
    )
    written = asked.model_dump(mode="json", by_alias=True)["cross_traffic"]
    assert written[0]["rate"] == "5 Mbit/s" and written[0]["direction"] == "down"
    assert Link.model_validate(asked.model_dump(mode="json", by_alias=True)) == asked
    assert "beside video, share" in asked.describe()
    assert asked.varies
