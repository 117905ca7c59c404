"""Every arm against a baseline, as tables for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.cli.answer_text import answer_lines, answers_json
from bwbench.cli.comparison_json import comparison_json
from bwbench.cli.output import fit_table, flowed, plain_table, print_json, say_unreadable, seconds, table_width
from bwbench.records import CellFolder, readable
from bwbench.results.analysis.answer import answers
from bwbench.results.analysis.arm_cells import Condition
from bwbench.results.analysis.arm_labels import recorded_name
from bwbench.results.analysis.best_set import BestSet
from bwbench.results.analysis.caveats import COMPOSED_MARK
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK, at_target
from bwbench.results.analysis.cells import DONE, cell_row, left_out_notes, state_of
from bwbench.results.analysis.comparison import (
    ArmRow,
    BestRow,
    Comparison,
    CrossoverRow,
    FootingRow,
    ParetoRow,
    SamplesRow,
    compare_cells,
)
from bwbench.results.analysis.crossover import Crossover
from bwbench.results.analysis.equal_footing import MetricMean
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK, OwnSteps
from bwbench.results.analysis.notes import notes_on
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.statistics import ONE_REPEAT, Estimate
from bwbench.results.analysis.throughput import RateRow


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
    in_short = answers(cells, recorded_name(baseline, comparison.labels), comparison.labels)
    notes = comparison_notes(comparison, cells)
    if as_json:
        document = {"answers": answers_json(in_short), **comparison_json(comparison)}
        print_json({**document, "notes": [*map(str, refused), *notes]})
        return
    width = table_width()
    for line in (*answer_lines(in_short, width), *comparison_lines(comparison, width)):
        print(line)
    sys.stdout.flush()
    say_unreadable(refused)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def comparison_notes(comparison: Comparison, cells: Sequence[CellFolder]) -> list[str]:
    """What must be said of a comparison of these cells: what is left out, composed, bound by the host, or mixed."""
    left_out = [note.replace("Not drawn", "Left out") for note in left_out_notes(cells)]
    done = [cell for cell in cells if state_of(cell) == DONE]
    own = OwnSteps.of(done)
    return [*comparison.notes, *left_out, *notes_on(done, [cell_row(cell) | own.row(cell) for cell in done])]


_INDENT = "  "
_RIGHT = frozenset(  # columns of numbers
    ("time to target", "samples to target", "shortest time", "times as fast", "times as few", "times as many", "n")
    + ("not reached", "nodes", "step", "samples a second", "final metric", "crossover", "S/(B·T)")
)


def comparison_lines(comparison: Comparison, width: int = sys.maxsize) -> Iterator[str]:
    """Tables, with a heading each, for a terminal of so many columns."""
    sections = _sections(_labelled(comparison), width)
    for number, (title, *lines) in enumerate(filter(None, map(list, sections))):
        if number:
            yield ""
        yield from flowed(title, width)
        yield from lines


def _sections(comparison: Comparison, width: int) -> Iterator[Iterator[str]]:
    yield _times_lines(comparison.rows, width)
    yield _samples_lines(comparison.samples, width)
    yield _rates_lines(comparison.rates, width)
    yield _best_lines(comparison.best, width)
    yield _crossover_lines(comparison.crossovers, width)
    yield _pareto_lines([row for row in comparison.pareto if row.optimal], width)
    yield _footing_lines(comparison.footing, width)


def _times_lines(rows: Sequence[ArmRow], width: int) -> Iterator[str]:
    if not rows:
        return
    baseline = rows[0].baseline
    yield f"Times as fast as {baseline} (95 % interval each; + paired by seed, since both learn alike)"
    columns = ["algorithm", "time to target", baseline, "times as fast", "interval", "step time", "samples",
               "widest by", "n", "not reached"]  # fmt: skip
    less_needed = ("widest by", "not reached", "samples", "step time")
    yield from _table(rows, columns, _arm_cells, width, less_needed=less_needed)


def _samples_lines(rows: Sequence[SamplesRow], width: int) -> Iterator[str]:
    if not rows:
        return
    baseline = rows[0].baseline
    yield f"Virtual nodes, by samples alone: times as few as {baseline} (95 % interval each)"
    columns = ["algorithm", "samples to target", baseline, "times as few", "interval", "n", "not reached"]
    yield from _table(rows, columns, _samples_cells, width)


def _rates_lines(rows: Sequence[RateRow], width: int) -> Iterator[str]:
    if not rows:
        return
    baseline = rows[0].baseline
    yield f"Samples a second, and how many times those of {baseline} (95 % interval each); no target, so no time to it"
    columns = ["algorithm", "nodes", "step", "samples a second", "times as many", "interval", "n"]
    yield from _table(rows, columns, _rate_cells, width)


def _best_lines(rows: Sequence[BestRow], width: int) -> Iterator[str]:
    if not rows:
        return
    untold = any(row.best.untold for row in rows)
    told = not untold or any(set(row.best.behind) - set(row.best.untold) for row in rows)
    if told:
        yield "May be the fastest (with 95 % the fastest is among them)"
    else:
        yield f"Shortest time, and how many times as long others take ({ONE_REPEAT})"
    columns = ["shortest time", "algorithm"]
    columns += ["as fast, or not to be told apart", "slower, times as long"] if told else []
    columns += ["not tested, times as long"] if untold else []
    yield from _table(
        rows, columns, lambda row: [_best_cells(row, told=told, untold=untold)], width, flowing=columns[2:]
    )
    if untold and told:
        yield f"not tested: {ONE_REPEAT}, nor do too few that arrived"


def _crossover_lines(rows: Sequence[CrossoverRow], width: int) -> Iterator[str]:
    if not rows:
        return
    yield f"Bandwidth at which an algorithm and {rows[0].baseline} are equally fast"
    columns = ["algorithm", "faster below", "crossover", "95 % interval", "S/(B·T)", "n", "why"]
    yield from _table(rows, columns, _crossover_cells, width, less_needed=["S/(B·T)"], flowing=["why"])


def _pareto_lines(rows: Sequence[ParetoRow], width: int) -> Iterator[str]:
    if rows:
        yield "Not beaten in both time and accuracy (Pareto set)"
        yield from _table(rows, ["algorithm", "time to target", "final metric", "n"], _pareto_cells, width)


def _footing_lines(rows: Sequence[FootingRow], width: int) -> Iterator[str]:
    if not rows:
        return
    timed = any(row.footing.clock_s is not None for row in rows)
    yield f"How good at equal samples{', at equal time' if timed else ''} and at the end (95 % interval each)"
    at_time = ["time", "there"] if timed else []
    columns = ["algorithm", "metric", "on", "samples", "there", *at_time, "at the end", "n"]
    yield from _table(rows, columns, lambda row: _footing_cells(row, timed=timed), width)
    footings = [row.footing for row in rows]
    if any(one.test_at_samples is None or (timed and one.test_at_time is None) for one in footings):
        yield "-: the test split was not looked at there; 'evaluate: {test: always}' does so at every evaluation"


def _labelled(comparison: Comparison) -> Comparison:
    """The same with the labels of arms in the place of their recorded names."""

    def label(name: str) -> str:
        return comparison.labels.get(name, name)

    def of_best(row: BestRow) -> BestRow:
        best = row.best
        named = BestSet(
            None if best.first is None else label(best.first),
            tuple(map(label, best.members)),
            tuple(map(label, best.untold)),
            {label(name): ratio for name, ratio in best.behind.items()},
            {label(name): time for name, time in best.times.items()},
        )
        return replace(row, best=named)

    return replace(
        comparison,
        rows=[replace(row, algorithm=label(row.algorithm), baseline=label(row.baseline)) for row in comparison.rows],
        samples=[
            replace(row, algorithm=label(row.algorithm), baseline=label(row.baseline)) for row in comparison.samples
        ],
        crossovers=[
            replace(row, algorithm=label(row.algorithm), baseline=label(row.baseline)) for row in comparison.crossovers
        ],
        best=[of_best(row) for row in comparison.best],
        pareto=[replace(row, algorithm=label(row.algorithm)) for row in comparison.pareto],
        footing=[replace(row, algorithm=label(row.algorithm)) for row in comparison.footing],
        rates=[replace(row, algorithm=label(row.algorithm), baseline=label(row.baseline)) for row in comparison.rates],
    )


def _table(
    rows: Sequence[ArmRow | BestRow | CrossoverRow | FootingRow | ParetoRow | RateRow | SamplesRow],
    columns: list[str],
    cells: Callable[[Any], list[list[str]]],
    width: int,
    *,
    less_needed: Sequence[str] = (),
    flowing: Sequence[str] = (),
) -> Iterator[str]:
    """A column for each part of the condition that varies; where there is no room for them, a heading a condition."""
    several = len({row.experiment for row in rows}) > 1
    keys = _shown_keys([row.condition for row in rows])
    conditions, lines = [], []
    for row in rows:
        condition = [*([row.experiment] if several else []), *(_text(row.condition.get(key)) for key in keys)]
        for line in cells(row):
            conditions.append(condition)
            lines.append(line)
    head = [*(["experiment"] if several else []), *keys]
    flat = [[*condition, *line] for condition, line in zip(conditions, lines, strict=True)]
    whole = list(plain_table([*head, *columns], flat, right=_RIGHT))
    if max(map(len, whole)) <= width:
        yield from whole
        return
    room = width - len(_INDENT)
    table = fit_table(columns, lines, room, less_needed=less_needed, flowing=flowing, right=_RIGHT)
    yield from (f"{_INDENT}{line}" for line in table.header.splitlines())
    before: list[str] = []
    for condition, of_row in zip(conditions, table.rows, strict=True):
        if condition != before:
            yield ", ".join(f"{key} {value}" for key, value in zip(head, condition, strict=True) if value != "-")
            before = condition
        yield from (f"{_INDENT}{line}" for line in of_row)
    yield from table.note


def _shown_keys(conditions: Sequence[Condition]) -> list[str]:
    keys = list(dict.fromkeys(key for condition in conditions for key in condition))
    varying = [key for key in keys if len({_text(condition.get(key)) for condition in conditions}) > 1]
    return list(dict.fromkeys([*keys[:1], *varying]))


def _arm_cells(row: ArmRow) -> list[list[str]]:
    ratio, parts = row.ratio, row.taken_apart
    value = "-" if ratio is None else f"{ratio.bound} {ratio.value:.3g}{'+' if ratio.paired else ''}".strip()
    value += _marks(composed=row.composed, host_bound=row.host_bound)
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


def _marks(*, composed: bool, host_bound: bool = False) -> str:
    marks = f"{COMPOSED_MARK if composed else ''}{HOST_BOUND_MARK if host_bound else ''}"
    return f" {marks}" if marks else ""


def _factor(ratio: Ratio) -> str:
    """A part of a ratio with its interval: ``1.92 (1.80 to 2.05)``."""
    value = f"{ratio.bound} {ratio.value:.3g}".strip()
    return value if ratio.low is None or ratio.high is None else f"{value} ({ratio.low:.3g} to {ratio.high:.3g})"


def _samples_cells(row: SamplesRow) -> list[list[str]]:
    ratio, reference = row.ratio, row.baseline_samples
    value, ends = "-", "-"
    if ratio is not None:
        value = f"{ratio.bound} {ratio.value:.3g}{'+' if ratio.paired else ''}".strip()
        if ratio.low is not None and ratio.high is not None:
            ends = f"{ratio.low:.3g} to {ratio.high:.3g}"
    both = row.samples.num + (reference.num if reference else 0)
    missed = f"{row.num_censored} of {both}" if row.num_censored else "-"
    other = "-" if reference is None else _samples(reference)
    return [[row.algorithm, _samples(row.samples), other, value, ends, str(row.num), missed]]


def _rate_cells(row: RateRow) -> list[list[str]]:
    ratio, value, ends = row.ratio, "-", "-"
    if ratio is not None:
        value = f"{ratio.value:.3g}{_marks(composed=False, host_bound=row.host_bound)}"
        if ratio.low is not None and ratio.high is not None:
            ends = f"{ratio.low:.3g} to {ratio.high:.3g}"
    rate = f"{row.samples_per_s:.3g}"
    return [[row.algorithm, str(row.nodes), DURATION.show(row.step.value, 3), rate, value, ends, str(row.num)]]


def _samples(estimate: Estimate) -> str:
    return f"{'> ' if math.isinf(estimate.value) else ''}{estimate.at_least:.0f}"


def _best_cells(row: BestRow, *, told: bool, untold: bool) -> list[str]:
    best = row.best
    if best.first is None:
        return ["-", "none", *["-", "-"] * told, *["-"] * untold]
    alike = ", ".join(name for name in best.members if name not in (best.first, *best.untold))
    slower = [name for name in best.behind if name not in best.members]
    found = [
        *([alike or "-", _times_as_long(row, slower)] if told else []),
        *[_times_as_long(row, best.untold)] * untold,
    ]
    return [f"{seconds(best.times[best.first].value)}{_marks(composed=row.composed)}", best.first, *found]


def _times_as_long(row: BestRow, names: Sequence[str]) -> str:
    found = [(name, row.best.behind[name]) for name in names]
    words = [name if ratio is None else f"{name} {ratio.bound}{' ' if ratio.bound else ''}{ratio.value:.3g}"
             for name, ratio in found]  # fmt: skip
    return ", ".join(words) or "-"


def _crossover_cells(row: CrossoverRow) -> list[list[str]]:
    crossovers = row.crossovers
    if not crossovers.found:
        return [[row.algorithm, "-", "none", "-", "-", str(crossovers.num), crossovers.why]]
    lines = []
    for one in crossovers.found:
        who = {True: row.algorithm, False: row.baseline, None: "-"}[one.arm_faster_below]
        inside = crossovers.kind in ("one", "several")
        place = f"{_bandwidth(one.bandwidth_bps) if inside else crossovers.kind}{_marks(composed=row.composed)}"
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
    time += _marks(composed=row.composed)
    return [[row.algorithm, time, f"{row.metric} {row.metric_value:.4g}", str(row.n)]]


def _footing_cells(row: FootingRow, *, timed: bool) -> list[list[str]]:
    found = row.footing
    samples, num = f"{found.samples:.0f}", str(found.at_end.n)
    levels = {
        "validation": (found.at_samples, found.at_time, found.at_end),
        "test": (found.test_at_samples, found.test_at_time, found.test),
    }
    lines = []
    for split, (at_samples, at_time, at_end) in levels.items():
        then = [seconds(found.clock_s), _level(at_time)] if timed else []
        about = [f"{row.algorithm}{_marks(composed=row.composed)}", found.metric, split, samples, _level(at_samples)]
        lines.append([*about, *then, _level(at_end), num])
    return lines


def _level(level: MetricMean | None) -> str:
    if level is None:
        return "-"
    value = f"{level.value:.4g}"
    return value if level.low is None or level.high is None else f"{value} ({level.low:.4g} to {level.high:.4g})"


def _time(estimate: Estimate, *, first_crossing: bool) -> str:
    if math.isinf(estimate.value):
        return f"> {seconds(estimate.at_least)}"
    return _marked(seconds(estimate.value), first_crossing=first_crossing)


def _marked(time: str, *, first_crossing: bool) -> str:
    return f"{time} {FIRST_CROSSING_MARK}" if first_crossing else time


def _bandwidth(bandwidth_bps: float | None) -> str:
    return "-" if bandwidth_bps is None else BANDWIDTH.show(bandwidth_bps, 3)


def _text(value: object) -> str:
    return "-" if value is None else str(value)
