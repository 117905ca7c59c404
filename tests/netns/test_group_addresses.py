"""Multicast and broadcast reach every other node, as on a switch; each copy is shaped and counted."""

from __future__ import annotations

import os
import time

import pytest

from bwbench.network.link import UNSHAPED, Link
from bwbench.network.network import open_network
from tests.netns.nodes import output_of, start

pytestmark = [pytest.mark.netns]

RELAY = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "20 ms", "backend": "relay"})
PORT = 5007
LISTEN = """
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(("", int(sys.argv[2])))
if sys.argv[1].startswith("224."):
    end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(sys.argv[1]) + bytes(4))
end.settimeout(15)
print("listening", flush=True)
print(*end.recvfrom(100))
"""
SEND = """
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
end.sendto(b"all of you", (sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("link", [RELAY, UNSHAPED], ids=["relay", "unshaped"])
def test_what_is_for_all_reaches_all_others(link: Link) -> None:
    with open_network(link, 3) as network:
        for port, group in enumerate(("224.0.0.251", "10.77.0.255", "255.255.255.255"), PORT):
            listening = [start(network, node, LISTEN, group, str(port)) for node in (1, 2)]
            streams = [os.fdopen(read) for _, read in listening]
            assert [stream.readline() for stream in streams] == ["listening\n"] * 2
            time.sleep(0.2)  # reports of membership, which go to all as well
            before = network.counters()
            output_of(network, 0, SEND, group, str(port))
            for (process, _), stream in zip(listening, streams, strict=True):
                with stream:
                    assert "all of you" in stream.read(), group
                assert process.wait(20) == 0
            sent = network.counters().minus(before).pairs
            if link is RELAY:
                copies = {pair: counter.frames for pair, counter in sent.items() if pair[0] == 0}
                assert copies == {(0, 1): 1, (0, 2): 1}
        assert network.looked_outside() == []
