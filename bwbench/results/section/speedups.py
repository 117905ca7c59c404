"""How many times as fast as the baseline, and at which bandwidth an arm crosses it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.method_names import BASELINES
from bwbench.results.analysis.cells import is_reference
from bwbench.results.analysis.comparison import ArmRow, CrossoverRow, compare_cells
from bwbench.results.analysis.crossover import ONE, SEVERAL, Crossover
from bwbench.results.analysis.grouping import BANDWIDTH_KEY
from bwbench.results.analysis.results import Results
from bwbench.results.section.content import Block, Bullets, Paragraph, grid_tables, place, ratio_words
from bwbench.results.text import Number, Phrase, bandwidth, joined, phrase, significant


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
    arms = sorted({arm for arm, _ in rows})
    bandwidths = sorted({bps for _, bps in rows}, key=lambda bps: math.inf if bps is None else bps)
    counts = {row.num_pairs for row in rows.values()}

    def cell(arm: str, bps: float | None) -> Sequence[Phrase]:
        row = rows.get((arm, bps))
        return [] if row is None else _ratio_lines(row, f"{key} {arm} {place(bps)}", with_num=len(counts) > 1)

    same = len(counts) == 1
    pairs = phrase("n = ", Number(f"pairs {key}", str(*counts)), " (equal seeds are paired)") if same else ()
    caption = phrase(f"Time to target of {baseline} over that of the arm: above 1 the arm is faster. ")
    caption = phrase(caption, "95 % interval below it", "; " if pairs else "", pairs, ".")
    if any(row.composed for row in rows.values()):
        caption = phrase(caption, " † composed.")
    yield from grid_tables(f"speedup {key}", caption, arms, bandwidths, cell)
    found = [text for row in compared.crossovers for text in _crossover_sentences(row, f"{key} {row.algorithm}")]
    if found:
        yield Paragraph(phrase(f"Where an arm and {baseline} are equally fast:"))
        yield Bullets(found)


def _ratio_lines(row: ArmRow, key: str, *, with_num: bool) -> Sequence[Phrase]:
    words, ratio = ratio_words(row.ratio, f"speedup {key}"), row.ratio
    if words is None or ratio is None:
        return []
    lines = [phrase(words.value, "†" if row.composed else "")]
    if ratio.low is not None and ratio.high is not None:
        ends = ", ".join(significant(end, apart_from=1.0) for end in (ratio.low, ratio.high))
        lines.append(phrase(Number(f"speedup interval {key}", f"[{ends}]")))
    elif ratio.num_censored:
        lines.append(phrase(Number(f"speedup kind {key}", ratio.kind)))
    if with_num:
        lines.append(phrase("n = ", Number(f"speedup n {key}", str(row.num_pairs))))
    return lines


def _crossover_sentences(row: CrossoverRow, key: str) -> Iterator[Phrase]:
    arm, baseline = row.algorithm, row.baseline
    mark = ", composed" if row.composed else ""
    count = phrase("n = ", Number(f"crossover n {key}", str(row.crossovers.num)), mark)
    if row.crossovers.kind not in (ONE, SEVERAL):
        yield phrase(f"{arm}: ", _outside(row, key), " (", count, ").")
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


def _outside(row: CrossoverRow, key: str) -> Phrase:
    """No crossover inside what was measured: which arm is faster, or that neither can be told to be."""
    found = row.crossovers.found
    if not found:
        return phrase(f"no crossover with {row.baseline}: {row.crossovers.why}")
    one = found[0]
    end = one.low_bps if one.low_bps is not None else one.high_bps
    certain = joined([phrase(Number(f"crossover end {key}", bandwidth(end)))]) if end is not None else ()
    above = row.crossovers.kind.startswith("above")
    faster = one.arm_faster_below if above else None if one.arm_faster_below is None else not one.arm_faster_below
    side = "faster" if faster else "slower"
    if row.crossovers.num < 2:
        return phrase(f"{side} than {row.baseline} at all measured bandwidths, in one pair without an interval")
    bound = phrase(", certainly up to " if above else ", certainly from ", certain, "" if above else " on")
    return phrase(f"{side} than {row.baseline} at all measured bandwidths", bound)


def _ends(one: Crossover, key: str) -> Phrase:
    low = Number(f"crossover low {key}", bandwidth(one.low_bps)) if one.low_bps is not None else None
    high = Number(f"crossover high {key}", bandwidth(one.high_bps)) if one.high_bps is not None else None
    if low and high:
        return phrase(low, " to ", high)
    if low:
        return phrase("above ", low)
    return phrase("below ", high) if high else phrase("open on both sides")
