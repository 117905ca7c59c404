"""Where the time of a step goes: the ledger of every step, with waiting split into peers and link.

A worker knows only how long it waited. Put beside each other, the ranks tell for whom: until the slowest node has its
gradients ready, the others wait for a peer; after that, all of them wait for the link.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bwbench.results.analysis.clocks import Clocks

Event = Mapping[str, Any]

RECORDED_PARTS = ("compute_s", "pad_s", "codec_s", "exposed_s", "optimizer_s", "other_s")
PART_NAMES = {
    "compute_s": "computing",
    "pad_s": "padding to step_time",
    "codec_s": "encoding, decoding",
    "peers_s": "waiting for peers",
    "link_s": "waiting for the link",
    "exposed_s": "waiting for peers or link",
    "optimizer_s": "optimizer",
    "other_s": "other",
}
PARTS = tuple(PART_NAMES)
ADDITIVITY_TOLERANCE = 0.02  # the parts add up to the step within this share, or the ledger is not to be trusted
SAME_BOOT_S = 5.0  # wall clock minus monotonic clock at the start: equal on one boot, hours apart on two


@dataclass(frozen=True)
class StepLedger:
    """One step of one rank. ``exposed_s`` holds waiting that could not be split; it is 0 where it was."""

    rank: int
    step: int
    duration_s: float
    compute_s: float
    pad_s: float
    codec_s: float
    peers_s: float
    link_s: float
    exposed_s: float
    optimizer_s: float
    other_s: float


@dataclass(frozen=True)
class LedgerSummary:
    """A trial's steps in one line.

    Attributes:
        mean_s: mean of each part over all steps and ranks; they add up to the mean step. Times the number of steps
            that is the training clock, but for the waiting at evaluations (``waited_s`` of their events). A method
            that communicates only now and then is right in them alone.
        median_s: median of each part over all steps and ranks; parts of a typical step, which need not add up.
        step_mean_s, step_median_s: of the whole step.
        num_steps, num_ranks: what was summarised.
        peers_known: whether waiting could be split; if not, ``peers_reason`` says why.
        estimated: the split between computing and waiting is an estimate (it hides inside torch's own DDP).
        additivity_error: see ``additivity_error``.
        clock_uncertainty_s: where the ranks ran on several hosts, by how much the split may be off: their clocks were
            compared to within that. None on one machine.
        slowest_rank: that takes longest until its gradients are ready, and ``slowest_ratio``: how many times as long as
            the fastest; None with one rank, or where it was not recorded.
    """

    mean_s: dict[str, float]
    median_s: dict[str, float]
    step_mean_s: float
    step_median_s: float
    num_steps: int
    num_ranks: int
    peers_known: bool
    peers_reason: str | None
    estimated: bool
    additivity_error: float
    slowest_rank: int | None = None
    slowest_ratio: float | None = None
    clock_uncertainty_s: float | None = None

    @property
    def adds_up(self) -> bool:
        """Whether the parts add up to the step within 2 %."""
        return self.additivity_error <= ADDITIVITY_TOLERANCE


def summarise_ledger(events: Mapping[int, Sequence[Event]], clocks: Clocks | None = None) -> LedgerSummary | None:
    """The ledger of one attempt from the events of its ranks; None where no step was recorded.

    Args:
        clocks: of ranks that ran on several hosts; None where they shared one.
    """
    reason, slowest = _why_not_split(events, clocks), _slowest(events)
    steps = list(step_ledgers(events, clocks))
    if not steps:
        return None
    starts = [event for rank_events in events.values() for event in rank_events if event.get("event") == "start"]
    columns = {part: [getattr(step, part) for step in steps] for part in PARTS}
    durations = [step.duration_s for step in steps]
    return LedgerSummary(
        mean_s={part: statistics.fmean(values) for part, values in columns.items()},
        median_s={part: statistics.median(values) for part, values in columns.items()},
        step_mean_s=statistics.fmean(durations),
        step_median_s=statistics.median(durations),
        num_steps=len({step.step for step in steps}),
        num_ranks=len({step.rank for step in steps}),
        peers_known=reason is None,
        peers_reason=reason,
        estimated=any(bool(start.get("overlap_estimated")) for start in starts),
        additivity_error=additivity_error(events) or 0.0,
        slowest_rank=slowest[0],
        slowest_ratio=slowest[1],
        clock_uncertainty_s=None if clocks is None or reason is not None else clocks.uncertainty_s,
    )


def step_ledgers(events: Mapping[int, Sequence[Event]], clocks: Clocks | None = None) -> Iterator[StepLedger]:
    """Every step of every rank. Waiting is split where their clocks can be compared, else it stays in ``exposed_s``."""
    split = _why_not_split(events, clocks) is None
    last_ready = _last_ready_mono_s(events, clocks) if split else {}
    if split and _nothing_sent(events):
        last_ready = dict.fromkeys(last_ready, math.inf)  # a barrier off the link: nobody waits for the link
    for rank, rank_events in sorted(events.items()):
        for event in rank_events:
            if event.get("event") == "step" and event.get("ledger"):
                last_s, ready_s = last_ready.get(int(event["step"])), event.get("ready_mono_s")
                behind_s = None if last_s is None else last_s - _on_first(clocks, rank, float(ready_s or 0.0))
                yield _step_ledger(rank, event, behind_s)


def _slowest(events: Mapping[int, Sequence[Event]]) -> tuple[int | None, float | None]:
    """The rank that takes longest until its gradients are ready, and how many times as long as the fastest.

    Each rank's times are of its own clock, so that they may be of different machines: medians from the begin of a step.
    """
    taken_s = {}
    for rank, rank_events in events.items():
        steps = [event for event in rank_events if event.get("event") == "step" and event.get("ready_mono_s")]
        if steps:
            taken_s[rank] = statistics.median(float(step["ready_mono_s"]) - float(step["mono_s"]) for step in steps)
    if len(taken_s) < 2 or min(taken_s.values()) <= 0:
        return None, None
    slowest = max(taken_s, key=lambda rank: taken_s[rank])
    return slowest, taken_s[slowest] / min(taken_s.values())


def additivity_error(events: Mapping[int, Sequence[Event]]) -> float | None:
    """How far the parts of the steps are from adding up: sum of |parts - step| over sum of steps, worst rank.

    Errors of single steps cannot cancel each other. None where no step has a ledger.
    """
    worst = None
    for rank_events in events.values():
        steps = [event for event in rank_events if event.get("event") == "step" and event.get("ledger")]
        total_s = sum(float(event["duration_s"]) for event in steps)
        if total_s <= 0:
            continue
        off_s = sum(abs(float(event["duration_s"]) - _sum_of_parts(event)) for event in steps)
        worst = max(worst or 0.0, off_s / total_s)
    return worst


def _sum_of_parts(event: Event) -> float:
    return sum(float(event["ledger"].get(part) or 0.0) for part in RECORDED_PARTS)


def _step_ledger(rank: int, event: Event, behind_s: float | None) -> StepLedger:
    """``behind_s``: from the moment that this rank's gradients were ready to that of the slowest; None: unknown."""
    recorded = {part: float(event["ledger"].get(part) or 0.0) for part in RECORDED_PARTS}
    waited_s = recorded.pop("exposed_s")
    if behind_s is None:
        return StepLedger(rank, int(event["step"]), float(event["duration_s"]), **recorded,
                          peers_s=0.0, link_s=0.0, exposed_s=waited_s)  # fmt: skip
    # Waiting begins once the own gradients are ready; up to the slowest peer's it is the peer's doing.
    peers_s = min(waited_s, max(0.0, behind_s))
    return StepLedger(rank, int(event["step"]), float(event["duration_s"]), **recorded,
                      peers_s=peers_s, link_s=waited_s - peers_s, exposed_s=0.0)  # fmt: skip


def _last_ready_mono_s(events: Mapping[int, Sequence[Event]], clocks: Clocks | None) -> dict[int, float]:
    """When the slowest rank had its gradients ready, by step; only steps that every rank recorded."""
    ready: dict[int, list[float]] = {}
    for rank, rank_events in events.items():
        for event in rank_events:
            if event.get("event") == "step" and event.get("ready_mono_s") is not None:
                at_s = _on_first(clocks, rank, float(event["ready_mono_s"]))
                ready.setdefault(int(event["step"]), []).append(at_s)
    return {step: max(times) for step, times in ready.items() if len(times) == len(events)}


def _on_first(clocks: Clocks | None, rank: int, mono_s: float) -> float:
    return mono_s if clocks is None else clocks.on_first(rank, mono_s)


def _nothing_sent(events: Mapping[int, Sequence[Event]]) -> bool:
    steps = [event for rank_events in events.values() for event in rank_events if event.get("event") == "step"]
    return all(event.get("payload_bytes") == 0 for event in steps)


def _why_not_split(events: Mapping[int, Sequence[Event]], clocks: Clocks | None) -> str | None:
    """Why waiting cannot be split into peers and link; None where it can."""
    if len(events) <= 1:
        return None  # nobody to wait for
    steps = [e for rank_events in events.values() for e in rank_events if e.get("event") == "step"]
    if not any(step.get("ready_mono_s") is not None for step in steps):
        return "the ranks did not record when their gradients were ready"
    return _why_not_alike(events) if clocks is None else _why_too_vague(events, clocks, steps)


def _why_not_alike(events: Mapping[int, Sequence[Event]]) -> str | None:
    """Why the ranks' clocks are not one and the same, as far as it can be seen; None where they are."""
    starts = [next((e for e in rank_events if e.get("event") == "start"), None) for rank_events in events.values()]
    if any(start is None or start.get("time_unix_s") is None or start.get("mono_s") is None for start in starts):
        return "a rank recorded no start, so that its clock cannot be compared"
    boots = [float(start["time_unix_s"]) - float(start["mono_s"]) for start in starts if start is not None]
    if max(boots) - min(boots) > SAME_BOOT_S:
        return "the ranks ran on different machines, and their monotonic clocks were not compared"
    return None


def _why_too_vague(events: Mapping[int, Sequence[Event]], clocks: Clocks, steps: Sequence[Event]) -> str | None:
    """Why what is known of the ranks' clocks does not suffice; None where it does."""
    if not clocks.covers(sorted(events)):
        return "the clock of a rank was not compared with the others"
    waits_s = [float(step["ledger"].get("exposed_s") or 0.0) for step in steps if step.get("ledger")]
    if waits_s and clocks.uncertainty_s > (median_s := statistics.median(waits_s)) > 0:
        return (
            f"the hosts' clocks were compared to within {clocks.uncertainty_s * 1e3:.1f} ms only, and a step waits "
            f"{median_s * 1e3:.1f} ms"
        )
    return None
