"""Times of ranks on several hosts, beside one another without any clock that is believed."""

from __future__ import annotations

import pytest

from bwbench.records.schema import Event, LedgerParts, LinkRecord, Measurement, Start, Step
from bwbench.results.analysis.trial import Clocks, step_ledgers, summarise_ledger

APART_S, DRIFT = 5000.0, 80e-6  # of rank 1's clock to rank 0's


def shown(mono_s: float) -> float:
    """By rank 1's clock when rank 0's shows ``mono_s``."""
    return mono_s + APART_S + DRIFT * mono_s


def compared(*moments_s: float, uncertainty_s: float = 1e-3, rank: int = 1) -> LinkRecord:
    """link.json of a run with a comparison at these moments: before, between and after."""
    found = [
        {"clocks": [{"rank": rank, "mono_s": at_s, "offset_s": shown(at_s) - at_s, "uncertainty_s": uncertainty_s}]}
        for at_s in moments_s
    ]
    content = {"achieved_before": found[0], "achieved_during": found[1:-1], "achieved_after": found[-1]}
    return LinkRecord.model_validate(content)


def test_between_two_comparisons_clocks_drift_evenly() -> None:
    clocks = Clocks.of_link(compared(100.0, 400.0, 1000.0))
    assert clocks is not None and clocks.covers([0, 1]) and not clocks.covers([0, 1, 2])
    for mono_s in (100.0, 250.0, 400.0, 999.0):
        assert clocks.on_first(1, shown(mono_s)) == pytest.approx(mono_s, abs=1e-9)
        assert clocks.on_first(0, mono_s) == mono_s
    assert clocks.on_first(1, shown(1010.0)) == pytest.approx(1010.0, abs=1.1e-3)
    assert clocks.on_first(1, shown(90.0)) == pytest.approx(90.0, abs=1.1e-3)


def test_one_machine_has_nothing_to_compare() -> None:
    assert Clocks.of_link(None) is None
    assert Clocks.of_link(LinkRecord(achieved_before=None, achieved_after=Measurement())) is None


def test_two_ranks_may_be_misplaced_by_both_uncertainties() -> None:
    link, other = compared(1.0, uncertainty_s=2e-3), compared(0.0, uncertainty_s=3e-3, rank=2)
    assert link.achieved_after is not None and other.achieved_before is not None
    both = Measurement(clocks=(*other.achieved_before.clocks, *link.achieved_after.clocks))
    link = link.model_copy(update={"achieved_before": both})
    clocks = Clocks.of_link(link)
    assert clocks is not None and clocks.uncertainty_s == pytest.approx(5e-3)


def events(exposed_s: float = 2.5) -> dict[int, list[Event]]:
    """Rank 1 has its gradients 2 s after rank 0."""

    def of_rank(ready_mono_s: float, waited_s: float) -> list[Event]:
        begun_s, parts = ready_mono_s - 1.0, LedgerParts(compute_s=1.0, exposed_s=waited_s)
        step = Step(step=1, samples=32, clock_s=0.0, mono_s=begun_s, ready_mono_s=ready_mono_s,
                    duration_s=1.0 + waited_s, ledger=parts)  # fmt: skip
        return [Start(time_unix_s=1e9, mono_s=begun_s), step]

    return {0: of_rank(200.0, exposed_s), 1: of_rank(shown(202.0), exposed_s - 2.0)}


def test_waiting_is_split_once_the_clocks_were_compared() -> None:
    clocks = Clocks.of_link(compared(100.0, 1000.0))
    fast, slow = step_ledgers(events(), clocks)
    assert (fast.peers_s, fast.link_s) == (pytest.approx(2.0, abs=1e-6), pytest.approx(0.5, abs=1e-6))
    assert (slow.peers_s, slow.link_s) == (0.0, pytest.approx(0.5))
    summary = summarise_ledger(events(), clocks)
    assert summary is not None and summary.peers_known and summary.clock_uncertainty_s == 1e-3
    unknown = summarise_ledger(events())
    assert unknown is not None and not unknown.peers_known and unknown.clock_uncertainty_s is None


def test_clocks_known_less_well_than_a_step_waits_split_nothing() -> None:
    summary = summarise_ledger(events(), Clocks.of_link(compared(100.0, 1000.0, uncertainty_s=2.0)))
    assert summary is not None and not summary.peers_known
    assert "compared to within 2000.0 ms only" in str(summary.peers_reason)
    other = summarise_ledger(events(), Clocks.of_link(compared(100.0, 1000.0, rank=2)))
    assert other is not None and "was not compared" in str(other.peers_reason)
