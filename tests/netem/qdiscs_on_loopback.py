"""Adds the qdiscs given as JSON to this namespace's loopback, one by one, and prints what the kernel says about each.

That is our own reading, tc(8)'s text and JSON of what we have set, and tc's text of what tc itself has set.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

from pyroute2 import IPRoute

from bwbench.base.errors import LinkError
from bwbench.network.link.chance import GilbertElliott
from bwbench.network.netem.netem_netlink import add_netem, check_netem, read_netem, remove_netem
from bwbench.network.netem.shape import NetemQdisc, netem_arguments

LOOPBACK = 1


class Meddling:
    """A kernel that takes another limit than the one it is given."""

    def __init__(self, air: IPRoute) -> None:
        self._air = air

    def tc(self, *arguments: Any, qdisc: NetemQdisc, **fields: Any) -> Any:
        return self._air.tc(*arguments, qdisc=replace(qdisc, limit_packets=qdisc.limit_packets + 1), **fields)

    def get_qdiscs(self) -> Any:
        return self._air.get_qdiscs()


def tc(*words: str) -> str:
    return subprocess.run(["tc", *words], capture_output=True, text=True, check=True).stdout


def shown() -> Any:
    return json.loads(tc("-j", "qdisc", "show", "dev", "lo"))[0]


def told(air: IPRoute, qdisc: NetemQdisc) -> dict[str, Any]:
    add_netem(air, LOOPBACK, qdisc)
    taken = check_netem(air, {LOOPBACK: qdisc})[LOOPBACK]
    ours = {"read": taken.words(), "seed": taken.seed, "json": shown(), "text": tc("-s", "-d", "qdisc", "show")}
    remove_netem(air, [LOOPBACK])
    arguments = ["qdisc", "add", "dev", "lo", "root", "handle", "bbbb:", "netem", *netem_arguments(qdisc).split()]
    tc(*arguments)
    theirs = {"read_of_tc": read_netem(air)[LOOPBACK].words(), "text_of_tc": tc("-s", "-d", "qdisc", "show")}
    remove_netem(air, [LOOPBACK])
    return {**ours, **theirs}


def main() -> None:
    with IPRoute() as air:
        said = []
        for fields in json.loads(sys.argv[1]):
            burst = fields.pop("burst", None)
            said.append(told(air, NetemQdisc(**fields, burst=burst and GilbertElliott(**burst))))
        try:
            add_netem(Meddling(air), LOOPBACK, NetemQdisc(limit_packets=44))
            check_netem(air, {LOOPBACK: NetemQdisc(limit_packets=44)})
            refusal = ""
        except LinkError as error:
            refusal = str(error)
        remove_netem(air, [LOOPBACK])
        remove_netem(air, [LOOPBACK])  # a second time does nothing
    print(json.dumps({"qdiscs": said, "refusal": refusal, "afterwards": shown()["kind"]}))


if __name__ == "__main__":
    main()
