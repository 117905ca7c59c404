"""What one trial came to: the numbers of status.json, from the events of its ranks. Plain Python, nothing is imported
that the parent of a run would have to wait for."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from bwbench.base.plain_data import mapping_at
from bwbench.records.schema import CurvePoint, End, Evaluation, Event, JsonObject, Step, TrialSummary, Wire
from bwbench.results.analysis.ledger import additivity_error

EventsByRank = Mapping[int, Sequence[Event]]

DEFAULT_METRICS = ("accuracy", "loss")  # what a cell without a target is reported by, first one found


def summarise(events: EventsByRank, config: JsonObject, wire: Wire | None) -> TrialSummary:
    """Summary of one attempt.

    Args:
        events: what each rank recorded, in order. Ranks that ended early or recorded nothing are allowed.
        config: of the cell.
        wire: of link.json, the wire counters; None where nothing was counted.
    """
    target = target_of(config)
    metric = target[0] if target else _usual_metric(events)
    # Decided on the mean over ranks, so that all ranks agree on it.
    arrival = next((point for point in curve_of(events) if point.target_met), None) if target else None
    ends = [_end_of(rank_events) for rank_events in events.values()]
    finished = bool(ends) and all(end is not None and end.status == "done" for end in ends)
    clock_s = max((_clock_s(rank_events) for rank_events in events.values()), default=0.0)
    payload = _payload_bytes(events)
    steps = list(steps_of_ranks(events))
    wire_bytes = payload_to_target = None
    if wire is not None and wire.bytes is not None:  # acknowledgements answer the payload of others
        wire_bytes = wire.bytes - (wire.ack_bytes or 0)
    if arrival is not None:
        payload_to_target = sum(step.payload_bytes or 0 for step in steps if step.step <= arrival.step)
    return TrialSummary(
        metric=metric,
        time_to_target_s=arrival.clock_s if arrival else None,
        censored_at_s=clock_s if target and finished and arrival is None else None,
        samples_to_target=arrival.samples if arrival else None,
        payload_bytes_to_target=payload_to_target,
        wire_bytes_to_target=_share(wire_bytes, payload_to_target, payload),
        final_metric=_metric_of_last(events, "validation", metric),
        test_metric=_metric_of_last(events, "test", metric),
        steps=max((step.step for step in steps), default=0),
        samples=max((step.samples for step in steps), default=0),
        training_clock_s=clock_s,
        evaluation_s=max((_evaluation_s(rank_events) for rank_events in events.values()), default=0.0),
        payload_bytes=payload,
        wire_bytes=wire_bytes,
        replicas_identical=_replicas_identical(ends),
        ledger_error=additivity_error(events),
        compute_median_s=_median([step.ledger.compute_s for step in steps if step.ledger is not None]),
        step_median_s=_median([step.duration_s for step in steps]),
    )


def target_of(config: JsonObject) -> tuple[str, float] | None:
    """Metric and value of a cell's target, ``("accuracy", 0.95)``; None where the cell has none."""
    target = mapping_at(config, "target")
    if not target:
        return None
    short = next(iter(target.items()))  # the YAML's form {accuracy: 0.95}
    metric, value = (target["metric"], target["value"]) if "metric" in target else short
    return str(metric), float(value) if isinstance(value, (int, float)) else math.nan


def evaluations(events: Sequence[Event], split: str) -> list[Evaluation]:
    """One rank's evaluations on ``split``, in order."""
    return [event for event in events if isinstance(event, Evaluation) and event.split == split]


def steps_of_ranks(events: EventsByRank) -> Iterator[Step]:
    """All steps of all ranks, rank by rank."""
    return (event for rank_events in events.values() for event in rank_events if isinstance(event, Step))


def curve_of(events: EventsByRank) -> list[CurvePoint]:
    """The validation evaluations of one attempt, in order, over all ranks."""
    sent: dict[int, int] = {}
    for step in steps_of_ranks(events):
        sent[step.step] = sent.get(step.step, 0) + (step.payload_bytes or 0)
    until = dict(zip(sorted(sent), accumulate(sent[step] for step in sorted(sent)), strict=True))
    by_step: dict[int, list[Evaluation]] = {}
    for rank_events in events.values():
        for found in evaluations(rank_events, "validation"):
            by_step.setdefault(found.step, []).append(found)
    return [
        CurvePoint(
            step=step,
            metrics=same[0].mean,
            samples=max(0, *(one.samples for one in same)),
            clock_s=max(0.0, *(one.clock_s for one in same)),
            target_met=any(one.target_met for one in same),
            payload_bytes=until.get(step, 0),
        )
        for step, same in sorted(by_step.items())
    ]


def _usual_metric(events: EventsByRank) -> str | None:
    recorded = [set(one.mean) for rank_events in events.values() for one in evaluations(rank_events, "validation")]
    return next((metric for metric in DEFAULT_METRICS if any(metric in metrics for metrics in recorded)), None)


def _clock_s(events: Sequence[Event]) -> float:
    end = _end_of(events)
    if end is not None and end.clock_s is not None:
        return end.clock_s
    return max((event.clock_s for event in events if isinstance(event, (Step, Evaluation))), default=0.0)


def _evaluation_s(events: Sequence[Event]) -> float:
    end = _end_of(events)
    if end is not None and end.evaluation_s is not None:
        return end.evaluation_s
    return sum(event.duration_s or 0.0 for event in events if isinstance(event, Evaluation))


def _payload_bytes(events: EventsByRank) -> int:
    """Sent by all ranks. A rank's ``end`` also knows what left after its last step; its steps are the fallback."""
    total = 0
    for rank, rank_events in events.items():
        end = _end_of(rank_events)
        if end is not None and end.payload_bytes is not None:
            total += end.payload_bytes
        else:
            total += sum(step.payload_bytes or 0 for step in steps_of_ranks({rank: rank_events}))
    return total


def _share(wire_bytes: int | None, part: int | None, whole: int) -> int | None:
    if wire_bytes is None or part is None:
        return None
    if whole == 0:  # an arm that sends nothing: what the wire saw (keep-alives) is all there is
        return wire_bytes
    return round(wire_bytes * min(1.0, part / whole))


def _metric_of_last(events: EventsByRank, split: str, metric: str | None) -> float | None:
    last = [found[-1] for rank_events in events.values() if (found := evaluations(rank_events, split))]
    if metric is None or not last:
        return None
    return max(last, key=lambda one: one.step).mean.get(metric)


def _replicas_identical(ends: Sequence[End | None]) -> bool | None:
    digests = [end.replica_sha256 if end is not None else None for end in ends]
    if not digests or any(digest is None for digest in digests):
        return None
    return len(set(digests)) == 1


def _end_of(events: Sequence[Event]) -> End | None:
    return next((event for event in reversed(events) if isinstance(event, End)), None)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
