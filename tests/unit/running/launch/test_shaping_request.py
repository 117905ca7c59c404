"""What each host is asked to shape, so that together they make the link of the cell."""

from __future__ import annotations

import math

import pytest

from bwbench.experiment.config.hosts import Host
from bwbench.network.interface.shaping_request import check_link
from bwbench.network.link import Link
from bwbench.running.launch.ssh.host_shaping import ShapingRequest, host_link
from bwbench.running.launch.ssh.preflight import HostReport, shaping_requests
from tests.unit.running.launch.hosts import facts

UNEVEN = Link.model_validate(
    {
        "bandwidth": "10 Mbit/s",
        "latency": "10 ms",
        "jitter": "2 ms",
        "jitter_kind": "independent",
        "loss": 0.02,
        "overrides": {1: {"up": "1 Mbit/s", "latency": "30 ms", "jitter": "0 ms", "loss": 0.0}},
    }
)


@pytest.mark.parametrize("src, dst", [(0, 1), (1, 0), (0, 2)])
def test_two_hosts_together_make_the_path(src: int, dst: int) -> None:
    there, here, path = host_link(UNEVEN, src), host_link(UNEVEN, dst), UNEVEN.path(src, dst)
    assert there.latency_s + here.latency_s == pytest.approx(path.latency_s)
    assert math.hypot(there.jitter_s, here.jitter_s) == pytest.approx(path.jitter_s)
    assert 1 - (1 - there.loss) * (1 - here.loss) == pytest.approx(path.loss)
    assert there.base.up_bps == UNEVEN.node(src).up_bps and here.base.down_bps == UNEVEN.node(dst).down_bps
    check_link(there, netem=True)


@pytest.mark.parametrize("queue", [None, "30 kB", "2 bdp", "17 packets"])
def test_the_queue_is_that_of_the_whole_link(queue: str | None) -> None:
    link = Link.model_validate({"bandwidth": "50 Mbit/s", "latency": "40 ms", "queue": queue})
    part = host_link(link, 0).base
    assert part.up_queue_bytes == link.base.up_queue_bytes
    assert part.queue_packets == link.base.queue_packets


def test_chance_differs_between_hosts() -> None:
    assert host_link(UNEVEN, 0).seed != host_link(UNEVEN, 1).seed


def test_every_host_shapes_what_it_says_to_the_others_but_ssh() -> None:
    reports = [
        HostReport(Host(address="10.0.0.1", interface="wlan0"), facts(ssh_port=2222)),
        HostReport(Host(address="b", port=2200, network="10.0.0.2"), facts(ssh_port=22)),
        HostReport(Host(address="c"), facts(ssh_address="10.0.0.3")),
    ]
    made = shaping_requests(reports, UNEVEN)
    assert [request.interface for request in made] == ["wlan0", None, None]
    assert [list(request.peers) for request in made] == [
        ["10.0.0.2", "10.0.0.3"],
        ["10.0.0.1", "10.0.0.3"],
        ["10.0.0.1", "10.0.0.2"],
    ]
    assert all(list(request.spared) == [22, 2200, 2222] for request in made)
    for rank, request in enumerate(made):
        again = ShapingRequest.model_validate(request.to_json())
        assert again == request and Link.model_validate(again.link) == host_link(UNEVEN, rank)
