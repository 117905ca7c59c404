"""What one trial came to, from the events of its ranks: the numbers of status.json, and the ledger of every step.

A worker knows only how long it waited. Put beside each other, the ranks tell for whom: until the slowest node has its
gradients ready, the others wait for a peer; after that, all of them wait for the link. Plain Python, nothing is
imported that the parent of a run would have to wait for.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bwbench.records.schema import (
    PARTS,
    ComparedClock,
    CurvePoint,
    Digest,
    End,
    Evaluation,
    Event,
    JsonObject,
    LedgerParts,
    LedgerSummary,
    LinkRecord,
    Start,
    Step,
    TrialSummary,
    Wire,
)
from bwbench.results.analysis.targets import arrivals_on, target_of

EventsByRank = Mapping[int, Sequence[Event]]

RECORDED_PARTS = tuple(part for part in PARTS if part in LedgerParts.model_fields)
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
SAME_BOOT_S = 5.0  # wall clock minus monotonic clock at the start: equal on one boot, hours apart on two


@dataclass(frozen=True)
class Clocks:
    """Monotonic clocks of ranks on several hosts beside rank 0's, by what was found of them during the run.

    Attributes:
        found: of each rank, in the order of time. Between two the clocks drift evenly; before the first and after the
            last one they are taken to stay apart as they were.
    """

    found: Mapping[int, Sequence[ComparedClock]]

    @classmethod
    def of_link(cls, link: LinkRecord | None) -> Clocks | None:
        """From link.json; None where nothing was compared, as on one machine."""
        found: dict[int, list[ComparedClock]] = {}
        for measured in (*link.achieved_during, *link.measurements) if link is not None else ():
            for one in measured.clocks:
                found.setdefault(one.rank, []).append(one)
        if not found:
            return None
        return cls({rank: sorted(ofs, key=lambda one: one.mono_s) for rank, ofs in found.items()})

    def covers(self, ranks: Sequence[int]) -> bool:
        """Whether all of these can be compared."""
        return all(rank == 0 or rank in self.found for rank in ranks)

    def on_first(self, rank: int, mono_s: float) -> float:
        """What rank 0's clock showed when that of ``rank`` showed ``mono_s``."""
        if rank == 0:
            return mono_s
        of_rank = self.found[rank]
        after = bisect_left(of_rank, mono_s, key=lambda one: one.mono_s + one.offset_s)
        if after == 0 or after == len(of_rank):
            return mono_s - of_rank[min(after, len(of_rank) - 1)].offset_s
        left, right = of_rank[after - 1], of_rank[after]
        began_s = left.mono_s + left.offset_s
        share = (mono_s - began_s) / (right.mono_s + right.offset_s - began_s)
        return left.mono_s + share * (right.mono_s - left.mono_s)

    @property
    def uncertainty_s(self) -> float:
        """The most by which times of two ranks may be misplaced, one beside the other, where they were compared.

        In between it is as good as their drift is even.
        """
        worst = sorted(max(one.uncertainty_s for one in of_rank) for of_rank in self.found.values())
        return sum(worst[-2:])


@dataclass(frozen=True)
class RankStep:
    """Where the time of one step of one rank went.

    ``exposed_s`` holds waiting that could not be split; it is 0 where it was.
    """

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


def summarise_ledger(events: EventsByRank, clocks: Clocks | None = None) -> LedgerSummary | None:
    """The ledger of one attempt from the events of its ranks; None where no step was recorded.

    Args:
        clocks: of ranks that ran on several hosts; None where they shared one.
    """
    reason, slowest = _why_not_split(events, clocks), _slowest(events)
    steps = list(step_ledgers(events, clocks))
    if not steps:
        return None
    starts = (event for rank_events in events.values() for event in rank_events if isinstance(event, Start))
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
        estimated=any(start.overlap_estimated for start in starts),
        additivity_error=additivity_error(events) or 0.0,
        slowest_rank=slowest[0],
        slowest_ratio=slowest[1],
        clock_uncertainty_s=None if clocks is None or reason is not None else clocks.uncertainty_s,
    )


def digest_of(events: EventsByRank, link: LinkRecord | None) -> Digest:
    """Curve and ledger of one attempt: what stands for its events."""
    return Digest(curve=tuple(curve_of(events)), ledger=summarise_ledger(events, Clocks.of_link(link)))


