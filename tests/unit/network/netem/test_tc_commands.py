"""The commands that are printed for a link, as text; the netem tests run them."""

from __future__ import annotations

import re

import pytest

from bwbench.base.errors import ConfigError
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.link.chance import GilbertElliott
from bwbench.network.netem.shape import NetemQdisc, netem_arguments
from bwbench.network.netem.tc_commands import tc_commands


@pytest.mark.parametrize(
    "qdisc, arguments",
    [
        (NetemQdisc(44, 1_250_000), "limit 44 rate 10000000bit"),
        (NetemQdisc(1000, delay_us=2500), "limit 1000 delay 2500us"),
        (
            NetemQdisc(1000, delay_us=2500, jitter_us=500, loss=0.001),
            "limit 1000 delay 2500us 500us distribution normal loss random 0.1%",
        ),
        (NetemQdisc(1000, delay_us=2500, jitter_us=1000, distribution="uniform"), "limit 1000 delay 2500us 1732us"),
        (
            NetemQdisc(1000, 2**32 - 1, jitter_us=500, distribution="pareto"),
            "limit 1000 delay 1us 500us distribution pareto rate 34359738360bit",
        ),
        (NetemQdisc(1000, burst=GilbertElliott(0.01, 0.25, 0.001, 0.9)), "limit 1000 loss gemodel 1% 25% 90% 0.1%"),
    ],
)
def test_the_arguments_of_a_qdisc(qdisc: NetemQdisc, arguments: str) -> None:
    assert netem_arguments(qdisc) == arguments


def test_a_script_makes_every_interface_before_it_is_used() -> None:
    link = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "5 ms", "overrides": {1: {"latency": "50 ms"}}})
    lines = tc_commands(link, 3)
    commands = [line for line in lines if not line.startswith("#")]
    assert all(re.match("(ip|tc|bridge) (-n|netns) ", line) for line in commands)
    made: set[str] = set()
    for line in commands:
        if named := re.search(r"link add (\S+)", line):
            made.add(named[1])
            made.update(re.findall(r"peer name (\S+)", line))
        made_before = re.findall(r"(?:dev|master|link set|ethtool -K) (\S+)", line.removesuffix(" master static"))
        assert made.issuperset(made_before), line
    qdiscs = [line for line in commands if "qdisc" in line]
    assert len(qdiscs) == 3 + 3 + 3 + 1  # up, line, down, and the way out of node 1
    assert all("root handle bbbb: netem limit" in line for line in qdiscs)
    assert sum("delay" in line for line in qdiscs) == 4


def test_what_the_commands_lack_is_said() -> None:
    plain = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "5 ms"})
    assert not any("seed" in line or "table" in line for line in tc_commands(plain, 2))
    varying = {"jitter_s": 0.001, "jitter_kind": "independent", "jitter_distribution": "uniform"}
    random = plain.model_copy(update=varying)
    comments = [line for line in tc_commands(random, 2) if line.startswith("#")]
    assert any("table" in line and "sqrt(3)" in line for line in comments)
    assert any("seed" in line for line in comments)


@pytest.mark.parametrize(
    "link, reason",
    [(UNSHAPED, "unshaped"), (Link.model_validate({"bandwidth": "10 Mbit/s", "medium": "shared"}), "one air")],
)
def test_links_without_commands_are_refused_with_the_reason(link: Link, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        tc_commands(link, 2)
