"""From a link to what the relay's schedules need, and what is recorded of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bwbench.network.link import Link
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.link.variation import Trace
from bwbench.network.relay.schedule import RelayModel, applied_relay

RATES = RateTrace([0, 1, 2], [8e6, 4e6])
TRACE = {"file": "/data/office.tsv", "mean": "6 Mbit/s", "sha256": "0" * 64}


def link(**asked: Any) -> Link:
    changed = {"bandwidth": "10 Mbit/s", "latency": "4 ms", **asked}
    return Link.model_validate({key: value for key, value in changed.items() if value is not None})


def model(asked: Link, num_nodes: int = 3) -> RelayModel:
    return RelayModel.of(asked, num_nodes, lambda trace: RATES)


def told(asked: Link) -> Any:
    """What is recorded of it, once it has come from the agent."""
    applied = applied_relay(model(asked), "nice -10")
    found = json.loads(json.dumps(applied))
    assert found == applied
    return found


def test_every_node_gets_its_own_rates_queues_and_paths() -> None:
    asked = link(up="2 Mbit/s", overrides={1: {"bandwidth": "1 Mbit/s", "latency": "20 ms", "queue": "30 packets"}})
    found = model(asked)
    assert [direction.rate_bps for direction in found.up] == [2e6, 1e6, 2e6]
    assert [direction.rate_bps for direction in found.down] == [10e6, 1e6, 10e6]
    assert [direction.queue_packets for direction in found.down] == [None, 30, None]
    assert found.down[0].queue_bytes == 64_000
    assert found.paths[0][2].latency_s == 4e-3
    assert found.paths[0][1].latency_s == found.paths[1][2].latency_s == pytest.approx(12e-3)
    assert (found.has_jitter, found.has_loss, found.varies) == (False, False, False)


def test_nodes_that_are_alike_share_what_they_are() -> None:
    found = model(link(overrides={7: {"loss": 0.1}}), 254)
    assert len({id(row) for row in found.paths}) == 2
    assert found.has_loss


def test_a_trace_is_read_once_and_its_mean_is_the_rate() -> None:
    read: list[Trace] = []

    def load(trace: Trace) -> RateTrace:
        read.append(trace)
        return RATES

    asked = link(bandwidth=None, trace=TRACE, overrides={1: {"bandwidth": "1 Mbit/s"}})
    found = RelayModel.of(asked, 3, load)
    assert len(read) == 1
    assert [direction.rate_bps for direction in found.up] == [6e6, 1e6, 6e6]
    assert [direction.fastest_bps for direction in found.down] == [8e6, 1e6, 8e6]
    assert found.varies


def test_a_trace_that_nobody_has_read_yet_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="freeze_link"):
        model(link(bandwidth=None, trace="office.tsv"))


def test_a_fault_scales_rates_traces_the_air_and_latencies() -> None:
    asked = link(bandwidth=None, trace=TRACE, medium="shared", standard="802.11n")
    honest, faulty = model(asked), model(asked).with_fault(rate=0.5, latency=3)
    assert faulty.up[0].rate_bps == honest.up[0].rate_bps / 2
    assert faulty.up[0].trace is not None and list(faulty.up[0].trace.rates_bps) == [4e6, 2e6]
    assert faulty.paths[0][1].latency_s == pytest.approx(12e-3)
    assert honest.air is not None and faulty.air is not None
    assert faulty.air.overhead_s == pytest.approx(2 * honest.air.overhead_s)


def test_what_is_recorded_speaks_the_links_language() -> None:
    asked = link(
        up="2 Mbit/s",
        jitter="1 ms",
        jitter_distribution="pareto",
        loss=0.01,
        loss_burst=4,
        queue="100 packets",
        seed=7,
        outages=[{"at": "10 s", "duration": "1 s", "nodes": [1]}],
        overrides={1: {"bandwidth": "1 Mbit/s"}, 2: {"trace": TRACE}},
    )
    found = told(asked)
    names = ("bandwidth_bps", "up_bps", "down_bps", "latency_s", "jitter_s", "loss", "medium", "seed")
    assert [found[key] for key in names] == [2e6, 2e6, 10e6, 4e-3, 1e-3, 0.01, "switched", 7]
    assert (found["queue_packets"], found["jitter_distribution"], found["reorder"]) == (100, "pareto", False)
    assert found["burst_loss"]["bad_to_good"] == 0.25
    assert found["air"] is None
    assert found["nodes"]["1"] == {"up_bps": 1e6, "down_bps": 1e6}
    assert found["nodes"]["2"]["up_trace"] == found["nodes"]["2"]["down_trace"]
    assert found["nodes"]["2"]["up_trace"]["mean_bps"] == 6e6
    assert found["outages"][0]["nodes"] == [1]


def test_the_air_is_recorded_in_numbers() -> None:
    asked = link(medium="shared", standard="802.11n", fairness="airtime", wired=[2], bandwidth="65 Mbit/s")
    air = told(asked)["air"]
    assert (air["efficiency"], air["aggregation"], air["fairness"], air["wired"]) == (0.65, 20, "airtime", [2])
    assert air["overhead_s"] == pytest.approx(20 * 1514 * 8 / 65e6 * (1 / 0.65 - 1))
