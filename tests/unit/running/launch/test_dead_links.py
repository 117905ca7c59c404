"""Whose link is dead follows from what the kernels repeat and from what still enters the link."""

from __future__ import annotations

import os
import socket

import pytest

from bwbench.network.backend import PairCounter, WireCounters
from bwbench.running.launch.liveness import DEAD_AFTER_S, DeadLinks, Unanswered, unanswered, unanswered_in

ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100000A:1F90 0200000A:9C40 01 00000BB8:00000000 01:00000014 00000004  0 0 1 2 0 0 0 0 0
   1: 0100000A:1F91 0300000A:9C41 01 00000BB8:00000000 04:00000014 00000004  0 0 1 2 0 0 0 0 0
   2: 0100000A:1F92 0300000A:9C42 01 00000000:00000000 00:00000000 00000000  0 0 1 2 0 0 0 0 0
   3: broken
"""


def waiting(src: int, dst: int, repeats: int) -> Unanswered:
    return Unanswered((ADDRESSES[src], 4000 + dst), (ADDRESSES[dst], 5000), repeats)


def counters(**frames: int) -> WireCounters:
    return WireCounters({(int(name[1]), int(name[2])): PairCounter(frames=count) for name, count in frames.items()})


def watched(edges: list[tuple[int, int]], frames: list[WireCounters], step_s: float = 1.0) -> str | None:
    """What is said after as many looks as there are counters, all connections repeating more and more often."""
    links = DeadLinks(ADDRESSES)
    for second, now in enumerate(frames):
        links.look(second * step_s, [waiting(*edge, 1 + second) for edge in edges], now)
    return links.verdict((len(frames) - 1) * step_s, frames[-1])


def test_a_table_is_read_and_only_unanswered_data_counts() -> None:
    expected = Unanswered(("10.0.0.1", 0x1F90), ("10.0.0.2", 0x9C40), 4)
    if os.sys.byteorder == "little":  # the table is in the machine's own order
        assert list(unanswered_in(TABLE)) == [expected]


def test_the_own_table_can_be_read_and_a_dead_process_has_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert unanswered(os.getpid()) == []
    assert unanswered(2**22 + 1) == []


def test_the_node_whose_frames_do_not_enter_is_named() -> None:
    still = [counters(p01=7, p10=5)] * 25
    assert "link of node 0 is dead" in str(watched([(0, 1)], still))
    growing = [counters(p01=7 + second, p10=5) for second in range(25)]
    assert "link of node 1 is dead" in str(watched([(0, 1)], growing))


def test_several_silent_connections_point_at_one_node() -> None:
    frames = [counters(p01=9, p12=10 + second, p10=4, p21=10) for second in range(25)]
    reason = str(watched([(0, 1), (1, 0)], [counters(p01=10 + s, p10=4) for s in range(25)]))
    assert "link of node 1 is dead" in reason and "0 to 1, 1 to 0" in reason
    assert "links of nodes 0 and 2 are dead" in str(watched([(0, 1), (1, 2)], frames))


def test_where_nodes_are_counted_together_the_common_end_is_named() -> None:
    both = (WireCounters.ANY_NODE, WireCounters.ANY_NODE)
    frames = [WireCounters({both: PairCounter(frames=second)}) for second in range(25)]
    assert "link of node 1 is dead" in str(watched([(0, 1), (1, 2)], frames))
    assert "links of nodes 0 and 1 are dead" in str(watched([(0, 1)], frames))


@pytest.mark.parametrize("seconds", [5, 12, int(DEAD_AFTER_S)])
def test_an_outage_that_may_still_end_is_waited_for(seconds: int) -> None:
    assert watched([(0, 1)], [counters(p01=7)] * seconds) is None


def test_a_slow_link_that_answers_now_and_then_is_alive() -> None:
    links, now = DeadLinks(ADDRESSES), counters(p01=7)
    for second in range(200):  # an acknowledgement every 12 s, in between repetitions
        links.look(float(second), [waiting(0, 1, 1 + second % 12 // 3)] if second % 12 > 1 else [], now)
        assert links.verdict(float(second), now) is None


def test_the_control_network_does_not_count() -> None:
    links = DeadLinks(ADDRESSES)
    for second in range(60):
        links.look(float(second), [Unanswered(("10.1.0.1", 1), ("10.1.0.2", 2), 9)], counters(p01=7))
    assert links.verdict(59.0, counters(p01=7)) is None
