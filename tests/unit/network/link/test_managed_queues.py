"""Queues with a discipline as users write them: what is refused, what is recorded, and which cell it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bwbench.base.explain import explain
from bwbench.network.backend_choice import choose, super_packet_bytes
from bwbench.network.link import Link
from bwbench.network.link.discipline import CoDel, FqCoDel, Pie


def link(**asked: Any) -> Link:
    return Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "4 ms", **asked})


def refusal(**asked: Any) -> tuple[tuple[int | str, ...], str]:
    with pytest.raises(ValidationError) as caught:
        link(**asked)
    ((loc, message),) = explain(caught.value, Link)
    return loc, message


@pytest.mark.parametrize(
    "queue, loc, words",
    [
        ("fqcodel", ("queue",), ["fqcodel", "64 kB"]),
        ({"target": "5 ms"}, ("queue",), ["discipline", "fq_codel"]),
        ({"discipline": "fqcodel"}, ("queue", "discipline"), ["fqcodel", "Did you mean 'fq_codel'", "drop-tail"]),
        ({"discipline": "codel", "target": "5"}, ("queue", "target"), ["5", "unit"]),
        ({"discipline": "codel", "flows": 7}, ("queue", "flows"), ["unknown key", "interval"]),
        ({"discipline": "codel", "target": "0.2 s"}, ("queue",), ["target", "interval"]),
        ({"discipline": "codel", "size": "lots"}, ("queue", "size"), ["lots", "64 kB"]),
        ({"discipline": "codel", "size": "10 B"}, ("queue", "size"), ["10", "1514"]),
        ({"discipline": "pie", "ecn": "perhaps"}, ("queue", "ecn"), ["perhaps", "true or false"]),
        ({"discipline": "red", "low": 0.5}, ("queue",), ["low", "high"]),
        ({"discipline": "drop-tail", "target": "5 ms"}, ("queue", "target"), ["drop-tail", "size"]),
        ({"discipline": "pie", "update": "0.5 ms"}, ("queue", "update"), ["0.5 ms", "1 ms or more"]),
        ({"discipline": "fq_codel", "quantum": "63 B"}, ("queue", "quantum"), ["63 B", "64 B or more"]),
        ({"discipline": "fq_codel", "flows": 0}, ("queue", "flows"), ["0", "1 or more"]),
    ],
)
def test_mistakes_are_told_where_they_stand(queue: Any, loc: tuple[str, ...], words: list[str]) -> None:
    found, message = refusal(queue=queue)
    assert found == loc
    assert all(word in message for word in words), message


def test_a_link_that_names_a_discipline_reads_back_as_it_was_written() -> None:
    asked = link(queue="fq_codel", overrides={1: {"queue": {"discipline": "pie", "ecn": True}}})
    recorded = asked.model_dump(mode="json", by_alias=True)
    assert recorded["queue"] == {
        "discipline": "fq_codel",
        "ecn": False,
        "target": "5 ms",
        "interval": "100 ms",
        "flows": 1024,
        "quantum": "1.514 kB",
        "size": "10240 packets",
    }
    assert Link.recorded(recorded) == asked
    assert "fq_codel of 10240 packets" in asked.describe()
    assert asked.is_managed and asked.marks
    assert not link(queue="50 ms").is_managed


def test_each_node_has_its_own() -> None:
    asked = link(queue="fq_codel", overrides={1: {"queue": "pie"}, 2: {"queue": "64 kB"}})
    assert [type(node.discipline) for node in asked.nodes(3)] == [FqCoDel, Pie, type(None)]
    assert [node.queue_packets for node in asked.nodes(3)] == [10240, 1000, None]


def test_slow_motion_stretches_what_is_a_time() -> None:
    node = link(queue={"discipline": "codel", "size": "50 ms"}).dilated(8).node(0)
    assert node.discipline == CoDel.model_validate({"target": "40 ms", "interval": "800 ms"})
    assert node.up_queue_bytes == link(queue="50 ms").node(0).up_queue_bytes
    pie = link(queue="pie").dilated(4).node(0).discipline
    assert isinstance(pie, Pie)
    assert (pie.target_s, pie.update_s, pie.burst_s, pie.long_s) == pytest.approx((0.06, 0.06, 0.6, 1.0))
    assert (pie.alpha_per_s, pie.beta_per_s) == pytest.approx((0.125 / 4, 1.25 / 4))


def test_the_relay_carries_it_packet_by_packet() -> None:
    fast = {"bandwidth": "1 Gbit/s"}
    assert super_packet_bytes(link(**fast), 2) is not None
    assert super_packet_bytes(link(**fast, queue="fq_codel"), 2) is None
    name, reason = choose(link(queue="fq_codel"), netem_available=True)
    assert name == "relay" and "discipline" in reason