def step_ledgers(events: EventsByRank, clocks: Clocks | None = None) -> Iterator[RankStep]:
    """Every step of every rank. Waiting is split where their clocks can be compared, else it stays in ``exposed_s``."""
    split = _why_not_split(events, clocks) is None
    last_ready = _last_ready_mono_s(events, clocks) if split else {}
    if split and all(step.payload_bytes == 0 for step in steps_of_ranks(events)):
        last_ready = dict.fromkeys(last_ready, math.inf)  # a barrier off the link: nobody waits for the link
    for rank, rank_events in sorted(events.items()):
        for step, parts in _booked(rank_events):
            parts_s = {part: getattr(parts, part) for part in RECORDED_PARTS} | {"peers_s": 0.0, "link_s": 0.0}
            if (last_s := last_ready.get(step.step)) is not None:
                # Waiting begins once the own gradients are ready; up to the slowest peer's it is the peer's doing.
                behind_s = last_s - _on_first(clocks, rank, step.ready_mono_s or 0.0)
                peers_s = min(parts.exposed_s, max(0.0, behind_s))
                parts_s |= {"peers_s": peers_s, "link_s": parts.exposed_s - peers_s, "exposed_s": 0.0}
            yield RankStep(rank, step.step, step.duration_s, **parts_s)


def _booked(events: Sequence[Event]) -> Iterator[tuple[Step, LedgerParts]]:
    """The steps of a rank that have a ledger, with it."""
    for event in events:
        if isinstance(event, Step) and event.ledger is not None:
            yield event, event.ledger


def _slowest(events: EventsByRank) -> tuple[int | None, float | None]:
    """The rank that takes longest until its gradients are ready, and how many times as long as the fastest.

    Each rank's times are of its own clock, so that they may be of different machines: medians from the begin of a step.
    """
    taken_s = {}
    for rank, rank_events in events.items():
        times_s = [
            step.ready_mono_s - step.mono_s
            for step in rank_events
            if isinstance(step, Step) and step.ready_mono_s and step.mono_s is not None
        ]
        if times_s:
            taken_s[rank] = statistics.median(times_s)
    if len(taken_s) < 2 or min(taken_s.values()) <= 0:
        return None, None
    slowest = max(taken_s, key=lambda rank: taken_s[rank])
    return slowest, taken_s[slowest] / min(taken_s.values())


def additivity_error(events: EventsByRank) -> float | None:
    """How far the parts of the steps are from adding up: sum of |parts - step| over sum of steps, worst rank.

    Errors of single steps cannot cancel each other. None where no step has a ledger.
    """
    worst = None
    for rank_events in events.values():
        booked = list(_booked(rank_events))
        total_s = sum(step.duration_s for step, _ in booked)
        if total_s <= 0:
            continue
        sums_s = [sum(float(getattr(parts, part)) for part in RECORDED_PARTS) for _, parts in booked]
        off_s = sum(abs(step.duration_s - sum_s) for (step, _), sum_s in zip(booked, sums_s, strict=True))
        worst = max(worst or 0.0, off_s / total_s)
    return worst


def _last_ready_mono_s(events: EventsByRank, clocks: Clocks | None) -> dict[int, float]:
    """When the slowest rank had its gradients ready, by step; only steps that every rank recorded."""
    ready: dict[int, list[float]] = {}
    for rank, rank_events in events.items():
        for event in rank_events:
            if isinstance(event, Step) and event.ready_mono_s is not None:
                ready.setdefault(event.step, []).append(_on_first(clocks, rank, event.ready_mono_s))
    return {step: max(times) for step, times in ready.items() if len(times) == len(events)}


def _on_first(clocks: Clocks | None, rank: int, mono_s: float) -> float:
    return mono_s if clocks is None else clocks.on_first(rank, mono_s)


def _why_not_split(events: EventsByRank, clocks: Clocks | None) -> str | None:
    """Why waiting cannot be split into peers and link; None where it can."""
    if len(events) <= 1:
        return None  # nobody to wait for
    steps = list(steps_of_ranks(events))
    if not any(step.ready_mono_s is not None for step in steps):
        return "the ranks did not record when their gradients were ready"
    return _why_not_alike(events) if clocks is None else _why_too_vague(events, clocks, steps)


