"""Every arm against a baseline: as JSON, and as tables for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bwbench.base.units import BANDWIDTH
from bwbench.cli.output import plain_table, print_json, say_unreadable, seconds
from bwbench.records import CellFolder, readable
from bwbench.results.analysis.caveats import composed_errors, composed_note, provenance_note
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK, at_target
from bwbench.results.analysis.cells import DONE, cell_row, is_composed, left_out_notes, state_of
from bwbench.results.analysis.comparison import (
    ArmRow,
    BestRow,
    Comparison,
    Condition,
    CrossoverRow,
    FootingRow,
    ParetoRow,
    compare_cells,
)
from bwbench.results.analysis.crossover import Crossover
from bwbench.results.analysis.equal_footing import MetricMean
from bwbench.results.analysis.host_bound import OwnSteps, host_bound_note
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.statistics import Estimate

RATIO_OF = "time of the baseline / time of the algorithm: above 1 the algorithm is faster"
_DIGITS = 6  # of computed bandwidths


def print_comparison(
    found: Iterable[CellFolder], baseline: str, by: str, target: tuple[str, float] | None = None, *, as_json: bool
) -> None:
    """Print how the arms compare on stdout; notes on what is left out on stderr, or in the JSON document.

    Args:
        found: cells, readable or not.
        by: dotted key of the configuration whose values stand first.
        target: metric and value to compare at in place of the recorded target.
    """
    cells, refused = readable(found)
    cells = at_target(cells, target)
    comparison = compare_cells(cells, baseline, by)
    left_out = [note.replace("Not drawn", "Left out") for note in left_out_notes(cells)]
    done = [cell for cell in cells if state_of(cell) == DONE]
    composed = composed_note(sum(map(is_composed, done)), len(done), [one.error for one in composed_errors(done)])
    own = OwnSteps.of(done)
    bound = host_bound_note([cell_row(cell) | own.row(cell) for cell in done])
    notes = [*comparison.notes, *left_out, *filter(None, (composed, bound, provenance_note(done)))]
    if as_json:
        print_json({**comparison_json(comparison), "notes": [*map(str, refused), *notes]})
        return
    for line in comparison_lines(comparison):
        print(line)
    sys.stdout.flush()
    say_unreadable(refused)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """``rows``, ``crossovers``, ``best``, ``pareto``, ``footing`` as docs/statistics.md describes them."""
    return {
        "ratio_of": RATIO_OF,
        "rows": [_arm_json(row) for row in comparison.rows],
        "crossovers": [_crossovers_json(row) for row in comparison.crossovers],
        "best": [_best_json(row) for row in comparison.best],
        "pareto": [
            {"group" if key == "condition" else key: value for key, value in vars(row).items()}
            for row in comparison.pareto
        ],
        "footing": [_footing_json(row) for row in comparison.footing],
    }


def ratio_rows(comparison: Comparison) -> list[dict[str, object]]:
    """Its ratios as a flat table: the condition as columns ``group.KEY``."""
    found = []
    for row in map(_arm_json, comparison.rows):
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


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Tables, with a heading each."""
    baseline = comparison.rows[0].baseline if comparison.rows else ""
    if comparison.rows:
        yield f"Times as fast as {baseline} (95 % interval each; + paired by seed, since both learn alike)"
        columns = ["algorithm", "time to target", baseline, "times as fast", "interval", "step time", "samples",
                   "widest by", "n", "not reached"]  # fmt: skip
        yield from _table(comparison.rows, columns, _arm_cells)
    if comparison.best:
        yield ""
        yield "May be the fastest (all others are slower, together with 95 %)"
        columns = ["shortest time", "algorithm", "as fast, or not to be told apart", "slower, times as long"]
        yield from _table(comparison.best, columns, _best_cells)
    if comparison.crossovers:
        yield ""
        yield f"Bandwidth at which an algorithm and {baseline} are equally fast"
        columns = ["algorithm", "faster below", "crossover", "95 % interval", "S/(B·T)", "n", "why"]
        yield from _table(comparison.crossovers, columns, _crossover_cells)
    optimal = [row for row in comparison.pareto if row.optimal]
    if optimal:
        yield ""
        yield "Not beaten in both time and accuracy (Pareto set)"
        yield from _table(optimal, ["algorithm", "time to target", "final metric", "n"], _pareto_cells)
    if comparison.footing:
        yield ""
        yield "How good at equal samples, at equal time and at the end (95 % interval each)"
        columns = ["algorithm", "metric", "on", "samples", "there", "time", "there", "at the end", "n"]
        yield from _table(comparison.footing, columns, _footing_cells)
        if any(row.footing.test_at_samples is None or row.footing.test_at_time is None for row in comparison.footing):
            yield "-: the test split was not looked at there; 'evaluate: {test: always}' does so at every evaluation"


def _table(
    rows: Sequence[ArmRow | BestRow | CrossoverRow | FootingRow | ParetoRow],
    columns: list[str],
    cells: Callable[[Any], list[list[str]]],
) -> Iterator[str]:
    """A column for each part of the condition that varies, and one for composed values where there are any."""
    several = len({row.experiment for row in rows}) > 1
    keys = _shown_keys([row.condition for row in rows])
    marked = any(row.composed for row in rows)
    lines = []
    for row in rows:
        before = [row.experiment] if several else []
        before += [_text(row.condition.get(key)) for key in keys]
        after = (["composed" if row.composed else "measured"]) if marked else []
        lines += [[*before, *line, *after] for line in cells(row)]
    head = [*(["experiment"] if several else []), *keys, *columns, *(["how"] if marked else [])]
    right = {
        "time to target",
        "shortest time",
        "times as fast",
        "n",
        "not reached",
        "final metric",
        "crossover",
        "S/(B·T)",
    }
    yield from plain_table(head, lines, right=right)


