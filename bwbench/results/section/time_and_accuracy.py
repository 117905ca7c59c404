"""Time to accuracy by arm and bandwidth, who may be the fastest; final accuracy; speed-ups and where they end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.method_names import BASELINES
from bwbench.results.analysis.answer import (
    answer_phrase,
    answers_of_group,
    baseline_of_group,
    link_phrase,
    shared_phrases,
)
from bwbench.results.analysis.arrival import FIRST_CROSSING
from bwbench.results.analysis.arrived_alone import arrived_alone_note
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK
from bwbench.results.analysis.cells import is_reference, value_at
from bwbench.results.analysis.comparison import ArmRow, CrossoverRow, compare_cells
from bwbench.results.analysis.crossover import ONE, SEVERAL, Crossover
from bwbench.results.analysis.difference import Difference, difference_of
from bwbench.results.analysis.grouping import BANDWIDTH_KEY
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.replicas_apart import replicas_apart_note
from bwbench.results.analysis.results import Results, arrivals_by_seed
from bwbench.results.analysis.statistics import ONE_REPEAT, Arrival, Estimate, estimate, log_interval, number
from bwbench.results.figures.captions import digits, target_words
from bwbench.results.section.content import (
    Block,
    Bullets,
    Paragraph,
    Table,
    column_title,
    grid_tables,
    place,
    ratio_words,
)
from bwbench.results.text import Number, Phrase, bandwidth, fixed, joined, phrase, significant

At = tuple[str, float | None]  # arm, bandwidth in bit/s


def time_blocks(group: Results, key: str) -> Iterator[Block]:
    """The table, and a sentence for each bandwidth. Nothing where no cell has a target.

    Here and below arms are called by their labels; keys of numbers have their recorded names.

    Args:
        key: what tells the numbers of this group from those of others, for the names of macros.
    """
    found = arrivals_of(group)
    if not found:
        return
    arms = _called({arm for arm, _ in found}, group)
    bandwidths = sorted({bps for _, bps in found}, key=lambda bps: math.inf if bps is None else bps)
    estimates = {at: estimate(list(arrivals.values())) for at, arrivals in found.items()}
    counts = {one.num for one in estimates.values()}
    of_arm = {arm: {one.num for (name, _), one in estimates.items() if name == arm} for arm in arms}
    cells = group.cells.to_dict("records")
    composed = {(str(row["arm"]), number(row["bandwidth_bps"])) for row in cells if row["composed"]}
    first = {(str(row["arm"]), number(row["bandwidth_bps"])) for row in cells if row["arrival_kind"] == FIRST_CROSSING}
    marks = {at: ("†" if at in composed else "") + (FIRST_CROSSING_MARK if at in first else "") for at in found}

    def cell(arm: str, bandwidth: float | None) -> Sequence[Phrase]:
        one = estimates.get((arm, bandwidth))
        at = f"{key} {arm} {place(bandwidth)}"
        return [] if one is None else _time_lines(one, at, marks[arm, bandwidth], with_num=len(of_arm[arm]) > 1)

    below = {
        arm: [phrase("n = ", Number(f"time n {key} {arm}", str(*nums)))]
        for arm, nums in of_arm.items()
        if len(counts) > 1 and len(nums) == 1
    }

    repeats = phrase("n = ", Number(f"repeats {key}", str(*counts)), ". ") if len(counts) == 1 else ()
    caption = phrase("Time to ", Number(f"target {key}", target_words(group)), " in seconds: geometric mean, ")
    legend = phrase("95 % interval below it. ", repeats, _legend(found, "".join(marks.values())))
    yield from grid_tables(f"time {key}", phrase(caption, legend), arms, bandwidths, cell, below)
    for note in (replicas_apart_note(cells, group.labels), arrived_alone_note(cells, group.labels)):
        if note is not None:
            yield Paragraph(phrase(note))
    if sentences := list(_answers(group, key)):
        yield Bullets(sentences)


def _called(arms: Iterable[str], group: Results) -> dict[str, str]:
    """Their labels, by recorded name and in its order."""
    return {arm: group.labels[arm] for arm in sorted(arms)}


def _answers(group: Results, key: str) -> Iterator[Phrase]:
    """Which arm is the first, link by link."""
    baseline = baseline_of_group(group.group)
    found = list(answers_of_group(group.experiment, group.group, group.own, baseline, group.labels))
    for answer in found:
        where = "Without a shaped link" if answer.bandwidth_bps is None else phrase("At ", link_phrase(answer))
        yield phrase(where, ": ", answer_phrase(answer, key, in_list=True))
    yield from shared_phrases(found)


def arrivals_of(group: Results) -> dict[At, dict[int, Arrival]]:
    """Arrivals by seed, of every arm at every bandwidth; None for one without a link."""
    if group.cells.empty:
        return {}
    found = {}
    for (arm, bps), part in group.cells.groupby(["arm", "bandwidth_bps"], dropna=False, sort=True):
        arrivals = arrivals_by_seed(part)
        if arrivals:
            found[str(arm), number(bps)] = arrivals
    return found


def _time_lines(one: Estimate, at: str, mark: str, *, with_num: bool) -> Sequence[Phrase]:
    bound = "> " if math.isinf(one.value) else ""
    lines = [phrase(Number(f"time {at}", f"{bound}{digits(one.at_least)}"), mark)]
    if one.low is not None and one.high is not None:
        lines.append(phrase(Number(f"time interval {at}", f"[{digits(one.low)}, {digits(one.high)}]")))
    elif one.num_censored:
        lines.append(phrase(Number(f"time censored {at}", f"{one.num_censored} of {one.num} not reached")))
    if with_num:
        lines.append(phrase("n = ", Number(f"time n {at}", str(one.num))))
    return lines


def _legend(found: dict[At, dict[int, Arrival]], marks: str) -> str:
    text = (
        f"n = 1: {ONE_REPEAT}, and has no interval. " if any(len(arrivals) == 1 for arrivals in found.values()) else ""
    )
    if any(arrival.time_s is None for arrivals in found.values() for arrival in arrivals.values()):
        text += "> : fewer than half arrive within the limit; with other such repeats a censored fit. "
    return (text + _legend_of(marks)).strip()


def _legend_of(marks: str) -> str:
    words = ["† composed."] if "†" in marks else []
    if FIRST_CROSSING_MARK in marks:
        words.append(f"{FIRST_CROSSING_MARK} first crossing: the first evaluation that met the target.")
    return " ".join(words)


def _marks_of(row: ArmRow) -> str:
    crossed = row.first_crossing or row.baseline_first_crossing
    return ("†" if row.composed else "") + (FIRST_CROSSING_MARK if crossed else "")


_POINTS = 100.0


def accuracy_blocks(group: Results, key: str, baseline: str | None) -> Iterator[Block]:
    """Mean final metric of each arm over its seeds, and the difference from the baseline.

    What a synchronous arm learns does not depend on the link: a seed counts once, whatever links it ran on.
    """
    finals = _finals(group)
    if not finals:
        return
    metrics = group.cells["target_metric"].dropna()
    metric = str(metrics.iloc[0]) if len(metrics) else "accuracy"
    as_points = metric == "accuracy"

    def shown(value: float) -> str:
        return fixed(_POINTS * value, 2) if as_points else significant(value)

    def signed(value: float) -> str:
        text = fixed(_POINTS * value, 2, apart_from=0.0) if as_points else significant(value, apart_from=0.0)
        return f"+{text}" if value > 0 else text

    reference = finals.get(baseline or "", {})
    kin = {str(arm): set(part["kin"]) for arm, part in group.cells.groupby("arm")}
    rows = []
    for arm, values in sorted(finals.items()):
        at = f"final {key} {arm}"
        difference = difference_of(values, reference, kin=len(kin[arm] | kin.get(baseline or "", set())) == 1)
        differences = _difference_lines(difference if arm != baseline else None, f"{at} difference", signed)
        num = [phrase(Number(f"{at} n", str(len(values))))]
        rows.append([[phrase(group.labels[arm])], _lines(list(values.values()), at, shown), differences, num])
    unit = " in percent; differences in percentage points" if as_points else ""
    caption = phrase(f"Final {metric} on the validation split{unit}. Mean over seeds, 95 % interval each below it.")
    if all(value_at(folder.cell.config, "stop") == "target" for folder in group.done):
        caption = phrase(caption, " Training stopped at the target: these say little beside the time to it.")
    less = f"less {group.labels[baseline]}" if baseline and reference else "difference"
    header = [phrase("arm"), phrase(metric), phrase(less), phrase("n")]
    yield Table(f"accuracy {key}", caption, header, rows)


def _finals(group: Results) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, list[float]]] = {}
    for row in group.cells.to_dict("records"):
        value = number(row.get("final_metric"))
        if value is not None:
            found.setdefault(str(row["arm"]), {}).setdefault(int(row["seed"]), []).append(value)
    return {arm: {seed: statistics.fmean(v) for seed, v in by_seed.items()} for arm, by_seed in found.items()}


def _lines(values: Sequence[float], key: str, show: Callable[[float], str]) -> list[Phrase]:
    """The mean, and its interval on the values themselves: an accuracy is no time, and needs no logarithm."""
    if not values:
        return [phrase("–")]
    lines, ends = [phrase(Number(key, show(statistics.fmean(values))))], log_interval(values)
    if ends is not None:
        lines.append(phrase(Number(f"{key} interval", f"[{show(ends[0])}, {show(ends[1])}]")))
    return lines


def _difference_lines(found: Difference | None, key: str, show: Callable[[float], str]) -> list[Phrase]:
    if found is None:
        return [phrase("–")]
    lines = [phrase(Number(key, show(found.value)))]
    if found.low is not None and found.high is not None:
        lines.append(phrase(Number(f"{key} interval", f"[{show(found.low)}, {show(found.high)}]")))
    return lines


def baseline_of(groups: Sequence[Results]) -> str | None:
    """The first of ``BASELINES`` that is there, else one node alone, else the arm with most cells that are done."""
    arms = [str(folder.cell.arm) for group in groups for folder in group.done]
    if len(set(arms)) < 2:
        return None
    alone = [folder.cell.arm for group in groups for folder in group.done if is_reference(folder.cell)]
    usual = [*(arm for arm in BASELINES if arm in arms), *alone]
    return next(iter(usual), min(set(arms), key=lambda arm: (-arms.count(arm), arm)))


def speedup_blocks(group: Results, key: str, baseline: str) -> Iterator[Block]:
    """Table of ratios, sentences on crossovers. Nothing where the baseline has no time here."""
    here = {str(folder.cell.arm) for folder in group.done}
    has_times = len(group.cells) and group.cells[["time_to_target_s", "censored_at_s"]].notna().any(axis=None)
    if baseline not in here or len(here) < 2 or not has_times:
        return
    compared = compare_cells(group.folders, baseline)
    texts = [(row, row.condition.get(BANDWIDTH_KEY)) for row in compared.rows if row.ratio is not None]
    rows = {(row.algorithm, None if text is None else BANDWIDTH.parse(text)): row for row, text in texts}
    if not rows:
        return
    arms, called = _called({arm for arm, _ in rows}, group), group.labels[baseline]
    bandwidths = sorted({bps for _, bps in rows}, key=lambda bps: math.inf if bps is None else bps)
    counts = {row.num for row in rows.values()}

    def cell(arm: str, bps: float | None) -> Sequence[Phrase]:
        row = rows.get((arm, bps))
        return [] if row is None else _ratio_lines(row, f"{key} {arm} {place(bps)}", with_num=len(counts) > 1)

    same = len(counts) == 1
    pairs = phrase("n = ", Number(f"pairs {key}", str(*counts)), " an arm") if same else ()
    caption = phrase(f"Time to target of {called} over that of the arm: above 1 the arm is faster. ")
    caption = phrase(caption, "95 % interval each below it", "; " if pairs else "", pairs, ".")
    if legend := _legend_of("".join(map(_marks_of, rows.values()))):
        caption = phrase(caption, f" {legend}")
    yield from grid_tables(f"speedup {key}", caption, arms, bandwidths, cell)
    sentences = [text for bps in bandwidths if (text := _told_together(rows, called, arms, bps)) is not None]
    if sentences:
        yield Bullets(sentences)
    yield from _taken_apart(rows, called, key, arms, bandwidths)
    found = [text for row in compared.crossovers
             for text in _crossover_sentences(row, f"{key} {row.algorithm}", group.labels)]  # fmt: skip
    if found:
        yield Paragraph(phrase(f"Where an arm and {called} are equally fast:"))
        yield Bullets(found)


def _told_together(
    rows: Mapping[At, ArmRow], baseline: str, arms: Mapping[str, str], bandwidth: float | None
) -> Phrase | None:
    """Which arms of a column are certainly faster or slower, all at once; None where there is only one."""
    here = {arm: row for (arm, bps), row in rows.items() if bps == bandwidth and row.ratio is not None}
    if len(here) < 2:
        return None
    ends = {arm: row.ratio.ends(row.together) for arm, row in sorted(here.items()) if row.ratio is not None}
    faster = ", ".join(arms[arm] for arm, both in ends.items() if both is not None and both[0] > 1)
    slower = ", ".join(arms[arm] for arm, both in ends.items() if both is not None and both[1] < 1)
    open_ = ", ".join(arms[arm] for arm, both in ends.items() if both is None or both[0] <= 1 <= both[1])
    where = phrase("At ", column_title(bandwidth), f", read as one statement (together 95 %): faster than {baseline}: ")
    undecided = f"; undecided: {open_}" if open_ else ""
    return phrase(where, f"{faster or 'none'}; slower: {slower or 'none'}{undecided}.")


def _taken_apart(
    rows: Mapping[At, ArmRow], baseline: str, key: str, arms: Mapping[str, str], bandwidths: Sequence[float | None]
) -> Iterator[Table]:
    """What each ratio is made of: a line for the step, one for the samples."""

    def cell(arm: str, bps: float | None) -> Sequence[Phrase]:
        row = rows.get((arm, bps))
        if row is None or row.taken_apart is None:
            return []
        parts, at = row.taken_apart, f"{key} {arm} {place(bps)}"
        return [*_factor_lines(parts.step, f"step {at}"), *_factor_lines(parts.samples, f"samples {at}", "× ")]

    caption = phrase(f"The same ratios taken apart: time of a step of {baseline} over that of the arm (of a sample, ")
    caption = phrase(
        caption, "where batches differ), times the ratio of the samples to the target; 95 % interval each. "
    )
    yield from grid_tables(f"apart {key}", phrase(caption, "The product is the ratio."), arms, bandwidths, cell)


def _factor_lines(ratio: Ratio, key: str, sign: str = "") -> Sequence[Phrase]:
    bound = f"{ratio.bound} " if ratio.bound else ""
    lines = [phrase(sign, Number(f"apart {key}", f"{bound}{significant(ratio.value, apart_from=1.0)}"))]
    if ratio.low is not None and ratio.high is not None:
        ends = ", ".join(significant(end, apart_from=1.0) for end in (ratio.low, ratio.high))
        lines.append(phrase(Number(f"apart interval {key}", f"[{ends}]")))
    return lines


def _ratio_lines(row: ArmRow, key: str, *, with_num: bool) -> Sequence[Phrase]:
    words, ratio = ratio_words(row.ratio, f"speedup {key}"), row.ratio
    if words is None or ratio is None:
        return []
    lines = [phrase(words.value, _marks_of(row))]
    if ratio.low is not None and ratio.high is not None:
        ends = ", ".join(significant(end, apart_from=1.0) for end in (ratio.low, ratio.high))
        lines.append(phrase(Number(f"speedup interval {key}", f"[{ends}]")))
    elif ratio.num_censored:
        lines.append(phrase(Number(f"speedup kind {key}", ratio.kind)))
    if with_num:
        lines.append(phrase("n = ", Number(f"speedup n {key}", str(row.num))))
    return lines


def _crossover_sentences(row: CrossoverRow, key: str, labels: Mapping[str, str]) -> Iterator[Phrase]:
    arm, baseline = labels[row.algorithm], labels[row.baseline]
    mark = ", composed" if row.composed else ""
    count = phrase("n = ", Number(f"crossover n {key}", str(row.crossovers.num)), mark)
    if row.crossovers.kind not in (ONE, SEVERAL):
        yield phrase(f"{arm}: ", _outside(row, key, baseline), " (", count, ").")
        return
    for one in row.crossovers.found:
        at = phrase(Number(f"crossover {key}", bandwidth(one.bandwidth_bps))) if one.bandwidth_bps else None
        basis = phrase("95 % interval ", _ends(one, key)) if row.crossovers.num > 1 else phrase("no interval")
        where = phrase(at, " (", basis) if at else phrase("a bandwidth (", basis)
        scale = row.scale.at(one.bandwidth_bps)
        if scale is not None:
            where = phrase(where, "; S/(B·T) = ", Number(f"crossover scale {key}", significant(scale, 2)))
        if one.arm_faster_below is None:
            text = phrase(f"{arm} crosses {baseline} at ", where)
        else:
            side = "below" if one.arm_faster_below else "above"
            text = phrase(f"{arm} is faster than {baseline} {side} ", where)
        yield phrase(text, "; ", count, ").")


def _outside(row: CrossoverRow, key: str, baseline: str) -> Phrase:
    """No crossover inside what was measured: which arm is faster, or that neither can be told to be."""
    found = row.crossovers.found
    if not found:
        return phrase(f"no crossover with {baseline}: {row.crossovers.why}")
    one = found[0]
    end = one.low_bps if one.low_bps is not None else one.high_bps
    certain = joined([phrase(Number(f"crossover end {key}", bandwidth(end)))]) if end is not None else ()
    above = row.crossovers.kind.startswith("above")
    faster = one.arm_faster_below if above else None if one.arm_faster_below is None else not one.arm_faster_below
    side = "faster" if faster else "slower"
    if row.crossovers.num < 2:
        return phrase(f"{side} than {baseline} at all measured bandwidths, in one pair without an interval")
    bound = phrase(", certainly up to " if above else ", certainly from ", certain, "" if above else " on")
    return phrase(f"{side} than {baseline} at all measured bandwidths", bound)


def _ends(one: Crossover, key: str) -> Phrase:
    low = Number(f"crossover low {key}", bandwidth(one.low_bps)) if one.low_bps is not None else None
    high = Number(f"crossover high {key}", bandwidth(one.high_bps)) if one.high_bps is not None else None
    if low and high:
        return phrase(low, " to ", high)
    if low:
        return phrase("above ", low)
    return phrase("below ", high) if high else phrase("open on both sides")
