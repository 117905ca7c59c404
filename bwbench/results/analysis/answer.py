"""The answer to the question of an experiment, in one form wherever it is given: the README, tables, page, a paper.

*Four nodes, 10 Mbit/s, cnn on fashion-mnist: use diloco: 87 % in 24 s (20 to 28), 10 times (8.5 to 12) sooner than
ddp, perhaps 1.4 times (0.83 to 2.2) sooner than one node. Beside ddp its steps are 21 times as cheap, and it takes 2.1
times the samples. Not distinguishable from diloco: one node, powersgd, threshold. Below 2 Mbit/s (1.4 to 2.9) use one
node. [measured, n = 12]*

Numbers are those of ``comparison``: ratios, the best set, a ratio taken apart, crossovers. "Perhaps" stands before a
ratio whose interval holds 1, or whose arm is not distinguishable where all arms are tested together. A factor that may
be 1 is no number. What is not known is left out or said to be unknown. Brackets behind a number are its 95 % interval.
The page says the same sentences in the browser (js/answer.js), for any link and target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import TypeAlias

from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config.method_names import ALONE, BASELINES
from bwbench.methods.roles import METHOD, REFERENCE, may_win
from bwbench.records import CellFolder
from bwbench.results.analysis.arm_cells import ArmCells, Condition, arms_of
from bwbench.results.analysis.best_set import BestSet, best_set
from bwbench.results.analysis.cells import DONE, Row, is_virtual, state_of
from bwbench.results.analysis.crossover import ABOVE, BELOW, ONE, Crossover, Crossovers, Measured, find_crossovers
from bwbench.results.analysis.grouping import BANDWIDTH_KEY, Group, Key, group_cells, setting_words
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import ONE_REPEAT, Estimate, number
from bwbench.results.analysis.taken_apart import TakenApart, take_apart
from bwbench.results.text import Number, Phrase, joined, phrase, plain, significant, time_unit

ONE_NODE = "one node"
_DIGITS = 2  # of a number that is to be remembered; tables have three
_SAID_OTHERWISE = ("model.name", "dataset.name", "nodes", BANDWIDTH_KEY)
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True)
class Against:
    """Another arm beside the first one: its time over the first arm's."""

    arm: str
    ratio: Ratio


@dataclass(frozen=True)
class OneNode:
    """Where a method and one node alone are equally fast, over all bandwidths of a group.

    Attributes:
        method: the first arm, or where that is one node itself, the method next to it; as sentences have it.
        alone: the one node, as sentences have it; the fastest where there are several.
        crossovers: time of one node over that of the method; bandwidths that are host-bound are left out.
        host_bound: that leaves fewer than two bandwidths.
    """

    method: str
    alone: str
    crossovers: Crossovers
    host_bound: bool


@dataclass(frozen=True)
class Answer:
    """Which arm is the first under one condition, and how sure that is.

    Attributes:
        bandwidth_bps: None where the link is unshaped.
        nodes, work: number of nodes, and ``cnn on fashion-mnist``; ``settings``: what else tells this group.
        target: metric and value.
        best: of all arms that take part in the race.
        names: of these arms, as sentences have them: one node alone is called so.
        against: the baseline, and one node alone; where that is the first, the method next to it.
        parts: the ratio to the baseline taken apart; None where that is not known, or says nothing of steps.
        num: the smallest number of repeats of the arms in the sentence.
        composed, first_crossing, host_bound: one of these arms is.
    """

    experiment: str
    condition: Condition
    bandwidth_bps: float | None
    nodes: int
    work: str
    settings: tuple[str, ...]
    target: tuple[str, float]
    best: BestSet
    names: Mapping[str, str]
    against: tuple[Against, ...]
    parts: TakenApart | None
    one_node: OneNode | None
    num: int
    composed: bool
    first_crossing: bool
    host_bound: bool


def answers(
    folders: Iterable[CellFolder], baseline: str | None = None, labels: Mapping[str, str] = _NO_LABELS
) -> list[Answer]:
    """One for each bandwidth of each group of comparable cells, experiment by experiment.

    Args:
        folders: cells, done or not. Those of virtual nodes say nothing of times and are left out.
        baseline: recorded name of the arm that others are measured by; of each group its own where none is given.
        labels: what sentences call an arm, where that is not its recorded name.
    """
    everything = sorted(folders, key=lambda folder: folder.cell.experiment)
    own = OwnSteps.of(everything)
    found: list[Answer] = []
    for experiment, cells in groupby(everything, lambda folder: folder.cell.experiment):
        for group in group_cells(list(cells)):
            found += answers_of_group(experiment, group, own, baseline or baseline_of_group(group), labels)
    return found


