"""Adds the qdiscs given as JSON to this namespace's loopback, one by one, and prints what tc(8) says about each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pyroute2 import IPRoute

from bwbench.errors import LinkError
from bwbench.network.netem.qdisc import add_netem, remove_netem
from bwbench.network.netem.shape import NetemQdisc

LOOPBACK = 1


class Meddling:
    """A kernel that takes another limit than the one it is given."""

    def __init__(self, air: IPRoute) -> None:
        self._air = air

    def tc(self, *arguments: Any, **fields: Any) -> Any:
        return self._air.tc(*arguments, **{**fields, "limit": fields["limit"] + 1})

    def get_qdiscs(self) -> Any:
        return self._air.get_qdiscs()


def shown() -> Any:
    text = subprocess.run(["tc", "-j", "qdisc", "show", "dev", "lo"], capture_output=True, check=True).stdout
    return json.loads(text)[0]


def main() -> None:
    said = []
    with IPRoute() as air:
        for fields in json.loads(sys.argv[1]):
            add_netem(air, LOOPBACK, NetemQdisc(**fields))
            said.append(shown())
            remove_netem(air, LOOPBACK)
        try:
            add_netem(Meddling(air), LOOPBACK, NetemQdisc(limit_packets=44))
            refusal = ""
        except LinkError as error:
            refusal = str(error)
        remove_netem(air, LOOPBACK)
        remove_netem(air, LOOPBACK)  # a second time does nothing
    print(json.dumps({"qdiscs": said, "refusal": refusal, "afterwards": shown()["kind"]}))


if __name__ == "__main__":
    main()
