"""What ranks on several hosts tell one another of where they run, and whether that goes together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.records.schema import Environment, parse_content

_SAME = "all hosts need the same bwbench"


@dataclass(frozen=True)
class HostFacts:
    """One rank's host.

    Attributes:
        address, interface: towards the other ranks; empty on one node.
        cell: id of the cell that this rank was given.
        environment: as ``environment.json`` has it.
    """

    address: str
    interface: str
    cell: str
    environment: Environment

    @property
    def host(self) -> str:
        """Its name."""
        return self.environment.host or self.address

    def to_json(self) -> str:
        """What travels."""
        about = {"address": self.address, "interface": self.interface, "cell": self.cell}
        return json.dumps({**about, "environment": self.environment.to_json()})

    @classmethod
    def from_json(cls, text: str) -> HostFacts:
        """What another rank sent."""
        content = json.loads(text)
        environment = parse_content(Environment, content["environment"], "another rank's environment", _SAME)
        return cls(str(content["address"]), str(content["interface"]), str(content["cell"]), environment)

    def to_record(self) -> Environment:
        """What is recorded of it."""
        return self.environment.model_copy(update={"address": self.address, "interface": self.interface})


def unlike(hosts: Sequence[HostFacts]) -> str | None:
    """What two ranks must have alike and do not, by rank and host; None where all agree.

    Two builds of one release of torch, for processors and for GPUs, count as alike.
    """
    for name, of in (
        ("the cell", lambda facts: facts.cell),
        ("bwbench", lambda facts: facts.environment.bwbench),
        ("the source of bwbench", lambda facts: str(facts.environment.source_sha256)[:12]),
        ("torch", lambda facts: str(facts.environment.packages.get("torch")).partition("+")[0]),
        ("its plugins", lambda facts: sorted(map(str, facts.environment.plugins_sha256.values()))),
    ):
        values = [of(facts) for facts in hosts]
        for rank, value in enumerate(values):
            if value != values[0]:
                return (
                    f"rank {rank} on {hosts[rank].host} differs from rank 0 on {hosts[0].host} in {name}: "
                    f"{_shown(value)} and {_shown(values[0])}; all hosts need the same, so install it there"
                )
    return None


def _shown(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
