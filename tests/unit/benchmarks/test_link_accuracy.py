"""The parts of benchmarks/link_accuracy.py that reckon: what chance allows, what a trace asks for, what is told."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from bwbench.network.link.chance import GilbertElliott

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import link_accuracy
from link_accuracy_parts import statistics_of_loss
from link_accuracy_parts.case import Options
from link_accuracy_parts.numbered import Arrivals
from link_accuracy_parts.rows import Store, line, not_measured, row
from link_accuracy_parts.trace_reading import read_mahimahi, read_wifi


def test_a_binomial_interval_by_hand():
    assert statistics_of_loss.binomial_interval(10, 0.5, 0.9) == (2, 8)  # P(X <= 1) = 0.011, P(X <= 7) = 0.945


def test_an_interval_for_losses_in_bursts_holds_what_such_a_chain_loses():
    chain = GilbertElliott.of(0.05, 4.0)
    low, high = statistics_of_loss.burst_interval(5_000, chain)
    rng = random.Random(1)
    counts = []
    for _ in range(300):
        bad, lost = rng.random() < 0.05, 0
        for _ in range(5_000):
            bad = rng.random() < (1 - chain.bad_to_good if bad else chain.good_to_bad)
            lost += bad
        counts.append(lost)
    inside = sum(low <= count <= high for count in counts)
    assert inside >= 0.97 * len(counts)
    assert high - low < 1.2 * (sorted(counts)[-1] - sorted(counts)[0])


def test_what_arrived_tells_losses_bursts_and_who_was_overtaken():
    arrivals = Arrivals(sent=8, numbers=[0, 1, 3, 2, 6], delays_s=[0.0] * 5, overflows=0)
    assert arrivals.lost == 3
    assert arrivals.reordered == 1
    assert arrivals.bursts() == [2]


def test_a_wifi_trace_is_tcp_goodput(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text("0.0\t1.0\n1.0\t0.0\n2.0\t3.0\n")
    asked = read_wifi(path)
    assert asked.by(-1) == 0
    assert asked.by(0.5) == pytest.approx(0.5e6 * 1472 / 1448)
    assert asked.by(2.0) == pytest.approx(1e6 * 1472 / 1448)
    assert asked.most_in_a_second(3) == pytest.approx(3e6 * 1472 / 1448)


def test_a_mahimahi_trace_is_packets(tmp_path):
    path = tmp_path / "trace"
    path.write_text("0\n0\n500\n1999\n")
    asked = read_mahimahi(path)
    assert asked.by(0.1) == pytest.approx(2 * 1472 * 8)
    assert asked.by(2.0) == pytest.approx(4 * 1472 * 8)


@pytest.mark.parametrize("backend", ["relay", "netem"])
@pytest.mark.parametrize(("quick", "limit_s"), [(True, link_accuracy.QUICK_LIMIT_S + 20), (False, 25 * 60)])
def test_cases_have_names_of_their_own_and_a_known_length(backend, quick, limit_s):
    cases = [case for cases in link_accuracy.MEASUREMENTS.values() for case in cases(Options(backend, quick))]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    assert sum(case.seconds for case in cases) < limit_s


def test_a_file_of_rows_goes_on_where_it_was_ended(tmp_path):
    path = tmp_path / "rows.json"
    store = Store(path, resume=False)
    store.replace("goodput 1 Mbit/s", "relay", [row("goodput", "1 Mbit/s", "relay", "bit/s", 100.0, 101.0, 0.005)])
    store.replace("goodput 2 Mbit/s", "relay", [not_measured("goodput", "2 Mbit/s", "relay", "it broke", False)])
    again = Store(path, resume=True)
    assert again.has("goodput 1 Mbit/s", "relay")
    assert not again.has("goodput 1 Mbit/s", "netem")
    assert not again.has("goodput 2 Mbit/s", "relay")
    assert "OUTSIDE" in line(again.rows[0]) and "FAILED: it broke" in line(again.rows[1])
