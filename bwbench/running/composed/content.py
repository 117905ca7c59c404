"""What is recorded of a composed cell: ``composed.json``, and the fields of its status.json."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import Parts
from bwbench.methods.phases import UNTIMED_STEPS, Phase, walk
from bwbench.records import CellFolder
from bwbench.records.schema import (
    PARTS,
    Composed,
    ComposedFrom,
    Kind,
    LedgerSummary,
    LinkRecord,
    Status,
    TrialSummary,
    finite,
)
from bwbench.results.analysis.compose import Composition, compose
from bwbench.results.analysis.ledger import RankStep, step_ledgers, summarise_ledger
from bwbench.results.analysis.scale import gradient_bytes_of
from bwbench.results.analysis.trial import EventsByRank, evaluations


def weighted_ledger(timing: EventsByRank, phases: Sequence[Phase], kinds: Sequence[Kind]) -> LedgerSummary | None:
    """Summary of the composed run's steps; None where the timing run recorded none. Pure.

    Means are those of the composed run; rounds are rarer there than in the timing run. Medians are those of the kind
    that most of its steps are of.

    Args:
        timing: events of the timing run's ranks.
        phases: of the timing run.
        kinds: of the composed run, with the number of steps of each.
    """
    summary = summarise_ledger(timing)
    if summary is None:
        return None
    drained = {e.step for events in timing.values() for e in evaluations(events, "validation")}
    ledgers = list(step_ledgers(timing))
    kind_of = {step.number: step.kind for step in walk(phases, max(ledger.step for ledger in ledgers), drained)}
    by_kind: dict[str, list[RankStep]] = {}
    for ledger in ledgers:
        if ledger.step > UNTIMED_STEPS:
            by_kind.setdefault(kind_of[ledger.step], []).append(ledger)
    weights = {kind.name: kind.num_steps for kind in kinds if kind.num_steps and kind.name in by_kind}
    if not weights:
        return summary
    usual = by_kind[max(weights, key=lambda name: weights[name])]

    def mean(part: str) -> float:
        sums = (
            count * statistics.fmean(getattr(one, part) for one in by_kind[name]) for name, count in weights.items()
        )
        return sum(sums) / sum(weights.values())

    return summary.model_copy(
        update={
            "mean_s": {part: mean(part) for part in PARTS},
            "median_s": {part: statistics.median(getattr(one, part) for one in usual) for part in PARTS},
            "step_mean_s": mean("duration_s"),
            "step_median_s": statistics.median(one.duration_s for one in usual),
        }
    )


def put_together(cell: Cell, parts: Parts, convergence: CellFolder, timing: CellFolder) -> Composition:
    """The cell's run as it would have been. Raises NotComposableError where the parts do not fit."""
    config = cell.config
    return compose(
        _events(convergence),
        _events(timing),
        parts.phases,
        parts.timing_phases,
        has_target=config.target is not None,
        ends_at_target=config.stop == "target",
        limit_s=config.limit.time_s,
        seconds_per_byte=parts.seconds_per_byte,
        seed=int(cell.id, 16) % 2**32,
    )


def composed_record(
    cell: Cell, parts: Parts, found: Composition, convergence: CellFolder, timing: CellFolder
) -> Composed:
    """composed.json: all that tables and figures need, so that they need not look at the parts."""
    link = timing.link or LinkRecord()
    return Composed(
        id=cell.id,
        **dict(_sources(found, convergence, timing)),
        time_to_target_s=found.time_to_target_s,
        censored_at_s=found.censored_at_s,
        training_clock_s=found.training_clock_s,
        reason=found.reason,
        kinds=found.kinds,
        curve=found.curve,
        ledger=weighted_ledger(_events(timing), parts.timing_phases, found.kinds),
        gradient_bytes=gradient_bytes_of(convergence),
        link=link.model_copy(update={"wire": None}),  # whose bytes are those of the timing run
        environment=timing.environment,
    )


def composed_status(
    item: PlannedCell, found: Composition, convergence: CellFolder, timing: CellFolder, wall_s: float
) -> Status:
    """status.json. What the link decides is the timing run's, the rest the convergence run's.

    Args:
        wall_s: that composing took, with the runs that had to be made for it.
    """
    computed, timed = convergence.status or TrialSummary(), timing.status or TrialSummary()
    target = item.cell.config.target
    metric = target.metric if target is not None else computed.metric
    whole = found.steps == computed.steps
    payload = (computed.payload_bytes or 0) if whole else found.payload_bytes
    wire_ratio = _wire_ratio(timed)
    to_target = found.payload_bytes_to_target
    return Status(
        id=item.cell.id,
        slug=item.cell.slug,
        status="done",
        reason=found.reason,
        attempt=item.attempt,
        wall_s=wall_s,
        overhead_s=None,
        metric=metric,
        time_to_target_s=found.time_to_target_s,
        censored_at_s=found.censored_at_s,
        samples_to_target=found.samples_to_target,
        payload_bytes_to_target=to_target,
        wire_bytes_to_target=None if to_target is None or wire_ratio is None else round(to_target * wire_ratio),
        final_metric=found.curve[-1].metrics.get(metric) if metric and found.curve else None,
        test_metric=computed.test_metric if whole else None,
        steps=found.steps,
        samples=found.samples,
        training_clock_s=found.training_clock_s,
        evaluation_s=computed.evaluation_s,
        payload_bytes=payload,
        wire_bytes=None if wire_ratio is None else round(payload * wire_ratio),
        replicas_identical=computed.replicas_identical if whole else None,
        ledger_error=timed.ledger_error,
        compute_median_s=timed.compute_median_s,
        step_median_s=timed.step_median_s,
        composed=_sources(found, convergence, timing),
    )


def _sources(found: Composition, convergence: CellFolder, timing: CellFolder) -> ComposedFrom:
    return ComposedFrom(
        convergence=convergence.cell.id,
        timing=timing.cell.id,
        interval_s=found.interval_s,
        timed_steps=sum(kind.num_timed for kind in found.kinds if kind.name != "evaluation"),
        max_payload_ratio=finite(found.max_payload_ratio),
    )


def _events(folder: CellFolder) -> EventsByRank:
    return {rank: folder.events(rank) for rank in folder.ranks}


def _wire_ratio(timed: TrialSummary) -> float | None:
    if timed.wire_bytes is None or timed.payload_bytes is None:
        return None
    return timed.wire_bytes / timed.payload_bytes if timed.payload_bytes else 0.0