def baseline_of_group(group: Group) -> str | None:
    """The arm that others are measured by where nobody asks for another one."""
    return usual_baseline(str(folder.cell.arm) for folder in group.folders if state_of(folder) == DONE)


def usual_baseline(arms: Iterable[str]) -> str | None:
    """What everybody has; None where none of it was run."""
    there = set(arms)
    return next((arm for arm in BASELINES if arm in there), None)


def answers_of_group(
    experiment: str, group: Group, own: OwnSteps, baseline: str | None, labels: Mapping[str, str] = _NO_LABELS
) -> Iterator[Answer]:
    """Of each bandwidth at which two arms or more have times."""
    racing = {bps: racing_at(group, bps, own) for bps in group.bandwidths}
    for bandwidth_bps, arms in racing.items():
        if len(arms) > 1:
            yield answer_at(bandwidth_bps, racing, baseline, experiment, group.key, labels)


def racing_at(group: Group, bandwidth_bps: float | None, own: OwnSteps) -> dict[str, ArmCells]:
    """The arms that may win at a bandwidth, by name."""
    done = [folder for folder in group.at(bandwidth_bps) if state_of(folder) == DONE and not is_virtual(folder)]
    return {arm.name: arm for arm in arms_of(done, own) if may_win(arm.role)}


Racing: TypeAlias = Mapping[float | None, Mapping[str, ArmCells]]  # by bandwidth in bit/s, and by name


def answer_at(
    bandwidth_bps: float | None,
    racing: Racing,
    baseline: str | None,
    experiment: str = "",
    key: Key = (),
    labels: Mapping[str, str] = _NO_LABELS,
) -> Answer:
    """The answer at one of the bandwidths of a group, whose ``key`` tells it from the other groups."""
    arms = racing[bandwidth_bps]
    best = best_set({name: arm.arrivals for name, arm in arms.items()})
    alone = [name for name in best.times if arms[name].role == REFERENCE]
    methods = [name for name in best.times if arms[name].role == METHOD]
    of_nodes = arms[methods[0]] if methods else next(iter(arms.values()))
    row = of_nodes.rows[0]
    text = None if bandwidth_bps is None else BANDWIDTH.format(bandwidth_bps)
    against, parts, one_node = [], None, None
    if best.first is not None:
        beside = methods[:1] if best.first in alone else alone[:1]
        # Of one repeat nothing is told, and the sentence says so itself.
        unsaid = {best.first, *(best.untold if best.times[best.first].num > 1 else ())}
        wanted = [name for name in dict.fromkeys([baseline, *beside]) if name in arms and name not in unsaid]
        ratios = {name: ratio_of(arms[name].arrivals, arms[best.first].arrivals) for name in wanted if name is not None}
        # At least 0.9 times as long is no longer: such a bound says nothing.
        told = {name: ratio for name, ratio in ratios.items() if ratio is not None and not _says_nothing(ratio)}
        against = [Against(name, ratio) for name, ratio in told.items()]
        if against and against[0].arm == baseline and not {best.first, baseline} & set(alone):
            parts = _parts(arms[baseline], arms[best.first])
        method = methods[0] if best.first in alone and methods else best.first
        if alone and method not in alone:
            one_node = one_node_beside(method, alone, racing, labels)
    quoted = [arms[name] for name in dict.fromkeys([best.first, *(one.arm for one in against)]) if name is not None]
    quoted = quoted or list(arms.values())
    return Answer(
        experiment,
        {BANDWIDTH_KEY: text, **dict(key)},
        bandwidth_bps,
        nodes=int(str(row["nodes"])),
        work=f"{row['model']} on {row['dataset']}",
        settings=tuple(setting_words(name, value) for name, value in key if name not in _SAID_OTHERWISE),
        target=_target_of(of_nodes.rows),
        best=best,
        names={name: _called(name, alone, labels) for name in arms},
        against=tuple(against),
        parts=parts,
        one_node=one_node,
        num=min(len(arm.arrivals) for arm in quoted),
        composed=any(arm.composed for arm in quoted),
        first_crossing=any(arm.first_crossing for arm in quoted),
        host_bound=any(arm.host_bound for arm in quoted),
    )


