"""Tables for a reader with a link, a model and nodes of their own: which method, and how many samples a second."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.units import DURATION, MEMORY
from bwbench.methods.roles import HEADROOM, METHOD, REFERENCE
from bwbench.records import CellFolder
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK, target_at
from bwbench.results.analysis.cells import setting_of, standing_of
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.crossover import scale_of
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK
from bwbench.results.analysis.throughput import RateRow
from bwbench.results.section.content import Lines, Table
from bwbench.results.text import Number, Phrase, phrase, significant
from paper.program.claim import Claim, Value
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError, Records, matches
from paper.program.evaluate import evaluate
from paper.program.evidence import settings_text
from paper.program.ratios import NONE, ratio_lines
from paper.program.spoken import name_of, named

_DECIDED = ("nodes", "model", "link, target", "S/(B·T)", "first", "may be as fast", "over one node", "n")
_RATED = ("step", "times as many", "n")
_DIGITS = 2
_WIDE = 19  # letters


@dataclass(frozen=True)
class Decision:
    """A claim of kind ``fastest`` with its value, and the mark of the row of its evidence.

    Attributes:
        host_bound: the machine, and not the link alone, decides what a step of one of the cells takes.
    """

    claim: Claim
    value: Value
    mark: str
    host_bound: bool = False


def decision_table(
    label: str, caption: str, decisions: Sequence[Decision], records: Records, names: Mapping[str, str]
) -> Table:
    """A row for each setting: the method with the shortest mean time there, who may be as fast, and what it gains.

    What it gains is over the fastest arm of one node that was run there: the caption ends with which that is in most
    rows, and in those with a mark.

    Args:
        decisions: in the order of the rows.
        names: what to call an arm, by its label.
    """
    gains = [_gain(one, records) for one in decisions]
    rivals = Counter("" if gain is None else name_of(gain[0].over, gain[0].experiment, names) for gain in gains)
    rivals.pop("", None)
    marks = {name: "*" * place for place, (name, _) in enumerate(rivals.most_common())}
    rows = []
    for one, gain in zip(decisions, gains, strict=True):
        mark = "" if gain is None else marks[name_of(gain[0].over, gain[0].experiment, names)]
        over = NONE if gain is None else ratio_lines(*gain, after=mark)
        rows.append(list(_decision_cells(one, over, records, names)))
    said = ", ".join(f"with {mark} {name}" if mark else f"The rival is {name}" for name, mark in marks.items())
    return Table(
        label, phrase(f"{caption} {said}." if said else caption), [phrase(name) for name in _DECIDED], rows, "lllrllrr"
    )


def _decision_cells(one: Decision, over: Lines, records: Records, names: Mapping[str, str]) -> Iterator[Lines]:
    """Those of one row, in the order of the header; the first column holds the number of nodes."""
    claim, value = one.claim, one.value
    here = [folder for folder in records.done(claim.experiment) if matches(folder, claim.where)]
    of_nodes = [folder for folder in here if standing_of(folder.cell).role == METHOD] or here  # one node may be first
    setting, scale = setting_of(of_nodes[0].cell.config), scale_of(of_nodes[:1])
    first, *others = value.words.split("|")
    step = "" if setting.step_time_s is None else f", {DURATION.show(setting.step_time_s, _DIGITS)}"
    size = "" if scale.gradient_bytes is None else MEMORY.show(scale.gradient_bytes, _DIGITS)
    at = None if setting.medium == "shared" else scale.at(setting.bandwidth_bps)  # nobody has the whole air
    yield [phrase(str(setting.nodes))]
    yield [phrase(setting.model), phrase(f"{size}{step}")]
    target = Number(f"decision target {claim.name}", _target(claim, of_nodes[0]))
    yield [phrase(settings_text(claim, "link.").replace("latency ", "")), phrase("to ", target)]
    yield NONE if at is None else [phrase(Number(f"decision scale {claim.name}", significant(at, _DIGITS)))]
    name, *options = _in_lines(name_of(first, claim.experiment, names))
    asked = ((FIRST_CROSSING_MARK, value.first_crossing), (HOST_BOUND_MARK, one.host_bound))
    marks = "".join(mark for mark, holds in asked if holds)
    yield [phrase(*name, marks, one.mark), *options]
    yield _wrapped(named([name_of(arm, claim.experiment, names) for arm in others])) if value.side == 0 else NONE
    yield over
    raced = {folder.cell.arm for folder in here if standing_of(folder.cell).role != HEADROOM}
    yield [
        phrase(Number(f"{claim.name} n", str(value.num))),
        phrase(Number(f"{claim.name} arms", str(len(raced))), " arms"),
    ]


def _target(claim: Claim, folder: CellFolder) -> str:
    """``87 %`` of an accuracy, ``loss 2.2``."""
    metric, value = target_at(folder) or ("", 0.0)
    value = value if claim.target is None else claim.target
    return f"{100 * value:.4g} %" if metric == "accuracy" else f"{metric} {value:g}"


def _alone(records: Records, experiment: str) -> list[str]:
    """The arms of one node alone."""
    cells = [folder.cell for folder in records.done(experiment)]
    return sorted({str(cell.arm) for cell in cells if standing_of(cell).role == REFERENCE})


def _gain(one: Decision, records: Records) -> tuple[Claim, Value] | None:
    """How many times as fast the first arm is as the fastest of one node; None where it is one of those, or where none
    of them was run there."""
    first, alone = one.value.words.split("|")[0], _alone(records, one.claim.experiment)
    ratios = (_ratio(one.claim, first, rival, records) for rival in (() if first in alone else alone))
    return min(filter(None, ratios), key=lambda found: found[1].value or 0.0, default=None)


def _ratio(claim: Claim, arm: str, over: str, records: Records) -> tuple[Claim, Value] | None:
    """Of the times of two arms where the claim is; None where one of them was not run, or no ratio is known."""
    # A claim's name has letters, digits and hyphens.
    name = f"{claim.name}-over-{over.partition('(')[0]}"
    fields = {"name": name, "kind": "ratio", "arm": arm, "over": over, "where": claim.where, "target": claim.target}
    asked = Claim(experiment=claim.experiment, **fields)
    try:
        value = evaluate(asked, records)
    except (MissingRecordsError, AmbiguousClaimError):
        return None
    return None if value.value is None else (asked, value)


def rates_table(label: str, caption: str, folders: Sequence[CellFolder], baseline: str) -> Iterator[Table]:
    """Samples a second of each arm beside a baseline, as ``bwbench compare`` has them; none without such cells."""
    compared = compare_cells(folders, baseline)
    if not compared.rates:
        return
    keys = _varying([row.condition for row in compared.rates])
    head = ["arm", *(key.rpartition(".")[2] for key in keys), *_RATED]
    rows = [[_in_lines(compared.labels.get(row.algorithm, row.algorithm)),
             *([phrase(str(row.condition.get(key) or "–"))] for key in keys), *_rate_cells(label, row)]
            for row in compared.rates]  # fmt: skip
    yield Table(label, phrase(caption), [phrase(name) for name in head], rows)


def _wrapped(names: str) -> Lines:
    """In as many lines as it takes for the table to be no wider than a page."""
    return [phrase(line) for line in textwrap.wrap(names, _WIDE, break_long_words=False, break_on_hyphens=False)]


def _in_lines(arm: str) -> Lines:
    """Its options, or what a name says beside (``with Muon``), below it: in one line the table would be too wide."""
    name, _, options = arm.partition("(")
    if options:
        return [phrase(name), phrase(f"({options}")]
    return [phrase(part) for part in re.split(r" (?=(?:of|on|with|and an) )", arm)]


def _rate_cells(label: str, row: RateRow) -> Iterator[Lines]:
    key = " ".join([label, row.algorithm, *(str(value) for value in row.condition.values() if value)])
    yield [phrase(Number(f"step {key}", DURATION.show(row.step.value, 3)))]
    ratio = row.ratio
    if ratio is None:
        yield NONE
    else:
        mark = HOST_BOUND_MARK if row.host_bound else ""
        times = phrase(Number(f"times {key}", significant(ratio.value, apart_from=1.0)), mark)
        known = ratio.low is not None and ratio.high is not None
        yield [times, _ends(key, ratio.low or 0.0, ratio.high or 0.0)] if known else [times]
    yield [phrase(Number(f"n {key}", str(row.num)))]


def _ends(key: str, low: float, high: float) -> Phrase:
    ends = (Number(f"{name} {key}", significant(end, apart_from=1.0)) for name, end in (("low", low), ("high", high)))
    first, last = ends
    return phrase("[", first, " to ", last, "]")


def _varying(conditions: Sequence[Mapping[str, object]]) -> list[str]:
    """Keys whose values differ among these conditions, one node's missing link set aside."""
    keys = dict.fromkeys(key for condition in conditions for key in condition)
    return [key for key in keys if len({str(c[key]) for c in conditions if c.get(key) not in (None, "")}) > 1]
