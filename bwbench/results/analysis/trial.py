"""What one trial came to: the numbers of status.json, from the events of its ranks. Plain Python, nothing is imported
that the parent of a run would have to wait for."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from bwbench.results.analysis.ledger import additivity_error

Event = Mapping[str, Any]
EventsByRank = Mapping[int, Sequence[Event]]

DEFAULT_METRICS = ("accuracy", "loss")  # what a cell without a target is reported by, first one found


@dataclass(frozen=True)
class TrialSummary:
    """The measured part of status.json; None stands for "does not apply" or "was not recorded".

    Attributes:
        metric: the metric that the target names; without a target, accuracy or loss.
        time_to_target_s: training-clock seconds, largest over the ranks, at the first validation evaluation that meets
            the target.
        censored_at_s: training-clock seconds at the end of a run that ended without meeting its target.
        samples_to_target: samples over all nodes until then; likewise payload_bytes_to_target, summed over the ranks.
        wire_bytes_to_target: wire bytes of the whole run, scaled by the payload's share until then.
        final_metric: of the last validation evaluation; test_metric: of the evaluation on the test split.
        steps: optimizer steps; samples: over all nodes; training_clock_s, evaluation_s: largest over the ranks.
        payload_bytes: sent by all ranks together; wire_bytes: counted where shaping happens, with all headers, without
            acknowledgements.
        replicas_identical: whether all ranks ended with bit-equal parameters.
        ledger_error: how far the parts of the steps are from adding up, as a share; worst rank.
        compute_median_s, step_median_s: over steps and ranks, to compare cells by.
    """

    metric: str | None
    time_to_target_s: float | None
    censored_at_s: float | None
    samples_to_target: int | None
    payload_bytes_to_target: int | None
    wire_bytes_to_target: int | None
    final_metric: float | None
    test_metric: float | None
    steps: int
    samples: int
    training_clock_s: float
    evaluation_s: float
    payload_bytes: int
    wire_bytes: int | None
    replicas_identical: bool | None
    ledger_error: float | None
    compute_median_s: float | None
    step_median_s: float | None

    def to_json(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Arrival:
    step: int
    samples: int
    clock_s: float


def summarise(events: EventsByRank, cell: Mapping[str, Any], link: Mapping[str, Any] | None) -> TrialSummary:
    """Summary of one attempt.

    Args:
        events: what each rank recorded, in order. Ranks that ended early or recorded nothing are allowed.
        cell: content of cell.json.
        link: content of link.json, for the wire counters; None where nothing was counted.
    """
    metric = _metric(events, cell)
    arrival = _arrival(events) if target_of(cell["config"]) else None
    ends = [_last(rank_events, "end") for rank_events in events.values()]
    finished = bool(ends) and all(end is not None and end.get("status") == "done" for end in ends)
    clock_s = max((_clock_s(rank_events) for rank_events in events.values()), default=0.0)
    payload = _payload_bytes(events)
    wire_bytes = _wire_bytes(link)
    payload_to_target = _payload_until(events, arrival.step) if arrival else None
    steps = _of(events, "step")
    return TrialSummary(
        metric=metric,
        time_to_target_s=arrival.clock_s if arrival else None,
        censored_at_s=clock_s if target_of(cell["config"]) and finished and arrival is None else None,
        samples_to_target=arrival.samples if arrival else None,
        payload_bytes_to_target=payload_to_target,
        wire_bytes_to_target=_share(wire_bytes, payload_to_target, payload),
        final_metric=_metric_of_last(events, "validation", metric),
        test_metric=_metric_of_last(events, "test", metric),
        steps=max((int(event["step"]) for event in steps), default=0),
        samples=max((int(event["samples"]) for event in steps), default=0),
        training_clock_s=clock_s,
        evaluation_s=max((_evaluation_s(rank_events) for rank_events in events.values()), default=0.0),
        payload_bytes=payload,
        wire_bytes=wire_bytes,
        replicas_identical=_replicas_identical(ends),
        ledger_error=additivity_error(events),
        compute_median_s=_median([event["ledger"]["compute_s"] for event in steps if event.get("ledger")]),
        step_median_s=_median([event["duration_s"] for event in steps]),
    )


def target_of(config: Mapping[str, Any]) -> tuple[str, float] | None:
    """Metric and value of a cell's target, ``("accuracy", 0.95)``; None where the cell has none."""
    target = config.get("target")
    if not target:
        return None
    if "metric" in target:
        return str(target["metric"]), float(target["value"])
    metric, value = next(iter(target.items()))  # the YAML's short form {accuracy: 0.95}
    return str(metric), float(value)