def _target_of(rows: Sequence[Row]) -> tuple[str, float]:
    """Of the first of these cells that has one: one of them has, since they arrived at it or not."""
    found = ((str(row["target_metric"]), number(row["target_value"])) for row in rows)
    return next(((metric, value) for metric, value in found if value is not None), ("target", math.nan))


def _parts(baseline: ArmCells, arm: ArmCells) -> TakenApart | None:
    """None where a side is a bound, or where the batches differ: a sample's time is then no step's."""
    parts = take_apart(baseline.arrivals, arm.arrivals)
    batches = {row["global_batch"] for row in (*baseline.rows, *arm.rows)}
    return None if parts is None or parts.step.bound or parts.samples.bound or len(batches) > 1 else parts


def one_node_beside(
    method: str, alone: Sequence[str], racing: Racing, labels: Mapping[str, str] = _NO_LABELS
) -> OneNode | None:
    """Where the method and one node alone are equally fast; None where they stand together at fewer than two links.

    Args:
        alone: the arms of one node, the fastest first; that one is meant.
    """
    shared = [(bps, arms[alone[0]], arms[method]) for bps, arms in racing.items()
              if bps is not None and alone[0] in arms and method in arms]  # fmt: skip
    if len(shared) < 2:
        return None
    sound = [place for place in shared if not (place[1].host_bound or place[2].host_bound)]
    measured = [Measured(bps, one.arrivals, arm.arrivals) for bps, one, arm in sound]
    called = _called(alone[0], alone, labels)
    return OneNode(labels.get(method, method), called, find_crossovers(measured), len(sound) < 2)


def one_node_words(group: Group, own: OwnSteps, labels: Mapping[str, str] = _NO_LABELS) -> dict[str, str]:
    """Of each method of a group, by its recorded name, a sentence on where one node is enough; without those of which
    nothing is known."""
    racing = {bps: racing_at(group, bps, own) for bps in group.bandwidths}
    every = {name: arm for arms in racing.values() for name, arm in arms.items()}
    lone = {name: arm.arrivals for name, arm in every.items() if arm.role == REFERENCE}
    alone = list(best_set(lone).times) if lone else []
    found = {name: one_node_beside(name, alone, racing, labels)
             for name, arm in sorted(every.items()) if alone and arm.role == METHOD}  # fmt: skip
    return {name: words for name, one in found.items() if one is not None and (words := plain(one_node_phrase(one)))}


def _called(name: str, alone: Sequence[str], labels: Mapping[str, str]) -> str:
    label = labels.get(name, name)
    if name not in alone:
        return label
    if len(alone) == 1:
        return ONE_NODE
    base, _, options = label.partition("(")
    if not options:
        return f"{ONE_NODE} ({base})"
    return f"{ONE_NODE} ({options}" if base == ALONE else f"{ONE_NODE} ({base}, {options}"


def setting_phrase(answer: Answer) -> Phrase:
    """What all links of a group have in common: ``four nodes, cnn on fashion-mnist``."""
    return phrase(", ".join([counted(answer.nodes, "node"), answer.work, *answer.settings]))


def link_phrase(answer: Answer) -> Phrase:
    """``10 Mbit/s``; ``unshaped link``."""
    if answer.bandwidth_bps is None:
        return phrase("unshaped link")
    text = BANDWIDTH.show(answer.bandwidth_bps, 4)
    return phrase(Number(f"bandwidth {text}", text))


def whole_phrase(answer: Answer, key: str = "") -> Phrase:
    """The answer as it stands alone: setting, link, sentences. Begins with a capital letter."""
    nodes = counted(answer.nodes, "node")
    about = phrase(f"{nodes[0].upper()}{nodes[1:]}, ", link_phrase(answer))
    for words in (answer.work, *answer.settings):
        about = phrase(about, f", {words}")
    return phrase(about, ": ", answer_phrase(answer, key))


