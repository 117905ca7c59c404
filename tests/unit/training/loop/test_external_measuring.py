"""When workers on real hosts probe their network, and what they do about what they find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bwbench.base.errors import LinkError
from bwbench.network.link import Link
from bwbench.network.probe.verification import LinkMeasurement
from bwbench.training.loop import external
from bwbench.training.loop.external import AGAIN_S, VERIFY_TRIES, ExternalRun

LINK = Link.model_validate({"bandwidth": "10 Mbit/s"})
GOOD = LinkMeasurement("interface", (), "ok", (), 0.1)
BAD = LinkMeasurement("interface", (), "out-of-tolerance", ("node 0 to node 1: too slow",), 0.1)


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
    return ExternalRun(groups, channel, tmp_path, [], "wlan0", LINK)


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
