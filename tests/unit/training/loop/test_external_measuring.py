"""When workers on real hosts probe their network, and what they do about what they find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bwbench.base.errors import LinkError
from bwbench.network.link import Link
from bwbench.network.probe.verification import LinkMeasurement
from bwbench.records.schema import Environment
from bwbench.training.loop import external
from bwbench.training.loop.external import AGAIN_S, VERIFY_TRIES, ExternalRun, HostFacts, counts_interface

LINK = Link.model_validate({"bandwidth": "10 Mbit/s"})
GOOD = LinkMeasurement("interface", (), "ok", (), 0.1)
BAD = LinkMeasurement("interface", (), "out-of-tolerance", ("node 0 to node 1: too slow",), 0.1)


def host(address: str, interface: str = "wlan0") -> HostFacts:
    return HostFacts(address, interface, "c25a431b09", Environment())


HOSTS = [host("10.0.0.1"), host("10.0.0.2")]


class Control:
    """Of one rank: what it says is what all say."""

    rank, size = 0, 2

    def any(self, flag: bool) -> bool:
        return flag

    def total(self, values: Any) -> Any:
        return values


@pytest.fixture
def sent() -> list[dict[str, Any]]:
    """What the companion is told."""
    return []


@pytest.fixture
def run(tmp_path: Path, sent: list[dict[str, Any]]) -> ExternalRun:
    groups: Any = SimpleNamespace(control=Control(), data=object(), store=None)
    channel: Any = SimpleNamespace(send=sent.append, before_phase=None)
    return ExternalRun(groups, channel, tmp_path, HOSTS, "wlan0", LINK)


def finds(monkeypatch: pytest.MonkeyPatch, *measured: LinkMeasurement) -> None:
    rest: Iterator[LinkMeasurement] = iter(measured)
    monkeypatch.setattr(external, "measure", lambda data, control, link: next(rest))
    monkeypatch.setattr(external, "compare_clocks", lambda data, control: [])


def test_a_disturbed_probe_is_repeated(
    run: ExternalRun, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, BAD, GOOD)
    run.measure("achieved_before")
    assert [event["measurement"]["tries"] for event in sent] == [1, 2]
    assert sent[-1]["measurement"]["rejected"] == [["node 0 to node 1: too slow"]]


def test_a_link_that_is_not_as_asked_ends_it(
    run: ExternalRun, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, *[BAD] * VERIFY_TRIES)
    with pytest.raises(LinkError, match="too slow"):
        run.measure("achieved_before")
    assert len(sent) == VERIFY_TRIES


def test_it_looks_again_after_a_while_and_its_own_traffic_does_not_count(
    run: ExternalRun, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, crossed = [1000.0], iter([0, 100, 150, 400])  # begin of training, before and after a probe, end of training
    monkeypatch.setattr(external.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(external, "counters_of", lambda name: (next(crossed), 0, 0))
    finds(monkeypatch, GOOD, GOOD)
    run.measure("achieved_before")
    run._count("training")
    run.look_again(5.0)
    assert len(sent) == 1
    now_s[0] += AGAIN_S + 1
    run.look_again(305.0)
    assert sent[-1]["when"] == "achieved_during" and sent[-1]["clock_s"] == 305.0
    run._count("drained")
    assert sent[-1] == {"event": "traffic", "bytes": 350, "frames": 0, "drops": 0}


@pytest.mark.parametrize(
    "hosts, counting",
    [
        ([host("10.0.0.1"), host("10.0.0.2")], [True, True]),
        ([host("10.0.0.1"), host("10.0.0.1"), host("10.0.0.2"), host("10.0.0.2")], [True, False, True, False]),
        ([host("10.0.0.1"), host("10.0.1.1", "wlan1")], [True, True]),
        ([host("127.0.0.1", "lo"), host("127.0.0.1", "lo")], [True, False]),
    ],
)
def test_an_interface_that_ranks_share_is_counted_once(hosts: list[HostFacts], counting: list[bool]) -> None:
    assert [counts_interface(hosts, rank) for rank in range(len(hosts))] == counting


def test_ranks_of_one_host_add_up_to_what_left_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of two ranks; 100 B leave by the first one's interface, 7 B by the other's."""
    hosts = [host("10.0.0.1"), host("10.0.0.1"), host("10.0.0.2"), host("10.0.0.2")]
    totals = []
    for rank, crossed in enumerate((100, 100, 7, 7)):
        control = Control()
        control.rank, control.size = rank, len(hosts)
        control.total = lambda values: totals.append(values) or values  # type: ignore[method-assign, func-returns-value]
        groups: Any = SimpleNamespace(control=control, data=object(), store=None)
        channel: Any = SimpleNamespace(send=lambda message: None, before_phase=None)
        run = ExternalRun(groups, channel, tmp_path, hosts, "wlan0", LINK)
        counted = iter([(1000, 10, 0), (1000 + crossed, 12, 1)])
        monkeypatch.setattr(external, "counters_of", lambda name, counted=counted: next(counted))
        run._count("training")
        run._count("drained")
    assert torch.stack(totals).sum(0).tolist() == [107, 4, 2]
