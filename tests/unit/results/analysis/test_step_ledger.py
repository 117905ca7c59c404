"""Waiting split into peers and link, and parts that add up."""

from __future__ import annotations

import pytest
from fixtures_records import Study, cell_of, events_of, typed

from bwbench.records.schema import PARTS, Event, LedgerParts, Start, Step
from bwbench.results.analysis.trial import additivity_error, step_ledgers, summarise_ledger


def start(rank: int, boot_s: float = 0.0) -> Event:
    return Start(rank=rank, time_unix_s=1e9, mono_s=100.0 + boot_s, overlap_estimated=False)


def step(ready_mono_s: float | None, exposed_s: float, compute_s: float) -> Event:
    ledger = {"compute_s": compute_s, "codec_s": 0.0, "exposed_s": exposed_s, "optimizer_s": 0.1, "pad_s": 0.0,
              "other_s": 0.0}  # fmt: skip
    return Step(step=1, samples=32, clock_s=0.0, mono_s=100.0, ready_mono_s=ready_mono_s,
                duration_s=compute_s + exposed_s + 0.1, ledger=LedgerParts(**ledger))  # fmt: skip


def test_waiting_until_the_slowest_is_ready_is_for_peers_and_the_rest_for_the_link() -> None:
    events = {0: [start(0), step(101.0, 2.5, 1.0)], 1: [start(1), step(103.0, 0.5, 3.0)]}
    fast, slow = step_ledgers(events)
    assert (fast.peers_s, fast.link_s) == (pytest.approx(2.0), pytest.approx(0.5))
    assert (slow.peers_s, slow.link_s) == (0.0, pytest.approx(0.5))
    assert fast.exposed_s == slow.exposed_s == 0.0


def test_waiting_for_peers_is_never_more_than_the_waiting() -> None:
    events = {0: [start(0), step(101.0, 0.5, 1.0)], 1: [start(1), step(103.0, 0.0, 3.0)]}
    fast, _ = step_ledgers(events)
    assert (fast.peers_s, fast.link_s) == (0.5, 0.0)


def test_an_arm_that_sends_nothing_does_not_wait_for_the_link() -> None:
    events = {0: [start(0), step(101.0, 2.5, 1.0)], 1: [start(1), step(103.0, 0.5, 3.0)]}
    events = {rank: [first, sent.model_copy(update={"payload_bytes": 0})] for rank, (first, sent) in events.items()}
    fast, slow = step_ledgers(events)
    assert (fast.peers_s, fast.link_s) == (2.5, 0.0)
    assert (slow.peers_s, slow.link_s) == (0.5, 0.0)


@pytest.mark.parametrize("why", ["other boot", "no start", "not recorded"])
def test_ranks_without_a_common_clock_are_not_split_and_it_is_said(why: str) -> None:
    ready = None if why == "not recorded" else 101.0
    other = [] if why == "no start" else [start(1, boot_s=5000.0 if why == "other boot" else 0.0)]
    events = {0: [start(0), step(ready, 2.5, 1.0)], 1: [*other, step(ready, 0.5, 3.0)]}
    summary = summarise_ledger(events)
    assert summary is not None and not summary.peers_known and summary.peers_reason
    assert summary.mean_s["exposed_s"] == pytest.approx(1.5)
    assert summary.mean_s["peers_s"] == summary.mean_s["link_s"] == 0.0


def test_the_slowest_rank_is_named_by_each_ranks_own_clock() -> None:
    events = {0: [start(0), step(101.0, 2.5, 1.0)], 1: [start(1, boot_s=5000.0), step(5103.0, 0.5, 3.0)]}
    events[1][1] = events[1][1].model_copy(update={"mono_s": 5100.0})
    summary = summarise_ledger(events)
    assert summary is not None and (summary.slowest_rank, summary.slowest_ratio) == (1, pytest.approx(3.0))
    alone = summarise_ledger({0: events[0]})
    assert alone is not None and alone.slowest_rank is alone.slowest_ratio is None


def test_one_node_waits_for_nobody() -> None:
    summary = summarise_ledger({0: [start(0), step(101.0, 0.0, 1.0)]})
    assert summary is not None and summary.peers_known and summary.peers_reason is None


def test_means_add_up_to_the_mean_step() -> None:
    study = Study(nodes=3)
    for arm in ("ring", "ddp", "threshold", "no-communication", "single"):
        summary = summarise_ledger(typed(events_of(study, cell_of(study, arm, 10.0, 0), 10.0)))
        assert summary is not None
        assert sum(summary.mean_s[part] for part in PARTS) == pytest.approx(summary.step_mean_s, rel=0.02)
        assert summary.adds_up
        assert summary.estimated == (arm == "ddp")


def test_parts_that_miss_the_step_are_found_although_errors_of_two_steps_would_cancel() -> None:
    more, less = step(101.0, 0.5, 1.0), step(101.0, 0.5, 1.0)
    more = more.model_copy(update={"duration_s": 1.1 * more.duration_s})
    less = less.model_copy(update={"duration_s": 0.9 * less.duration_s})
    assert additivity_error({0: [more, less]}) == pytest.approx(0.1)
    summary = summarise_ledger({0: [start(0), more, less]})
    assert summary is not None and not summary.adds_up


def test_nothing_recorded_is_no_ledger() -> None:
    assert summarise_ledger({}) is None
    assert summarise_ledger({0: [start(0)]}) is None
    assert additivity_error({0: []}) is None