def _why_not_alike(events: EventsByRank) -> str | None:
    """Why the ranks' clocks are not one and the same, as far as it can be seen; None where they are."""
    boots = []
    for rank_events in events.values():
        start = next((event for event in rank_events if isinstance(event, Start)), None)
        if start is None or start.time_unix_s is None or start.mono_s is None:
            return "a rank recorded no start, so that its clock cannot be compared"
        if (start.dilation or 1.0) * (start.shrink or 1.0) < 1.0:
            return "every rank has put its own clock back, for training that was faster than the machine"
        boots.append(start.time_unix_s - start.mono_s)
    if max(boots) - min(boots) > SAME_BOOT_S:
        return "the ranks ran on different machines, and their monotonic clocks were not compared"
    return None


def _why_too_vague(events: EventsByRank, clocks: Clocks, steps: Sequence[Step]) -> str | None:
    """Why what is known of the ranks' clocks does not suffice; None where it does."""
    if not clocks.covers(sorted(events)):
        return "the clock of a rank was not compared with the others"
    waits_s = [step.ledger.exposed_s for step in steps if step.ledger is not None]
    if waits_s and clocks.uncertainty_s > (median_s := statistics.median(waits_s)) > 0:
        return (
            f"the hosts' clocks were compared to within {clocks.uncertainty_s * 1e3:.1f} ms only, and a step waits "
            f"{median_s * 1e3:.1f} ms"
        )
    return None


DEFAULT_METRICS = ("accuracy", "loss")  # what a cell without a target is reported by, first one found


def summarise(events: EventsByRank, config: JsonObject, wire: Wire | None) -> TrialSummary:
    """Summary of one attempt.

    Args:
        events: what each rank recorded, in order. Ranks that ended early or recorded nothing are allowed.
        config: of the cell.
        wire: of link.json, the wire counters; None where nothing was counted.
    """
    target = target_of(config)
    named = {
        name for rank_events in events.values() for one in evaluations(rank_events, "validation") for name in one.mean
    }
    metric = target[0] if target else next((name for name in DEFAULT_METRICS if name in named), None)
    curve = curve_of(events)
    # Decided on the mean over ranks, so that all ranks agree on it.
    arrival = next((point for point in curve if point.target_met), None) if target else None
    ends = [_end_of(rank_events) for rank_events in events.values()]
    finished = bool(ends) and all(end is not None and end.status == "done" for end in ends)
    totals = [_totals_of(rank_events) for rank_events in events.values()]
    clock_s = max((clock_s for clock_s, _, _ in totals), default=0.0)
    payload = sum(sent for _, _, sent in totals)
    digests = {end.replica_sha256 if end is not None else None for end in ends}
    steps = list(steps_of_ranks(events))
    wire_bytes = payload_to_target = wire_to_target = None
    if wire is not None and wire.bytes is not None:  # acknowledgements answer the payload of others
        wire_bytes = wire.bytes - (wire.ack_bytes or 0)
    if arrival is not None:
        payload_to_target = sum(step.payload_bytes or 0 for step in steps if step.step <= arrival.step)
        if wire_bytes is not None:  # of an arm that sends nothing, what the wire saw (keep-alives) is all there is
            wire_to_target = round(wire_bytes * min(1.0, payload_to_target / payload)) if payload else wire_bytes
    at_target = any(end is not None and end.reason == "target" for end in ends)
    summary = TrialSummary(
        metric=metric,
        time_to_target_s=arrival.clock_s if arrival else None,
        censored_at_s=clock_s if target and finished and arrival is None else None,
        samples_to_target=arrival.samples if arrival else None,
        payload_bytes_to_target=payload_to_target,
        wire_bytes_to_target=wire_to_target,
        final_metric=_metric_of_last(events, "validation", metric),
        test_metric=_test_at_end(events, metric),
        steps=max((step.step for step in steps), default=0),
        samples=max((step.samples for step in steps), default=0),
        training_clock_s=clock_s,
        steps_clock_s=max((step.clock_s for step in steps), default=None) if _never_waits(events) else None,
        evaluation_s=max((evaluation_s for _, evaluation_s, _ in totals), default=0.0),
        payload_bytes=payload,
        wire_bytes=wire_bytes,
        replicas_identical=len(digests) == 1 if digests and None not in digests else None,
        ledger_error=additivity_error(events),
        compute_median_s=_median([step.ledger.compute_s for step in steps if step.ledger is not None]),
        step_median_s=_median([step.duration_s for step in steps]),
        arrivals=arrivals_on(curve, config, went_on=finished and not at_target),
    )
    last = _last_of(events, "validation")
    if last is None or last.weights is None:
        return summary
    beside = last.beside.get(metric) if metric is not None else None
    return summary.model_copy(update={"weights": last.weights, "beside_metric": beside})


