"""A look into the air namespace of an open network from outside, where we are root: tc(8) there, and a copy by hand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PURPOSE = re.compile(r"qdisc netem bbbb: dev (\S+) (.*)")
COUNTED = re.compile(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+),")


def tc_of_agent(*words: str) -> str:
    """What tc prints in the air namespace of the one network that is open."""
    agents = [path.parent.name for path in Path("/proc").glob("[0-9]*/comm") if path.read_text() == "bwbench-agent\n"]
    assert len(agents) == 1, agents
    return _output("nsenter", f"--net=/proc/{agents[0]}/ns/net", "tc", *words)


def qdiscs_by_hand(commands: list[str]) -> dict[str, str]:
    """The qdiscs that ``commands`` make in a namespace called air, which is gone afterwards with all others of them."""
    try:
        _output("bash", "-euc", "\n".join(commands))
        return netem_lines(_output("tc", "-n", "air", "-d", "qdisc", "show"))
    finally:
        for name in _output("ip", "netns", "list").split("\n"):
            if name:
                _output("ip", "netns", "del", name.split()[0])


def netem_lines(text: str) -> dict[str, str]:
    """tc's line about each of our qdiscs, by interface; without the seed that newer kernels show."""
    return {name: line.split(" seed ")[0].strip() for name, line in PURPOSE.findall(text)}


def counts(text: str) -> dict[str, tuple[int, int, int]]:
    """Bytes sent, packets sent, packets dropped by each of our qdiscs, from ``tc -s qdisc show``."""
    found = {}
    for part in text.split("qdisc ")[1:]:
        if named := PURPOSE.match("qdisc " + part):
            counted = COUNTED.search(part)
            assert counted is not None, part
            found[named[1]] = tuple(map(int, counted.groups()))
    return found  # type: ignore[return-value]


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