def shared_phrases(found: Iterable[Answer]) -> list[Phrase]:
    """What answers of a list have in common and ``answer_phrase`` leaves out there: where one node is enough.

    Where other methods are the first ones at other links, each sentence says beside which.
    """
    beside = {one.one_node.method: one.one_node for one in found if one.one_node is not None}
    said = {method: one_node_phrase(one, method) for method, one in beside.items()}
    if len({plain(words) for words in said.values()}) < 2:
        return [words for words in said.values() if words][:1]
    return [phrase(f"Beside {method}: ", _lower_first(words)) for method, words in said.items() if words]


def _lower_first(words: Phrase) -> Phrase:
    first, *others = words
    return phrase(first[0].lower() + first[1:] if isinstance(first, str) else first, *others)


def answer_phrase(answer: Answer, key: str = "", *, in_list: bool = False) -> Phrase:
    """The sentences behind setting and link.

    Args:
        key: what tells these numbers from those of other groups, for the names of macros.
        in_list: leaves out what ``shared_phrases`` says once.
    """
    at = f"{key} {_place(answer)}".strip()
    best = answer.best
    if best.first is None:
        return phrase("no arm reaches ", _target(answer, at), " in most of its repeats. ", _tag(answer, at))
    one_repeat = best.times[best.first].num < 2
    name = answer.names[best.first]
    use = phrase(f"{name} was first: " if one_repeat else f"use {name}: ")
    text = phrase(use, _target(answer, at), " in ", _time(best.times[best.first], at))
    for one in answer.against:
        text = phrase(text, ", ", _sooner(one, answer.names[one.arm], at, tied=one.arm in best.members))
    sentences = [phrase(text, ".")]
    if one_repeat:
        return joined([*sentences, phrase(f"{ONE_REPEAT.capitalize()}."), _tag(answer, at)], " ")
    if (parts := _parts_phrase(answer, at)) is not None:
        sentences.append(parts)
    alike = [answer.names[arm] for arm in best.members[1:] if arm not in best.untold]
    if alike:
        sentences.append(phrase(f"Not distinguishable from {name}: {', '.join(alike)}."))
    if best.untold:
        untold = ", ".join(answer.names[arm] for arm in best.untold)
        sentences.append(phrase(f"Nothing is known of {untold}: too few repeats, or too few that arrived."))
    if not in_list and answer.one_node is not None and (where := one_node_phrase(answer.one_node, at)):
        sentences.append(where)
    return joined([*sentences, _tag(answer, at)], " ")


def _place(answer: Answer) -> str:
    return "unshaped" if answer.bandwidth_bps is None else BANDWIDTH.show(answer.bandwidth_bps, 4)


def counted(number: int, noun: str) -> str:
    """``four nodes``; in figures above twelve."""
    word = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{word} {noun}{'' if number == 1 else 's'}"


def _target(answer: Answer, at: str) -> Phrase:
    metric, value = answer.target
    text = f"{100 * value:.4g} %" if metric == "accuracy" else f"{value:.4g}"
    number = Number(f"answer target {at}", text)
    return phrase(number) if metric == "accuracy" else phrase(f"{metric} ", number)


def _time(time: Estimate, at: str) -> Phrase:
    """``24 s (20 to 28)``: the unit once."""
    unit = time_unit(time.value)
    text = phrase(Number(f"answer time {at}", f"{significant(time.value / unit.seconds, _DIGITS)} {unit.symbol}"))
    if time.low is None or time.high is None:
        return text
    return phrase(text, _ends(time.low / unit.seconds, time.high / unit.seconds, f"answer time {at}"))


def _ends(low: float, high: float, key: str, apart_from: float | None = None) -> Phrase:
    ends = (Number(f"{key} {name}", significant(end, _DIGITS, apart_from)) for name, end in
            (("low", low), ("high", high)))  # fmt: skip
    return phrase(" (", *joined([(end,) for end in ends], " to "), ")")


def _sooner(one: Against, name: str, at: str, *, tied: bool) -> Phrase:
    """``10 times (8.5 to 12) sooner than ddp``. ``tied``: tested together with all others, it may be as fast, whatever
    its own interval says."""
    ratio, key = one.ratio, f"answer over {one.arm} {at}"
    before = "more than " if ratio.bound == ">" else ""
    text = phrase(before, Number(key, f"{significant(ratio.value, _DIGITS, 1.0)} times"))
    if ratio.low is not None and ratio.high is not None:
        perhaps = "perhaps " if tied or _holds_one(ratio) else ""
        text = phrase(perhaps, text, _ends(ratio.low, ratio.high, key, 1.0))
    return phrase(text, f" sooner than {name}")