def evaluations(events: Sequence[Event], split: str) -> list[Evaluation]:
    """One rank's evaluations on ``split``, in order."""
    return [event for event in events if isinstance(event, Evaluation) and event.split == split]


def steps_of_ranks(events: EventsByRank) -> Iterator[Step]:
    """All steps of all ranks, rank by rank."""
    return (event for rank_events in events.values() for event in rank_events if isinstance(event, Step))


def curve_of(events: EventsByRank) -> list[CurvePoint]:
    """The validation evaluations of one attempt, in order, over all ranks; with what the test split gave there."""
    sent: dict[int, int] = {}
    for step in steps_of_ranks(events):
        sent[step.step] = sent.get(step.step, 0) + (step.payload_bytes or 0)
    until = dict(zip(sorted(sent), accumulate(sent[step] for step in sorted(sent)), strict=True))
    by_step: dict[int, list[Evaluation]] = {}
    for rank_events in events.values():
        for found in evaluations(rank_events, "validation"):
            if not found.mean:  # a model of which only the shapes are real has nothing to report
                continue
            by_step.setdefault(found.step, []).append(found)
    tested = {one.step: one.mean for rank_events in events.values() for one in evaluations(rank_events, "test")}
    names = dict.fromkeys(name for mean in tested.values() for name in mean)
    return [
        CurvePoint(
            step=step,
            metrics=same[0].mean,
            test={name: tested.get(step, {}).get(name) for name in names},
            **({"beside": same[0].beside} if same[0].beside else {}),
            samples=max(0, *(one.samples for one in same)),
            clock_s=max(0.0, *(one.clock_s for one in same)),
            target_met=any(one.target_met for one in same),
            payload_bytes=until.get(step, 0),
        )
        for step, same in sorted(by_step.items())
    ]


def _totals_of(events: Sequence[Event]) -> tuple[float, float, int]:
    """Training clock, seconds of evaluating, bytes sent by one rank, as its ``end`` has them, else by what came before.

    The ``end`` also knows what left after the last step.
    """
    end = _end_of(events) or End(status="done")
    clock_s, evaluation_s, sent = end.clock_s, end.evaluation_s, end.payload_bytes
    if clock_s is None:
        clock_s = max((event.clock_s for event in events if isinstance(event, (Step, Evaluation))), default=0.0)
    if evaluation_s is None:
        evaluation_s = sum(event.duration_s or 0.0 for event in events if isinstance(event, Evaluation))
    if sent is None:
        sent = sum(event.payload_bytes or 0 for event in events if isinstance(event, Step))
    return clock_s, evaluation_s, sent


def _last_of(events: EventsByRank, split: str) -> Evaluation | None:
    last = [found[-1] for rank_events in events.values() if (found := evaluations(rank_events, split))]
    return max(last, key=lambda one: one.step, default=None)


def _metric_of_last(events: EventsByRank, split: str, metric: str | None) -> float | None:
    last = _last_of(events, split)
    return last.mean.get(metric) if last is not None and metric is not None else None


def _test_at_end(events: EventsByRank, metric: str | None) -> float | None:
    """On the test split behind the last step; None where a run broke off that had looked at it before."""
    last = max((step.step for step in steps_of_ranks(events)), default=0)
    found = (one for of_rank in events.values() for one in evaluations(of_rank, "test") if one.step >= last)
    return next((one.mean.get(metric) for one in found), None) if metric is not None else None


def _never_waits(events: EventsByRank) -> bool:
    """Whether no step waits for anybody: what is under way at the end of the last one is waited for by none."""
    starts = (event for rank_events in events.values() for event in rank_events if isinstance(event, Start))
    return any(start.waits is False for start in starts)


def _end_of(events: Sequence[Event]) -> End | None:
    return next((event for event in reversed(events) if isinstance(event, End)), None)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
