"""What ranks on several hosts must have alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bwbench.records.schema import Environment
from bwbench.training.loop.external import HostFacts, unlike

FACTS = HostFacts(
    address="10.0.0.1",
    interface="wlan0",
    cell="c25a431b09",
    environment=Environment(
        host="anna",
        bwbench="1.0",
        source_sha256="ab" * 32,
        packages={"torch": "2.13.0+cpu"},
        plugins_sha256={"/home/anna/codec.py": "11" * 32},
    ),
)


def other(**environment: Any) -> HostFacts:
    return replace(
        FACTS, address="10.0.0.2", environment=FACTS.environment.model_copy(update={"host": "ben", **environment})
    )


def test_facts_travel_as_json() -> None:
    assert HostFacts.from_json(FACTS.to_json()) == FACTS
    assert FACTS.host == "anna"
    assert FACTS.to_record().interface == "wlan0" and FACTS.to_record().bwbench == "1.0"


def test_hosts_may_differ_in_what_does_not_count() -> None:
    same = other(packages={"torch": "2.13.0+cu130"}, plugins_sha256={"/elsewhere/codec.py": "11" * 32}, kernel="6.1")
    assert unlike([FACTS, same]) is None


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"bwbench": "1.1"}, "rank 1 on ben differs from rank 0 on anna in bwbench: 1.1 and 1.0"),
        ({"source_sha256": "cd" * 32}, "in the source of bwbench: cdcdcdcdcdcd and abababababab"),
        ({"packages": {"torch": "2.4.1"}}, "in torch: 2.4.1 and 2.13.0"),
        ({"plugins_sha256": {}}, "in its plugins: none and 1111"),
    ],
)
def test_a_difference_is_told_with_both_hosts(changed: dict[str, Any], said: str) -> None:
    assert said in str(unlike([FACTS, other(**changed)]))


def test_another_cell_is_told() -> None:
    assert "in the cell: other and c25a431b09" in str(unlike([FACTS, replace(FACTS, cell="other")]))
