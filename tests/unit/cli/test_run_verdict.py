"""What ``link run`` makes of how the emulator fared."""

from __future__ import annotations

import pytest

from bwbench.cli.link.run_verdict import Peaks, RunVerdict, traffic_of, unfit_reasons
from bwbench.network.link import Link
from bwbench.network.namespaces.backend import PairCounter, WireCounters
from bwbench.records.schema import Emulator

SLOW = Link.model_validate({"bandwidth": "10 Mbit/s", "backend": "relay"})
BEYOND = Link.model_validate({"bandwidth": "100 Gbit/s", "backend": "relay"})


def emulator(worst_s: float | None, p99_s: float | None) -> Emulator:
    return Emulator.model_validate({"lateness_max_s": worst_s, "lateness_p99_s": p99_s})


def test_one_frame_that_is_later_than_tcp_waits_is_too_late() -> None:
    (reason,) = unfit_reasons(emulator(2.0, 0.0001), SLOW, 2, Peaks())
    assert "late" in reason and "2000 ms" in reason and "200 ms" in reason


@pytest.mark.parametrize("worst_s", [None, 0.0, 0.05, 0.2])
def test_a_moment_late_is_not(worst_s: float | None) -> None:
    assert not unfit_reasons(emulator(worst_s, 0.0001), SLOW, 2, Peaks(10e6, 20e6, 0.9))


def test_an_emulator_that_stands_still_is_no_link_though_nothing_left_late() -> None:
    (reason,) = unfit_reasons(emulator(None, None), SLOW, 2, Peaks(still_s=1.5))
    assert "stood still for 1.5 s" in reason
    assert not unfit_reasons(emulator(None, None), SLOW, 2, Peaks(still_s=0.6))


@pytest.mark.parametrize(
    "p99_s, peaks",
    [(0.003, Peaks(2e9, 2e9, 0.5)), (0.0001, Peaks(2e9, 2e9, 0.8)), (0.0001, Peaks(5e9, 5e9, 0.5))],
    ids=["late", "busy", "as much as it carries"],
)
def test_a_rate_that_the_emulator_cannot_carry_was_not_reached(p99_s: float, peaks: Peaks) -> None:
    (reason,) = unfit_reasons(emulator(0.01, p99_s), BEYOND, 2, peaks)
    assert reason.startswith("100 Gbit/s was not reached")


def test_programs_that_never_tried_say_nothing_about_a_rate() -> None:
    assert not unfit_reasons(emulator(0.001, 0.0001), BEYOND, 2, Peaks(1e6, 2e6, 0.01))


def test_traffic_is_told_node_by_node() -> None:
    wire = WireCounters({(0, 1): PairCounter(10, 1000, 0, 0, 1), (1, 0): PairCounter(5, 500, 0, 0, 0)})
    first, second = traffic_of(wire, 2, 2.0)
    assert (first.sent_bps, first.received_bps, first.dropped_frames) == (4000.0, 2000.0, 1)
    assert (second.sent_bps, second.received_bps, second.sent_frames) == (2000.0, 4000.0, 5)


def test_a_verdict_as_text_and_as_json() -> None:
    nodes = tuple(traffic_of(WireCounters({(0, 1): PairCounter(10, 1000, 0, 0, 1)}), 2, 1.0))
    verdict = RunVerdict("relay", 1.0, nodes, 10, 1000, 1, 8000.0, 0.004, 0.0001, ("late",))
    *_, last = verdict.lines()
    assert last == (
        "relay: 1 kB in 10 frames on the wire in 1 s (8 kbit/s), 1 dropped; lateness: p99 0.1 ms, worst 4 ms"
    )
    assert verdict.to_json()["verdict"] == "unfit" and verdict.to_json()["worst_late_s"] == 0.004


def test_in_slow_motion_late_is_what_is_late_in_emulated_time() -> None:
    assert not unfit_reasons(emulator(1.0, 0.0001), SLOW.dilated(8.0), 2, Peaks())
    (reason,) = unfit_reasons(emulator(0.06, 0.0001), SLOW.dilated(0.25), 2, Peaks())
    assert "60 ms" in reason and "50 ms" in reason


def test_a_verdict_in_slow_motion_is_told_in_both_times() -> None:
    nodes = tuple(traffic_of(WireCounters({(0, 1): PairCounter(10, 1000, 0, 0, 1)}), 2, 1.0))
    verdict = RunVerdict("relay", 1.0, nodes, 10, 1000, 1, 8000.0, 0.004, 0.0004, dilation=4.0)
    content = verdict.to_json()
    assert (content["wall_s"], content["dilation"], content["peak_bps"]) == (1.0, 4.0, 8000.0)
    assert (content["emulated"]["wall_s"], content["emulated"]["peak_bps"]) == (0.25, 32000.0)
    assert content["emulated"]["worst_late_s"] == 0.001
    assert content["emulated"]["nodes"][0]["sent_bps"] == 32000.0
    lines = list(verdict.lines())
    there = next(index for index, line in enumerate(lines) if line.startswith("in emulated time"))
    assert lines[0] == "in the machine's time:" and "4 times slower" in lines[there]
    assert "8 kbit/s" in lines[there - 1] and "32 kbit/s" in lines[-1]
