"""A comparison as JSON and as a flat table, for other programs: arms by their recorded names, numbers in SI units."""

from __future__ import annotations

import math
from dataclasses import asdict

from bwbench.results.analysis.comparison import ArmRow, BestRow, Comparison, CrossoverRow, FootingRow, SamplesRow
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.throughput import RateRow

RATIO_OF = "time of the baseline / time of the algorithm: above 1 the algorithm is faster"
_DIGITS = 6  # of computed bandwidths


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """``rows``, ``samples``, ``rates``, ``crossovers``, ``best``, ``pareto``, ``footing``, ``labels`` as
    docs/statistics.md describes them."""
    return {
        "ratio_of": RATIO_OF,
        "rows": [_arm_json(row) for row in comparison.rows],
        "samples": [_samples_json(row) for row in comparison.samples],
        "rates": [_rate_json(row) for row in comparison.rates],
        "crossovers": [_crossovers_json(row) for row in comparison.crossovers],
        "best": [_best_json(row) for row in comparison.best],
        "pareto": [
            {"group" if key == "condition" else key: value for key, value in vars(row).items()}
            for row in comparison.pareto
        ],
        "footing": [_footing_json(row) for row in comparison.footing],
        "labels": comparison.labels,
    }


def ratio_rows(comparison: Comparison) -> list[dict[str, object]]:
    """Its ratios as a flat table: the condition as columns ``group.KEY``; where nothing has a target those of samples
    a second."""
    found = []
    for row in map(_arm_json, comparison.rows) if comparison.rows else map(_rate_json, comparison.rates):
        group = row.pop("group")
        assert isinstance(group, dict)
        found.append({**{f"group.{key}": value for key, value in group.items()}, **row})
    return found


def _arm_json(row: ArmRow) -> dict[str, object]:
    ratio, time, reference, parts = row.ratio, row.time, row.baseline_time, row.taken_apart
    together = ratio.ends(row.together) if ratio else None
    return {
        "experiment": row.experiment,
        "group": row.condition,
        "algorithm": row.algorithm,
        "baseline": row.baseline,
        **_ratio_json("ratio", ratio),
        "ratio_together_low": together[0] if together else None,
        "ratio_together_high": together[1] if together else None,
        "kind": ratio.kind if ratio else None,
        "paired": bool(ratio and ratio.paired),
        "dominant": ratio.dominant if ratio else None,
        **_ratio_json("step_ratio", parts.step if parts else None),
        **_ratio_json("samples_ratio", parts.samples if parts else None),
        "n": row.num,
        "num_censored": row.num_censored,
        "composed": row.composed,
        "host_bound": row.host_bound,
        "first_crossing": row.first_crossing,
        "baseline_first_crossing": row.baseline_first_crossing,
        "time_s": None if math.isinf(time.value) else time.value,
        "time_low_s": time.low,
        "time_high_s": time.high,
        "time_at_least_s": time.at_least,
        "baseline_time_s": None if reference is None or math.isinf(reference.value) else reference.value,
        "algorithm_n": time.num,
        "baseline_n": reference.num if reference else 0,
        "algorithm_num_censored": time.num_censored,
        "baseline_num_censored": reference.num_censored if reference else 0,
    }


def _samples_json(row: SamplesRow) -> dict[str, object]:
    own, reference = row.samples, row.baseline_samples
    return {
        "experiment": row.experiment,
        "group": row.condition,
        "algorithm": row.algorithm,
        "baseline": row.baseline,
        **_ratio_json("samples_ratio", row.ratio),
        "n": row.num,
        "num_censored": row.num_censored,
        "samples": None if math.isinf(own.value) else own.value,
        "samples_low": own.low,
        "samples_high": own.high,
        "samples_at_least": own.at_least,
        "baseline_samples": None if reference is None or math.isinf(reference.value) else reference.value,
    }


def _rate_json(row: RateRow) -> dict[str, object]:
    sample = row.sample
    return {
        "experiment": row.experiment,
        "group": row.condition,
        "algorithm": row.algorithm,
        "baseline": row.baseline,
        "nodes": row.nodes,
        **_ratio_json("rate_ratio", row.ratio),
        "n": row.num,
        "host_bound": row.host_bound,
        "step_s": row.step.value,
        "samples_per_s": row.samples_per_s,
        "samples_per_s_low": None if sample.high is None else 1 / sample.high,
        "samples_per_s_high": None if sample.low is None else 1 / sample.low,
    }


def _ratio_json(name: str, ratio: Ratio | None) -> dict[str, object]:
    """The value and both ends; a bound stands at the end that it is one for."""
    if ratio is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    low, high = (ratio.value if ratio.bound == sign else end for sign, end in ((">", ratio.low), ("<", ratio.high)))
    return {name: None if ratio.bound else ratio.value, f"{name}_low": low, f"{name}_high": high}


def _best_json(row: BestRow) -> dict[str, object]:
    best = row.best
    others = {name: _ratio_json("ratio", ratio) for name, ratio in best.behind.items() if name not in best.members}
    return {
        "experiment": row.experiment,
        "group": row.condition,
        "first": best.first,
        "members": list(best.members),
        "untold": list(best.untold),
        "behind": others,
        "num_arms": len(best.times),
        "composed": row.composed,
    }


def _crossovers_json(row: CrossoverRow) -> dict[str, object]:
    about = {"experiment": row.experiment, "group": row.condition, "algorithm": row.algorithm, "baseline": row.baseline}
    found = [
        {
            "bandwidth_bps": _rounded(one.bandwidth_bps),
            "low_bps": _rounded(one.low_bps),
            "high_bps": _rounded(one.high_bps),
            "s_over_bt": row.scale.at(one.bandwidth_bps),
            "s_over_bt_low": row.scale.at(one.high_bps),
            "s_over_bt_high": row.scale.at(one.low_bps),
            "algorithm_faster_below": one.arm_faster_below,
        }
        for one in row.crossovers.found
    ]
    facts = {"gradient_bytes": row.scale.gradient_bytes, "compute_s": row.scale.compute_s, "composed": row.composed}
    kind = {"kind": row.crossovers.kind, "why": row.crossovers.why, "n": row.crossovers.num}
    return {**about, **kind, "found": found, **facts}


def _footing_json(row: FootingRow) -> dict[str, object]:
    about = {"experiment": row.experiment, "group": row.condition, "algorithm": row.algorithm}
    return {**about, **asdict(row.footing), "composed": row.composed}


def _rounded(bandwidth_bps: float | None) -> float | None:
    return None if bandwidth_bps is None else float(f"{bandwidth_bps:.{_DIGITS}g}")
