"""From a link to netem's parameters."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.network.link import ETHERNET_FRAME_BYTES, UNSHAPED, Link
from bwbench.network.netem.shape import (
    NetemQdisc,
    NodeShape,
    applied_netem,
    cuts_jitter,
    queue_packets,
    shape,
    split_paths,
)


def link(bandwidth: str = "10 Mbit/s", **asked: object) -> Link:
    return Link.model_validate({"bandwidth": bandwidth, **asked})


def alike(asked: Link) -> NodeShape:
    """The shape of each of two nodes, which differ in their seeds alone."""
    one, other = shape(asked, 2)
    assert one.without_seeds() == other.without_seeds()
    return one


def test_a_link_becomes_a_rate_both_ways_and_a_delay_once() -> None:
    node = alike(link(latency="2.5 ms", loss=0.01))
    assert node.up == node.down
    assert node.up.rate_bytes_per_s == 1_250_000
    assert (node.up.delay_us, node.up.jitter_us, node.up.loss) == (0, 0, 0.0)
    assert node.line is not None
    assert (node.line.delay_us, node.line.loss) == (2500, 0.01)
    assert node.out is None


def test_without_latency_jitter_and_loss_there_is_no_line() -> None:
    assert set(alike(link()).qdiscs()) == {"up", "down"}


def test_both_directions_have_their_rate_and_their_queue() -> None:
    node = alike(link(up="2 Mbit/s", down="30 Mbit/s", latency="10 ms", queue="2 bdp"))
    assert (node.up.rate_bytes_per_s, node.down.rate_bytes_per_s) == (250_000, 3_750_000)
    # Twice 2 Mbit/s x 20 ms are 10 kB, less than 64 kB; twice 30 Mbit/s x 20 ms are 150 kB.
    assert (node.up.limit_packets, node.down.limit_packets) == (43 + 1, 100 + 1)


def test_a_queue_in_packets_is_taken_as_it_is() -> None:
    assert alike(link(queue="30 packets")).up.limit_packets == 31


def test_an_override_is_of_its_node_alone() -> None:
    slow = {"up": "1 Mbit/s", "down": "3 Mbit/s", "queue": "10 packets"}
    shapes = shape(link(latency="5 ms", overrides={1: slow}), 3)
    assert (shapes[1].up.rate_bytes_per_s, shapes[1].down.rate_bytes_per_s) == (125_000, 375_000)
    assert shapes[1].up.limit_packets == shapes[1].down.limit_packets == 11
    assert shapes[0] == shapes[2]
    assert shapes[0].up.rate_bytes_per_s == 1_250_000
    assert all(node.out is None for node in shapes)  # latency, jitter and loss are the same everywhere


def test_a_node_that_is_further_away_alone_has_a_way_out() -> None:
    shapes = shape(link(latency="4 ms", overrides={2: {"latency": "30 ms", "loss": 0.1}}), 3)
    assert [node.out is None for node in shapes] == [True, True, False]
    assert shapes[2].out is not None and shapes[2].out.delay_us == 13_000
    assert shapes[2].line is not None and shapes[2].line.delay_us == 17_000
    assert shapes[0].line is not None and shapes[0].line.delay_us == 4_000


def test_jitter_goes_where_a_delay_is_that_it_can_vary_around() -> None:
    shapes = shape(link(latency="20 ms", jitter="1 ms", overrides={1: {"jitter": "3 ms"}}), 2)
    assert [(node.out.delay_us, node.out.jitter_us) for node in shapes if node.out] == [(10_000, 707), (10_000, 2121)]
    assert [(node.line.delay_us, node.line.jitter_us) for node in shapes if node.line] == [
        (10_000, 707),
        (10_000, 2121),
    ]


@given(
    kinds=st.lists(
        st.tuples(st.floats(0, 0.1), st.floats(0, 0.01), st.floats(0, 0.5)), min_size=2, max_size=5
    )
)  # fmt: skip
def test_out_and_line_make_up_every_path(kinds: list[tuple[float, float, float]]) -> None:
    overrides = {
        node: {"latency": DURATION.format(latency_s), "jitter": DURATION.format(jitter_s), "loss": loss}
        for node, (latency_s, jitter_s, loss) in enumerate(kinds)
    }
    asked = link(overrides=overrides)
    parts = split_paths(asked.nodes(len(kinds)))
    for src, (out, _) in enumerate(parts):
        for dst, (_, line) in enumerate(parts):
            path = asked.path(src, dst)
            assert min(out.latency_s, line.latency_s, out.jitter_s, line.jitter_s) >= 0
            assert out.latency_s + line.latency_s == pytest.approx(path.latency_s, rel=1e-12, abs=1e-12)
            assert math.hypot(out.jitter_s, line.jitter_s) == pytest.approx(path.jitter_s, rel=1e-9, abs=1e-12)
            assert (1 - out.loss) * (1 - line.loss) == pytest.approx(1 - path.loss, rel=1e-12)


def test_a_jitter_without_room_is_noticed() -> None:
    assert not cuts_jitter(link(latency="1 ms", jitter="2 ms").nodes(2))  # every path has as little: it is asked for
    assert cuts_jitter(link(latency="10 ms", overrides={1: {"jitter": "4 ms"}}).nodes(2))
    assert not cuts_jitter(link(latency="10 ms", overrides={1: {"jitter": "3 ms"}}).nodes(2))


@pytest.mark.parametrize("distribution", ["normal", "uniform", "pareto"])
def test_jitter_keeps_the_order_of_packets_unless_asked_and_costs_no_time(distribution: str) -> None:
    asked: dict[str, Any] = {"latency": "5 ms", "jitter": "1 ms", "jitter_distribution": distribution}
    line = alike(link(**asked)).line
    assert line is not None and (line.jitter_us, line.distribution) == (1000, distribution)
    assert ETHERNET_FRAME_BYTES / line.rate_bytes_per_s < 1e-6
    reorders = alike(link(**asked, jitter_kind="independent", reorder=True)).line
    assert reorders is not None and reorders.rate_bytes_per_s == 0


def test_bursts_of_loss_are_a_chain_on_the_line() -> None:
    asked = link(loss=0.05, loss_burst=4, loss_in_bad=0.8, loss_in_good=0.001, overrides={1: {"latency": "9 ms"}})
    for node in shape(asked, 2):
        assert node.line is not None
        assert (node.line.loss, node.line.burst) == (0.0, asked.burst_loss)
        assert node.line.mean_loss == pytest.approx(0.05)
        assert node.out is None or node.out.mean_loss == 0


def test_the_seed_makes_numbers_of_its_own_for_every_random_qdisc() -> None:
    asked = link(latency="5 ms", loss=0.1, overrides={1: {"loss": 0.2}})
    seeds = [qdisc.seed for node in shape(asked, 4) for qdisc in node.qdiscs().values() if qdisc.seed is not None]
    assert len(seeds) == len(set(seeds)) == 4 + 1  # four lines, and the way out of node 1
    assert shape(asked, 4) == shape(asked, 4)
    other = shape(asked.model_copy(update={"seed": 2}), 4)
    assert not set(seeds) & {qdisc.seed for node in other for qdisc in node.qdiscs().values()}
    assert all(node.up.seed is node.down.seed is None for node in shape(asked, 4))


def test_what_is_in_flight_is_no_part_of_the_queue() -> None:
    near, far = alike(link(queue="64 kB", latency="1 ms")), alike(link(queue="64 kB", latency="1 s"))
    assert near.up.limit_packets == far.up.limit_packets == near.down.limit_packets
    assert far.line is not None
    in_flight_packets = 10e6 / 8 * 1.0 / 60  # frames of the shortest kind
    assert far.line.limit_packets > in_flight_packets


@given(
    bandwidth_bps=st.floats(1e3, 1e12),
    latency_s=st.floats(0, 10),
    jitter_s=st.floats(0, 1),
    loss=st.floats(0, 1, exclude_max=True),
    queue_bytes=st.integers(ETHERNET_FRAME_BYTES, 10**9),
)
def test_rounding_to_the_kernels_units_stays_small(
    bandwidth_bps: float, latency_s: float, jitter_s: float, loss: float, queue_bytes: int
) -> None:
    node = alike(
        link(
            BANDWIDTH.format(bandwidth_bps),
            latency=DURATION.format(latency_s),
            jitter=DURATION.format(jitter_s),
            loss=loss,
            queue=f"{queue_bytes} B",
        )
    )
    assert node.up.rate_bytes_per_s * 8 == pytest.approx(bandwidth_bps, rel=4.1e-3, abs=4)
    assert (node.up.limit_packets - 1) * ETHERNET_FRAME_BYTES == pytest.approx(queue_bytes, abs=ETHERNET_FRAME_BYTES)
    line = node.line or NetemQdisc(0)
    assert line.delay_us == pytest.approx(latency_s * 1e6, abs=0.51)
    assert line.jitter_us == pytest.approx(jitter_s * 1e6, abs=0.51)
    assert line.loss == loss
    for qdisc in node.qdiscs().values():
        assert 0 < qdisc.limit_packets < 2**32
        assert all(isinstance(word, int) for word in qdisc.words() if word is not None)


def test_the_default_queue_takes_50_ms_where_that_is_more_than_64_kb() -> None:
    assert alike(link("10 Mbit/s", latency="2.5 ms")).up.limit_packets == 44  # ceil(64 kB / 1514 B) + 1
    for latency in ("0 ms", "100 ms"):
        assert alike(link("100 Mbit/s", latency=latency)).up.limit_packets == 414  # ceil(625 kB / 1514 B) + 1
    assert alike(link("100 Mbit/s", latency="50 ms", queue="1 bdp")).up.limit_packets == 827  # ceil(1250 kB / …) + 1
    assert queue_packets(10**13, None, ETHERNET_FRAME_BYTES) == 2**32 - 1


def test_what_is_recorded_speaks_the_links_language() -> None:
    asked = link("10 Mbit/s", up="4 Mbit/s", latency="2.5 ms", loss=0.01, overrides={0: {"latency": "1 ms"}})
    told: Any = applied_netem(asked, shape(asked, 4), seed_applied=False)
    assert (told["bandwidth_bps"], told["up_bps"], told["down_bps"]) == (4e6, 4e6, 10e6)
    assert (told["latency_s"], told["jitter_s"], told["loss"]) == (2.5e-3, 0, 0.01)
    assert (told["queue_packets"], told["seed"], told["seed_applied"]) == (44, 1, False)
    assert [shapes["nodes"] for shapes in told["shapes"]] == [[0], [1, 2, 3]]
    assert set(told["shapes"][0]) == {"nodes", "up", "out", "line", "down"}
    assert json.loads(json.dumps(told)) == told


OUTAGE = {"at": "1 s", "duration": "1 s"}


@pytest.mark.parametrize("asked", [UNSHAPED, link(medium="shared"), link(outages=[OUTAGE])])
def test_links_that_are_not_netems_are_a_mistake_of_ours(asked: Link) -> None:
    with pytest.raises(ValueError):
        shape(asked, 2)
