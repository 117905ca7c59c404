"""Where the time of a composed run's steps goes: the timed steps, each kind weighing as much as in the whole run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bwbench.methods.phases import UNTIMED_STEPS, Phase, walk
from bwbench.records.schema import PARTS, Kind, LedgerSummary
from bwbench.results.analysis.ledger import RankStep, step_ledgers, summarise_ledger
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
