"""Counters, the choice of a back end, and the line between parent and agent."""

from __future__ import annotations

import json
import os
import socket

import pytest

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.network.backend_choice import choose
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.namespaces.agent_protocol import ControlSocket
from bwbench.network.namespaces.backend import PairCounter, WireCounters


def link(**asked: object) -> Link:
    return Link.model_validate({"bandwidth": "10 Mbit/s", **asked})


@pytest.mark.parametrize(
    "asked, netem_available, expected",
    [
        (link(), True, "netem"),
        (link(), False, "relay"),
        (link(backend="relay"), True, "relay"),
        (link(backend="netem"), True, "netem"),
        (link(medium="shared"), True, "relay"),
        (link(outages=[{"at": "1 s", "duration": "1 s"}]), True, "relay"),
        (link(trace={"up": "office.tsv"}), True, "relay"),
        (link(latency="50 ms", jitter="5 ms"), True, "relay"),
        (link(latency="50 ms", jitter="5 ms", jitter_kind="independent"), True, "netem"),
        (link(latency="5 s", jitter="3 s", jitter_kind="independent"), True, "relay"),
        (link(latency="5 ms", overrides={1: {"jitter": "5 ms"}}, jitter_kind="independent"), True, "relay"),
        (link(latency="50 ms", overrides={1: {"jitter": "5 ms"}}, jitter_kind="independent"), True, "netem"),
        (link(bandwidth="100 Gbit/s"), True, "netem"),
        (UNSHAPED, True, "unshaped"),
        (UNSHAPED, False, "unshaped"),
    ],
)
def test_the_choice_and_its_reason(asked: Link, netem_available: bool, expected: str) -> None:
    name, reason = choose(asked, netem_available=netem_available)
    assert name == expected
    assert reason


@pytest.mark.parametrize(
    "asked, available, error",
    [
        (link(backend="netem"), False, UnfitMachineError),
        (link(backend="netem", medium="shared"), True, ConfigError),
        (link(backend="netem", trace={"up": "office.tsv"}), True, ConfigError),
        (link(backend="netem", jitter="2 ms"), True, ConfigError),
        (link(backend="netem", jitter="2.2 s", jitter_kind="independent"), True, ConfigError),
    ],
)
def test_an_impossible_choice_says_what_to_write(asked: Link, available: bool, error: type[Exception]) -> None:
    with pytest.raises(error, match="backend: relay"):
        choose(asked, netem_available=available)


def test_counters_survive_json_and_subtract() -> None:
    earlier = WireCounters({(0, 1): PairCounter(1, 100, 1, 60, 0)})
    later = WireCounters({(0, 1): PairCounter(5, 700, 2, 120, 1), (1, 0): PairCounter(2, 200, None, None, 0)})
    assert WireCounters.from_json(json.loads(json.dumps(later.to_json()))) == later
    assert later.minus(earlier).pairs[0, 1] == PairCounter(4, 600, 1, 60, 1)
    assert later.total() == PairCounter(7, 900, None, None, 1)
    assert WireCounters().total() == PairCounter()


def test_messages_and_descriptors_arrive_together() -> None:
    ours, theirs = (ControlSocket(end) for end in socket.socketpair())
    read, write = os.pipe()
    ours.send({"op": "first", "text": "line\nbreak"}, [write])
    ours.send({"op": "second"})
    os.close(write)
    first = theirs.receive()
    second = theirs.receive()
    assert first is not None and second is not None
    assert first[0]["text"] == "line\nbreak" and second == ({"op": "second"}, [])
    os.write(first[1][0], b"x")
    os.close(first[1][0])
    assert os.read(read, 10) == b"x"
    os.close(read)
    ours.close()
    assert theirs.receive() is None
    theirs.close()
