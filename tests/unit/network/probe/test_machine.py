"""Looking for the most that the relay carries: which loads are tried, and what is told of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bwbench.network.namespaces import isolation
from bwbench.network.probe import machine
from bwbench.network.probe.machine import LATE_S, Load


def tried(monkeypatch: pytest.MonkeyPatch, most_single_bps: float, most_super_bps: float) -> list[float]:
    """Stand in for a machine that carries so much; the loads will be in the list once they have been tried."""
    loads_bps: list[float] = []

    def load(total_bps: float, keys: dict[str, Any]) -> Load:
        loads_bps.append(total_bps)
        on_time = total_bps <= (most_single_bps if "loss" in keys else most_super_bps)
        return Load(total_bps, LATE_S / 2 if on_time else 0.02, 0, "normal")

    monkeypatch.setattr(machine, "_load", load)
    return loads_bps


@pytest.mark.parametrize(
    "most_single_bps, most_super_bps, loads_bps, single_bps, super_bps",
    [
        (2e9, 1e11, [200e6, 400e6, 800e6, 4e9, 8e9], 800e6, 8e9),
        (300e6, 5e9, [200e6, 400e6, 400e6, 4e9, 8e9, 8e9], 200e6, 4e9),
        (60e6, 1e9, [200e6, 200e6, 100e6, 100e6, 50e6, 4e9, 4e9, 2e9, 2e9, 1e9], 50e6, 1e9),
        (10e6, 1e6, [200e6, 200e6, 100e6, 100e6, 50e6, 50e6, 4e9, 4e9, 2e9, 2e9, 1e9, 1e9], 0.0, 0.0),
    ],
)
def test_heavier_loads_are_tried_while_the_relay_keeps_up_and_others_twice(
    monkeypatch: pytest.MonkeyPatch,
    most_single_bps: float,
    most_super_bps: float,
    loads_bps: list[float],
    single_bps: float,
    super_bps: float,
) -> None:
    seen = tried(monkeypatch, most_single_bps, most_super_bps)
    single, super_packets = machine.relay_capacity()
    assert seen == loads_bps
    assert [load.wire_bps if load.kept_up else 0.0 for load in (single, super_packets)] == [single_bps, super_bps]
    assert single.priority == "normal"


@pytest.mark.parametrize("late_s, lost, kept_up", [(LATE_S, 0, True), (LATE_S * 1.1, 0, False), (0.0, 1, False)])
def test_keeping_up_is_being_on_time_and_losing_nothing(late_s: float, lost: int, kept_up: bool) -> None:
    assert Load(1e6, late_s, lost, "normal").kept_up is kept_up


def test_doctor_tells_it_in_a_users_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    tried(monkeypatch, 300e6, 5e9)
    found = machine._relay()
    assert found.verdict == "ok"
    assert "200 Mbit/s packet by packet, and 4 Gbit/s" in found.text and "normal" in found.text
    tried(monkeypatch, 1e6, 1e6)
    found = machine._relay()
    assert found.verdict == "limited" and "50 Mbit/s" in found.text


@pytest.mark.parametrize(
    "allowed, available, level, words",
    [
        ("reno cubic", "reno cubic", "ok", "cubic is used on links, in all nodes"),
        ("reno bbr", "reno bbr cubic", "ok", "cubic is used on links, by the routes of the nodes, .* reno, bbr alone"),
        ("reno bbr", "reno bbr", "limited", "reno is used on links, in all nodes: this kernel has no cubic"),
    ],
)
def test_the_congestion_control_of_links_is_told(
    monkeypatch: pytest.MonkeyPatch, allowed: str, available: str, level: str, words: str
) -> None:
    lists = {"allowed": allowed, "available": available}
    settings = {f"net/ipv4/tcp_{which}_congestion_control": names for which, names in lists.items()}
    monkeypatch.setattr(machine, "sysctl", settings.get)
    monkeypatch.setattr(isolation, "sysctl", settings.get)
    found = machine._congestion_control()
    assert found.verdict == level and re.match(words, found.text)
