"""What pyroute2 asks for, the kernel takes: with tc(8) as a second witness beside our own reading back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from bwbench.network.link import UNSHAPED
from bwbench.network.link.chance import GilbertElliott
from bwbench.network.netem.shape import NetemQdisc
from bwbench.network.network import open_network
from tests.netem.nodes import output_of, outside

pytestmark = [pytest.mark.netem, pytest.mark.netns]

ORDER = 2**32 - 1
# The qdisc, and how the text of tc names what is in it (but for high rates, which its versions write differently).
QDISCS = [
    (NetemQdisc(limit_packets=44, rate_bytes_per_s=1_250_000), "limit 44 rate 10Mbit"),
    (NetemQdisc(limit_packets=44, rate_bytes_per_s=2**33), "limit 44"),
    (NetemQdisc(limit_packets=1_000_000, delay_us=2500), "limit 1000000 delay 2.5ms"),
    (NetemQdisc(200, ORDER, 5000, 1000, loss=0.02, seed=7), "limit 200 delay 5ms 1ms loss 2%"),
    (NetemQdisc(200, delay_us=5000, jitter_us=1000, distribution="pareto"), "limit 200 delay 5ms 1ms"),
    (NetemQdisc(200, delay_us=5000, jitter_us=1000, distribution="uniform"), "limit 200 delay 5ms 1ms"),
    (NetemQdisc(200, ORDER, jitter_us=2000), "limit 200"),
    (
        NetemQdisc(99, burst=GilbertElliott(0.01, 0.25, 0.001, 0.9), seed=2**32 - 1),
        "limit 99 loss gemodel p 1% r 25% 1-h 90% 1-k 0.1%",
    ),
    (
        NetemQdisc(limit_packets=2**32 - 1, rate_bytes_per_s=1, delay_us=60_000_000, jitter_us=2_147_000, loss=1.0),
        "delay 60s 2.15s loss 100% rate 8bit",
    ),
]
TICK_S = 1e-6  # tc cuts what it shows to whole microseconds


def test_every_field_arrives_and_other_values_are_refused() -> None:
    before = outside()
    asked = json.dumps([qdisc.to_json() for qdisc, _ in QDISCS])
    with open_network(UNSHAPED, 1) as network:
        told = json.loads(output_of(network, 0, "python", "-m", "tests.netem.qdiscs_on_loopback", asked))
    for (qdisc, words), said in zip(QDISCS, told["qdiscs"], strict=True):
        options = said["json"]["options"]
        assert (said["json"]["kind"], said["json"]["handle"], said["json"]["root"]) == ("netem", "bbbb:", True)
        assert options["limit"] == qdisc.limit_packets
        assert options.get("rate", {}).get("rate", 0) == qdisc.rate_bytes_per_s
        assert options.get("delay", {}).get("delay", 0) == pytest.approx(qdisc.delay_us / 1e6, abs=1.1 * TICK_S)
        if qdisc.delay_us:  # without one tc shows no jitter either
            assert options["delay"]["jitter"] == pytest.approx(qdisc.jitter_us / 1e6, abs=1.1 * TICK_S)
        assert options.get("loss-random", {}).get("loss", 0) == pytest.approx(qdisc.loss, abs=1e-6)
        assert qdisc.seed is None or said["seed"] in (qdisc.seed, None)  # None: a kernel before 6.6
        assert words in qdisc_line(said["text"])
        check_what_tc_makes(qdisc, said)
    assert "'limit_packets': 44" in told["refusal"] and "'limit_packets': 45" in told["refusal"]
    assert told["afterwards"] == "noqueue"
    assert outside() == before


def check_what_tc_makes(qdisc: NetemQdisc, said: dict[str, Any]) -> None:
    """tc with the arguments that we print for a qdisc makes the same of it as we do."""
    ours, theirs = as_tuple(said["read"]), list(as_tuple(said["read_of_tc"]))
    if qdisc.jitter_us and qdisc.distribution == "uniform":  # of which tc is told the half width
        theirs[3] = round(theirs[3] / math.sqrt(3))
    elif qdisc.jitter_us and not qdisc.delay_us:  # tc wants a delay before it takes a distribution
        theirs[2] -= 1
    else:
        assert qdisc_line(said["text"]) == qdisc_line(said["text_of_tc"])
    assert ours == tuple(theirs)


def as_tuple(words: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(word) if isinstance(word, list) else word for word in words)


def qdisc_line(text: str) -> str:
    """The line about our qdisc, without the seed that newer kernels show."""
    line = next(line for line in text.splitlines() if "qdisc netem bbbb:" in line)
    return line.split(" seed ")[0].strip().replace("  ", " ")