def _parts_phrase(answer: Answer, at: str) -> Phrase | None:
    if answer.parts is None:
        return None
    step, samples = answer.parts.step, answer.parts.samples
    baseline = answer.names[answer.against[0].arm]
    taken = Ratio(1 / samples.value, *_inverse(samples), samples.num)
    if _holds_one(step):
        cost = phrase("its steps may take as long")
    else:
        cheap = step if step.value > 1 else Ratio(1 / step.value, *_inverse(step), step.num)
        number = Number(f"answer step {at}", significant(cheap.value, _DIGITS, 1.0))
        cost = phrase("its steps are ", number, f" times as {'cheap' if step.value > 1 else 'dear'}")
    if _holds_one(taken):
        need = phrase("may take as many samples")
    else:
        number = Number(f"answer samples {at}", significant(taken.value, _DIGITS, 1.0))
        need = phrase("takes ", number, " times the samples")
    return phrase(f"Beside {baseline} ", cost, ", and it ", need, ".")


def _inverse(ratio: Ratio) -> tuple[float | None, float | None]:
    return (None if ratio.high is None else 1 / ratio.high), (None if ratio.low is None else 1 / ratio.low)


def _says_nothing(ratio: Ratio) -> bool:
    return ratio.bound == ">" and ratio.value <= 1


def _holds_one(ratio: Ratio) -> bool:
    return ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high


def one_node_phrase(found: OneNode, key: str = "") -> Phrase:
    """On which side of which bandwidth one node is enough; empty where nothing can be said."""
    if found.host_bound:
        why = "the machine, not the link, bounds the steps"
        return phrase(f"Below which bandwidth {found.alone} is enough is unknown: {why}.")
    crossovers = found.crossovers
    if crossovers.num < 2 or not crossovers.found:
        return ()
    one = crossovers.found[0]
    if crossovers.kind in (ABOVE, BELOW):
        return _outside(found, one, key)
    if crossovers.kind != ONE or one.arm_faster_below is None:
        return ()
    side = "Above" if one.arm_faster_below else "Below"
    low, high = (None if end is None else BANDWIDTH.show(end, _DIGITS) for end in (one.low_bps, one.high_bps))
    if one.bandwidth_bps is None:
        if low is None or high is None:
            return ()
        ends = phrase(Number(f"answer one node low {key}", low), " and ", Number(f"answer one node high {key}", high))
        return phrase(f"{side} a bandwidth between ", ends, f" use {found.alone}.")
    at = Number(f"answer one node {key}", BANDWIDTH.show(one.bandwidth_bps, _DIGITS))
    return phrase(f"{side} ", at, _open_ends(low, high, key), f" use {found.alone}.")


def _open_ends(low: str | None, high: str | None, key: str) -> Phrase:
    first, last = (None if end is None else Number(f"answer one node {name} {key}", end) for name, end in
                   (("low", low), ("high", high)))  # fmt: skip
    if first is not None and last is not None:
        return phrase(" (", first, " to ", last, ")")
    if first is not None:
        return phrase(" (surely above ", first, ")")
    return phrase(" (surely below ", last, ")") if last is not None else ()


def _outside(found: OneNode, one: Crossover, key: str) -> Phrase:
    """Beyond what was measured: up to where, or from where on, one of the two is certainly the sooner one."""
    above = found.crossovers.kind == ABOVE
    end = one.low_bps if above else one.high_bps
    if end is None or one.arm_faster_below is None:
        return ()
    sooner, later = found.method, found.alone
    if one.arm_faster_below != above:
        sooner, later = later, sooner
    at = Number(f"answer one node end {key}", BANDWIDTH.show(end, _DIGITS))
    side = phrase("Up to ", at) if above else phrase("From ", at, " on")
    return phrase(side, f" {sooner} is sooner than {later}; what comes behind is unknown.")


def _tag(answer: Answer, at: str) -> Phrase:
    """Where the times are from, and how many repeats they rest on."""
    text = phrase("[", "composed" if answer.composed else "measured")
    for holds, words in ((answer.first_crossing, "first crossings"), (answer.host_bound, "host-bound")):
        text = phrase(text, f", {words}" if holds else "")
    return phrase(text, ", n = ", Number(f"answer n {at}", str(answer.num)), "]")