def evaluations(events: Sequence[Event], split: str) -> list[Event]:
    """One rank's evaluations on ``split``, in order."""
    return [event for event in events if event.get("event") == "eval" and event.get("split") == split]


def curve_of(events: EventsByRank) -> list[dict[str, Any]]:
    """The validation evaluations of one attempt, in order: step, samples, clock_s (largest over the ranks), target_met,
    payload_bytes (that all ranks sent until then) and one key a metric (mean over the ranks)."""
    points: dict[int, dict[str, Any]] = {}
    sent: dict[int, int] = {}
    for event in _of(events, "step"):
        sent[int(event["step"])] = sent.get(int(event["step"]), 0) + int(event.get("payload_bytes") or 0)
    until = dict(zip(sorted(sent), accumulate(sent[step] for step in sorted(sent)), strict=True))
    for rank_events in events.values():
        for event in evaluations(rank_events, "validation"):
            point = points.setdefault(int(event["step"]), {"step": int(event["step"]), **event["mean"]})
            point["samples"] = max(point.get("samples", 0), int(event["samples"]))
            point["clock_s"] = max(point.get("clock_s", 0.0), float(event["clock_s"]))
            point["target_met"] = bool(point.get("target_met") or event.get("target_met"))
            point["payload_bytes"] = until.get(point["step"], 0)
    return [points[step] for step in sorted(points)]


def _metric(events: EventsByRank, cell: Mapping[str, Any]) -> str | None:
    target = target_of(cell["config"])
    if target:
        return target[0]
    recorded = [
        set(event["mean"]) for rank_events in events.values() for event in evaluations(rank_events, "validation")
    ]
    return next((metric for metric in DEFAULT_METRICS if any(metric in metrics for metrics in recorded)), None)


def _arrival(events: EventsByRank) -> _Arrival | None:
    """The first validation evaluation that met the target: decided on the mean over ranks, so all ranks agree on it."""
    by_rank = [evaluations(rank_events, "validation") for rank_events in events.values()]
    met = [event for rank_evaluations in by_rank for event in rank_evaluations if event.get("target_met")]
    if not met:
        return None
    step = min(int(event["step"]) for event in met)
    same = [event for rank_evaluations in by_rank for event in rank_evaluations if int(event["step"]) == step]
    return _Arrival(step, max(int(e["samples"]) for e in same), max(float(e["clock_s"]) for e in same))


def _clock_s(events: Sequence[Event]) -> float:
    end = _last(events, "end")
    if end is not None and end.get("clock_s") is not None:
        return float(end["clock_s"])
    return max((float(event["clock_s"]) for event in events if event.get("event") in ("step", "eval")), default=0.0)


def _evaluation_s(events: Sequence[Event]) -> float:
    end = _last(events, "end")
    if end is not None and end.get("evaluation_s") is not None:
        return float(end["evaluation_s"])
    return sum(float(event.get("duration_s") or 0.0) for event in events if event.get("event") == "eval")


def _payload_bytes(events: EventsByRank) -> int:
    """Sent by all ranks. A rank's ``end`` also knows what left after its last step; its steps are the fallback."""
    total = 0
    for rank_events in events.values():
        end = _last(rank_events, "end")
        if end is not None and end.get("payload_bytes") is not None:
            total += int(end["payload_bytes"])
        else:
            total += sum(int(e.get("payload_bytes") or 0) for e in rank_events if e.get("event") == "step")
    return total


def _payload_until(events: EventsByRank, step: int) -> int:
    return sum(int(event.get("payload_bytes") or 0) for event in _of(events, "step") if int(event["step"]) <= step)


def _wire_bytes(link: Mapping[str, Any] | None) -> int | None:
    """Acknowledgements are counted apart: they answer the payload of others."""
    wire = (link or {}).get("wire") or {}
    return int(wire["bytes"]) - int(wire.get("ack_bytes") or 0) if wire.get("bytes") is not None else None


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
    value = max(last, key=lambda event: int(event["step"]))["mean"].get(metric)
    return None if value is None else float(value)


def _replicas_identical(ends: Sequence[Event | None]) -> bool | None:
    digests = [end.get("replica_sha256") if end is not None else None for end in ends]
    if not digests or any(digest is None for digest in digests):
        return None
    return len(set(digests)) == 1


def _last(events: Sequence[Event], kind: str) -> Event | None:
    return next((event for event in reversed(events) if event.get("event") == kind), None)


def _of(events: EventsByRank, kind: str) -> list[Event]:
    return [event for rank_events in events.values() for event in rank_events if event.get("event") == kind]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