def _shown_keys(conditions: Sequence[Condition]) -> list[str]:
    keys = list(dict.fromkeys(key for condition in conditions for key in condition))
    varying = [key for key in keys if len({_text(condition.get(key)) for condition in conditions}) > 1]
    return list(dict.fromkeys([*keys[:1], *varying]))


def _arm_cells(row: ArmRow) -> list[list[str]]:
    ratio, parts = row.ratio, row.taken_apart
    value = "-" if ratio is None else f"{ratio.bound} {ratio.value:.3g}{'+' if ratio.paired else ''}".strip()
    ends = "-"
    if ratio is not None and ratio.low is not None and ratio.high is not None:
        ends = f"{ratio.low:.3g} to {ratio.high:.3g}"
    elif ratio is not None and ratio.kind != "geometric mean":
        ends = ratio.kind
    time, reference = row.time, row.baseline_time
    both = time.num + (reference.num if reference else 0)
    missed = f"{row.num_censored} of {both}" if row.num_censored else "-"
    widest = ratio.dominant if ratio is not None and ratio.dominant else "-"
    made_of = ["-", "-"] if parts is None else [_factor(parts.step), _factor(parts.samples)]
    own = _time(time, first_crossing=row.first_crossing)
    other = "-" if reference is None else _time(reference, first_crossing=row.baseline_first_crossing)
    return [[row.algorithm, own, other, value, ends, *made_of, widest, str(row.num), missed]]


def _factor(ratio: Ratio) -> str:
    """A part of a ratio with its interval: ``1.92 (1.80 to 2.05)``."""
    value = f"{ratio.bound} {ratio.value:.3g}".strip()
    return value if ratio.low is None or ratio.high is None else f"{value} ({ratio.low:.3g} to {ratio.high:.3g})"


def _best_cells(row: BestRow) -> list[list[str]]:
    best = row.best
    if best.first is None:
        return [["-", "none", "-", "-"]]
    untold = dict.fromkeys(best.untold, " (untold)")
    alike = ", ".join(f"{name}{untold.get(name, '')}" for name in best.members if name != best.first)
    slower = ", ".join(
        f"{name} {ratio.bound}{' ' if ratio.bound else ''}{ratio.value:.3g}"
        for name, ratio in best.behind.items()
        if ratio is not None and name not in best.members
    )
    return [[seconds(best.times[best.first].value), best.first, alike or "-", slower or "-"]]


def _crossover_cells(row: CrossoverRow) -> list[list[str]]:
    crossovers = row.crossovers
    if not crossovers.found:
        return [[row.algorithm, "-", "none", "-", "-", str(crossovers.num), crossovers.why]]
    lines = []
    for one in crossovers.found:
        who = {True: row.algorithm, False: row.baseline, None: "-"}[one.arm_faster_below]
        inside = crossovers.kind in ("one", "several")
        place = _bandwidth(one.bandwidth_bps) if inside else crossovers.kind
        scale = row.scale.at(one.bandwidth_bps)
        shown = "-" if scale is None else f"{scale:.3g}"
        ends = _ends(one, has_interval=crossovers.num > 1 or not inside)
        lines.append([row.algorithm, who, place, ends, shown, str(crossovers.num), crossovers.why])
    return lines


def _ends(one: Crossover, *, has_interval: bool) -> str:
    if not has_interval:
        return "-"
    if one.low_bps is None and one.high_bps is None:
        return "open on both sides"
    low, high = _bandwidth(one.low_bps), _bandwidth(one.high_bps)
    if one.low_bps is None:
        return f"below {high}"
    return f"above {low}" if one.high_bps is None else f"{low} to {high}"


def _pareto_cells(row: ParetoRow) -> list[list[str]]:
    time = "not reached" if row.time_s is None else _marked(seconds(row.time_s), first_crossing=row.first_crossing)
    return [[row.algorithm, time, f"{row.metric} {row.metric_value:.4g}", str(row.n)]]


def _footing_cells(row: FootingRow) -> list[list[str]]:
    found = row.footing
    samples, time, num = f"{found.samples:.0f}", seconds(found.clock_s), str(found.at_end.n)
    lines = {
        "validation": (found.at_samples, found.at_time, found.at_end),
        "test": (found.test_at_samples, found.test_at_time, found.test),
    }
    return [
        [row.algorithm, found.metric, split, samples, _level(one), time, _level(other), _level(end), num]
        for split, (one, other, end) in lines.items()
    ]


def _level(level: MetricMean | None) -> str:
    if level is None:
        return "-"
    value = f"{level.value:.4g}"
    return value if level.low is None or level.high is None else f"{value} ({level.low:.4g} to {level.high:.4g})"


def _footing_json(row: FootingRow) -> dict[str, object]:
    about = {"experiment": row.experiment, "group": row.condition, "algorithm": row.algorithm}
    return {**about, **asdict(row.footing), "composed": row.composed}


def _time(estimate: Estimate, *, first_crossing: bool) -> str:
    if math.isinf(estimate.value):
        return f"> {seconds(estimate.at_least)}"
    return _marked(seconds(estimate.value), first_crossing=first_crossing)


def _marked(time: str, *, first_crossing: bool) -> str:
    return f"{time} {FIRST_CROSSING_MARK}" if first_crossing else time


def _bandwidth(bandwidth_bps: float | None) -> str:
    return "-" if bandwidth_bps is None else BANDWIDTH.show(bandwidth_bps, 3)


def _rounded(bandwidth_bps: float | None) -> float | None:
    return None if bandwidth_bps is None else float(f"{bandwidth_bps:.{_DIGITS}g}")


def _text(value: object) -> str:
    return "-" if value is None else str(value)
