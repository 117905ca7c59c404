"""Slow motion on a live network: what the probe finds, what TCP is told, when an outage begins, what is refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.network.emulate import emulate
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.network import Network, open_network
from tests.netns.link_command import verify
from tests.netns.nodes import output_of, start

pytestmark = [pytest.mark.netns]

LINK = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "5 ms", "backend": "relay"})
ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 5001)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    while data := connection.recv(1):
        connection.sendall(data)
"""
# What the kernel waits on a connection before it repeats, in milliseconds (tcpi_rto), after so many round trips.
WAIT = """
import socket, struct, sys
with socket.create_connection((sys.argv[1], 5001)) as connection:
    for _ in range(8):
        connection.sendall(b"x")
        connection.recv(1)
    print(struct.unpack_from("=I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 8)[0] / 1e3)
"""
BY_ROUTE = """
from bwbench.network.namespaces.data_route import tell_data_route
assert tell_data_route(0, "reno", 1.6)
"""


def wait_ms(network: Network, code: str = "") -> float:
    """Of node 0, which runs ``code`` before."""
    address = network.nodes[1].data_address
    process, read = start(network, 1, ECHO, address)
    with open(read) as stream:
        assert stream.readline() == "listening\n"
        found = float(output_of(network, 0, code + WAIT, address))
        assert process.wait(10.0) == 0, stream.read()
    return found


@pytest.mark.parametrize("dilation", [0.5, 4.0])
def test_the_probe_finds_the_link_of_the_machines_time(dilation: float) -> None:
    with emulate(LINK, 2, dilation) as nodes:
        measured = nodes.verify()
        applied = nodes.network.applied
    assert measured.verdict == "ok", measured.reasons
    assert applied["up_bps"] == 10e6 / dilation and applied["latency_s"] == 5e-3 * dilation
    assert applied["queue_bytes"] == LINK.base.up_queue_bytes
    for pair in measured.emulated(dilation).pairs:
        assert pair.achieved_goodput_bps == pytest.approx(9.72e6, rel=0.05)
        assert pair.achieved_rtt_s == pytest.approx(10e-3, rel=0.15)


@pytest.mark.skipif(not os.path.exists("/proc/sys/net/ipv4/tcp_rto_max_ms"), reason="a kernel before Linux 6.15")
@pytest.mark.parametrize("dilation, longest_ms", [(0.1, 1000), (0.5, 2500), (4.0, 20_000), (60.0, 120_000)])
def test_the_longest_wait_follows_as_far_as_the_kernel_goes_and_that_is_said(dilation: float, longest_ms: int) -> None:
    with open_network(LINK, 1, dilation=dilation) as network:
        assert network.applied["tcp"]["tcp_rto_max_ms"] == str(longest_ms)
        is_cut = any("longest wait" in words for words in network.applied["undilated"])
    assert is_cut == (longest_ms != 5000 * dilation)


def test_the_shortest_wait_follows_and_what_cannot_is_named() -> None:
    with open_network(LINK, 2, dilation=8.0) as network:
        assert wait_ms(network) >= 8 * 200
        assert network.applied["tcp"]["tcp_rto_min_us"] == "1600000"
        assert network.applied["tcp"]["rto_min_by"] in ("namespace", "route")
        assert any("delayed acknowledgements" in words for words in network.applied["undilated"])
    with open_network(LINK, 2, dilation=0.25) as network:
        assert 50 <= wait_ms(network) < 200
    with open_network(LINK, 2) as network:
        assert 200 <= wait_ms(network) < 400
        assert "undilated" not in network.applied and "tcp_rto_min_us" not in network.applied["tcp"]


def test_older_kernels_are_told_the_shortest_wait_by_the_route() -> None:
    with open_network(LINK, 2) as network:
        assert wait_ms(network, BY_ROUTE) >= 1600


def test_an_outage_begins_in_emulated_time() -> None:
    asked = Link.model_validate({**LINK.model_dump(by_alias=True), "outages": [{"at": "2 s", "duration": "10 s"}]})
    ping = "import subprocess, sys; print(subprocess.call(['ping', '-c', '1', '-W', '1', sys.argv[1]], stdout=2) == 0)"
    with open_network(asked, 2, dilation=0.5) as network:
        address = network.nodes[1].data_address

        def answers() -> bool:
            return output_of(network, 0, ping, address).splitlines()[-1] == "True"

        network.play()
        began_s = time.monotonic()
        assert answers()
        time.sleep(max(0.0, began_s + 1.2 - time.monotonic()))
        assert not answers()
        network.play(12.5)  # of emulated time: after the outage
        assert answers()


def test_what_has_no_slow_motion_is_refused_before_anything_is_made() -> None:
    bbr = Link.model_validate({**LINK.model_dump(by_alias=True), "tcp": {"congestion_control": "bbr"}})
    with pytest.raises(ConfigError, match=r"link\.tcp\.congestion_control: bbr"), open_network(bbr, 2, dilation=2.0):
        pass
    for link, dilation in ((UNSHAPED, 2.0), (LINK, 0.0)):
        with pytest.raises(ConfigError, match="dilation: "), open_network(link, 2, dilation=dilation):
            pass
    with pytest.raises(ValueError, match="link that was asked"), open_network(LINK.dilated(2.0), 2):
        pass


def test_verify_tells_both_times() -> None:
    result = verify("--json", bandwidth="10 Mbit/s", latency="2.5 ms", nodes="2", tolerance="0.5", dilation="4")
    content = json.loads(result.stdout)
    assert (content["verdict"], content["dilation"]) == ("ok", 4.0)
    assert (content["asked"]["bandwidth"], content["dilated"]["bandwidth"]) == ("10 Mbit/s", "2.5 Mbit/s")
    assert content["pairs"][0]["asked_bps"] == 2.5e6 and content["emulated"]["pairs"][0]["asked_bps"] == 10e6
    shown = verify(bandwidth="10 Mbit/s", latency="2.5 ms", nodes="2", tolerance="0.5", dilation="4")
    assert "4 times slower: 2.5 Mbit/s" in shown.stdout and "in emulated time:" in shown.stdout


def test_a_trace_is_read_at_its_own_pace(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text("time_s,rate_mbit_s\n0,8\n1,2\n2,8\n")
    keys = {"latency": "1 ms", "trace": f"{tmp_path}/steps.csv", "backend": "relay"}
    keys["trace"] = {"file": keys["trace"], "format": "csv", "measures": "link"}
    with emulate(keys, 2, 2.0) as nodes:
        applied = nodes.network.applied
        mean_bps = nodes.link.base.up_bps
        assert nodes.verify().verdict == "ok"
    assert applied["up_bps"] == pytest.approx(mean_bps / 2) == applied["up_trace"]["mean_bps"]
