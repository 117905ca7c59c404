"""Every arm against a baseline: ratios of time to accuracy, what they are made of, crossovers, and the best arms.

Compared are cells that are equal in all that an experiment varies, apart from the arm. One node alone, and a free
network without a link, stand beside every link and every number of nodes that they fit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from bwbench.base.errors import ConfigError
from bwbench.base.explain import nearest
from bwbench.base.units import BANDWIDTH
from bwbench.methods.roles import METHOD, may_win
from bwbench.records import CellFolder
from bwbench.results.analysis.arm_cells import ArmCells, Condition, arms_of, ordered
from bwbench.results.analysis.arm_labels import arm_labels, recorded_name
from bwbench.results.analysis.arrival import UNKNOWN
from bwbench.results.analysis.best_set import BestSet, best_set
from bwbench.results.analysis.cell_arrival import arrival_notes, arrival_of_cell
from bwbench.results.analysis.cells import DONE, cell_row, is_composed, is_virtual, keys_of, state_of, value_at
from bwbench.results.analysis.crossover import Crossovers, Measured, Scale, find_crossovers, scale_of
from bwbench.results.analysis.equal_footing import Footing, equal_footing
from bwbench.results.analysis.grouping import BANDWIDTH_KEY, Group, group_cells, sortable
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import ASSUMED_BETWEEN, ONE_REPEAT, Estimate, estimate, number
from bwbench.results.analysis.student import together
from bwbench.results.analysis.taken_apart import TakenApart, in_samples, take_apart
from bwbench.results.analysis.throughput import RateRow, rate_rows, seconds_a_sample


def non_dominated(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether no other point is at least as small in both and smaller in one."""
    return [
        not any(x <= mine[0] and y <= mine[1] and (x < mine[0] or y < mine[1]) for x, y in points) for mine in points
    ]


@dataclass(frozen=True)
class ArmRow:
    """One arm beside the baseline, under one condition.

    Attributes:
        ratio: None where the baseline has no time here, or where censoring on both sides leaves nothing to say.
        taken_apart: the ratio as that of the time of a step times that of the samples; None where that is not known.
        together: confidence of each ratio that makes all of this condition hold together at 95 %.
        num: pairs of equal seeds, or the smaller of the two arms' numbers of repeats.
        num_censored: repeats of both arms that did not reach the target.
        composed: one of the times is composed, not measured whole.
        host_bound: the machine, and not the link alone, decides what a step of the two takes.
        first_crossing, baseline_first_crossing: whether any of the arm's repeats is known by its first crossing alone,
            and of the baseline's.
    """

    experiment: str
    condition: Condition
    algorithm: str
    baseline: str
    ratio: Ratio | None
    taken_apart: TakenApart | None
    together: float
    num: int
    num_censored: int
    time: Estimate
    baseline_time: Estimate | None
    composed: bool
    first_crossing: bool = False
    baseline_first_crossing: bool = False
    host_bound: bool = False


@dataclass(frozen=True)
class SamplesRow:
    """One arm beside the baseline by the samples to the target, where nodes were virtual and times say nothing.

    Attributes:
        ratio: samples of the baseline over those of the arm; None where that cannot be said.
        samples, baseline_samples: in samples, not seconds; the latter None where the baseline has none here.
        num, num_censored: as in ``ArmRow``.
    """

    experiment: str
    condition: Condition
    algorithm: str
    baseline: str
    ratio: Ratio | None
    samples: Estimate
    baseline_samples: Estimate | None
    num: int
    num_censored: int


@dataclass(frozen=True)
class CrossoverRow:
    """Where one arm and the baseline are equally fast, over all bandwidths of one condition."""

    experiment: str
    condition: Condition
    algorithm: str
    baseline: str
    crossovers: Crossovers
    scale: Scale
    composed: bool


@dataclass(frozen=True)
class BestRow:
    """The arms that may be the fastest under one condition, of all that take part in the race."""

    experiment: str
    condition: Condition
    best: BestSet
    composed: bool


@dataclass(frozen=True)
class FootingRow:
    """How good one arm is at equal samples, at equal time and at the end, under one condition."""

    experiment: str
    condition: Condition
    algorithm: str
    footing: Footing
    composed: bool


@dataclass(frozen=True)
class ParetoRow:
    """Time against final metric of one arm among the others, under one condition.

    Attributes:
        time_s: centre of the times to target; None where fewer than half reached it.
        metric, metric_value: name, and mean over the repeats at the last evaluation on the validation split.
        first_crossing: as in ``ArmRow``.
        optimal: no other arm is at least as good in both and better in one.
    """

    experiment: str
    condition: Condition
    algorithm: str
    time_s: float | None
    metric: str
    metric_value: float
    n: int
    num_censored: int
    composed: bool
    first_crossing: bool
    optimal: bool


@dataclass(frozen=True)
class Comparison:
    """All that was compared, and what was not: ``notes`` are sentences for people, ``labels`` short names of arms.

    Cells of virtual nodes stand in ``samples`` and in what of ``footing`` has no time, and nowhere else. Cells without
    a target stand in ``rates`` alone.
    """

    rows: list[ArmRow] = field(default_factory=list)
    samples: list[SamplesRow] = field(default_factory=list)
    crossovers: list[CrossoverRow] = field(default_factory=list)
    best: list[BestRow] = field(default_factory=list)
    pareto: list[ParetoRow] = field(default_factory=list)
    footing: list[FootingRow] = field(default_factory=list)
    rates: list[RateRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)


def compare_cells(
    folders: Iterable[CellFolder], baseline: str, by: str = BANDWIDTH_KEY, *, dashes: str = "--"
) -> Comparison:
    """Compare every arm with ``baseline``, experiment by experiment.

    Args:
        folders: cells with a readable cell.json, of one or several experiments, done or not.
        baseline: an arm, by its recorded name or by its label (``arm_labels``).
        by: dotted key of the configuration; its value stands first in the condition of every row.
        dashes: before the names of these two in a message: they are options of a command, or with none arguments.

    Raises ConfigError where there is no such arm or key, or where no cell that is done says when it arrived, or how
    long it trained.
    """
    everything = sorted(folders, key=lambda folder: folder.cell.experiment)
    arms = sorted({str(folder.cell.arm) for folder in everything})
    labels = arm_labels(folder.cell for folder in everything)
    baseline = recorded_name(baseline, labels)
    if baseline not in arms:
        hint = nearest(baseline, arms)
        raise ConfigError(f"{dashes}baseline: no arm {baseline!r} there.{hint} Arms: {', '.join(arms)}.")
    known = sorted({key for folder in everything for key in keys_of(folder.cell.config)})
    if by not in known:
        raise ConfigError(f"{dashes}by: no key {by!r} in these cells.{nearest(by, known)} Keys: {', '.join(known)}.")
    comparison = Comparison(labels=labels)
    own = OwnSteps.of(everything)  # a step is the same on links where no cell tells it
    for experiment, cells in groupby(everything, lambda folder: folder.cell.experiment):
        for group in group_cells(list(cells)):
            _compare_group(comparison, experiment, group, own, baseline, by)
    if not (comparison.rows or comparison.pareto or comparison.samples or comparison.rates):
        raise ConfigError(_nothing_to_compare(everything))
    if all(value_at(folder.cell.config, "stop") == "target" for folder in everything):
        comparison.notes.append("training stopped at the target: final metrics hardly differ; `stop: limit` goes on")
    done = [folder for folder in everything if state_of(folder) == DONE]
    comparison.notes.extend(arrival_notes(folder for folder in done if not is_virtual(folder)))
    comparison.rows.sort(key=_place_of)
    comparison.samples.sort(key=_place_of)
    comparison.rates.sort(key=_place_of)
    if single := _on_one_timing_run(everything):
        comparison.notes.append(single)
    if 1 in [row.num for rows in (comparison.rows, comparison.samples, comparison.rates) for row in rows]:
        comparison.notes.append(f"n = 1: {ONE_REPEAT}")
    return comparison


def _nothing_to_compare(folders: Sequence[CellFolder]) -> str:
    done = [folder for folder in folders if state_of(folder) == DONE]
    if not done:
        return f"none of {len(folders)} cells is done: there is nothing to compare; run them with `bwbench run FILE`"
    if any(arrival_of_cell(folder).arrival_kind == UNKNOWN for folder in done):
        return "when any of these cells reaches this target is unknown until run again, for longer; ask for a lower one"
    return "no cell that is done has a time to its target; give the experiment a `target:`, e.g. {accuracy: 0.95}"


def _on_one_timing_run(folders: Sequence[CellFolder]) -> str:
    """What is assumed of composed cells whose steps were timed in one run; empty where there is none."""
    rows = [cell_row(folder) for folder in folders if is_composed(folder) and state_of(folder) == DONE]
    single = sum(1 for row in rows if (number(row.get("timing_runs")) or 1) < 2)
    if not single:
        return ""
    share = f"{100 * ASSUMED_BETWEEN:.0f} %"
    return f"{single} composed cells rest on one timing run: that runs differ by {share} is assumed in their intervals"


def _compare_group(
    comparison: Comparison, experiment: str, group: Group, own: OwnSteps, baseline: str, by: str
) -> None:
    measured: dict[str, list[tuple[float, ArmCells, ArmCells]]] = {}
    missing: list[str] = []
    for bandwidth in group.bandwidths:
        done = [folder for folder in group.at(bandwidth) if state_of(folder) == DONE]
        virtual = {arm.name: arm for arm in arms_of(done, own)} if any(map(is_virtual, done)) else {}
        timed = [folder for folder in done if not is_virtual(folder)]
        arms = {arm.name: arm for arm in arms_of(timed, own)}
        rates = {arm.name: arm for arm in arms_of(timed, own, seconds_a_sample)}
        text = None if bandwidth is None else BANDWIDTH.format(bandwidth)
        condition: Condition = {BANDWIDTH_KEY: text, **dict(group.key)}
        reference = arms.get(baseline)
        if (reference is None and arms) or (baseline not in rates and rates):
            missing.append("an unshaped link" if text is None else text)
        comparison.samples.extend(_samples_rows(experiment, condition, by, baseline, virtual))
        comparison.rates.extend(rate_rows(experiment, condition, by, baseline, rates))
        family = len(arms) - 1
        for arm in arms.values():
            if arm.name != baseline:
                its = ordered(condition, by, arm)
                comparison.rows.append(_arm_row(experiment, its, arm, baseline, reference, family))
                if reference is not None and bandwidth is not None and not (arm.host_bound or reference.host_bound):
                    measured.setdefault(arm.name, []).append((bandwidth, reference, arm))
        comparison.best.extend(_best_rows(experiment, condition, by, arms.values()))
        comparison.pareto.extend(_pareto_rows(experiment, condition, by, arms.values()))
        everybody = virtual or arms
        for name, footing in equal_footing({name: arm.folders for name, arm in everybody.items()}).items():
            its = ordered(condition, by, everybody[name])
            comparison.footing.append(FootingRow(experiment, its, name, footing, everybody[name].composed))
    if missing:
        setting = ", ".join(f"{key} {value}" for key, value in group.key)
        where = f"{f' with {setting}' if setting else ''} at {', '.join(missing)}"
        comparison.notes.append(f"{experiment}: no {baseline} that is done{where}: no ratios there")
    for name, places in sorted(measured.items()):
        if len(places) > 1:
            crossovers = find_crossovers([Measured(bps, one.arrivals, arm.arrivals) for bps, one, arm in places])
            pairs = [of_pair for _, *both in places for of_pair in both]
            scale = scale_of([folder for arm in pairs for folder in arm.folders])
            composed = any(arm.composed for arm in pairs)
            row = CrossoverRow(experiment, dict(group.key), name, baseline, crossovers, scale, composed)
            comparison.crossovers.append(row)


def _best_rows(experiment: str, condition: Condition, by: str, arms: Iterable[ArmCells]) -> list[BestRow]:
    """One row, or none where fewer than two arms race."""
    racing = {arm.name: arm for arm in arms if may_win(arm.role)}
    if len(racing) < 2:
        return []
    found = best_set({name: arm.arrivals for name, arm in racing.items()})
    linked = next((arm for arm in racing.values() if arm.role == METHOD), next(iter(racing.values())))
    composed = any(arm.composed for arm in racing.values())
    return [BestRow(experiment, ordered(condition, by, linked), found, composed)]


def _pareto_rows(experiment: str, condition: Condition, by: str, arms: Iterable[ArmCells]) -> list[ParetoRow]:
    """All arms with a final metric, fastest first."""
    points: list[tuple[float, float, ParetoRow]] = []
    for arm in arms:
        finals = [value for row in arm.rows if (value := number(row.get("final_metric"))) is not None]
        metric = str(next((row["target_metric"] for row in arm.rows if row.get("target_metric")), ""))
        if not finals:
            continue
        centre, mean = estimate(list(arm.arrivals.values())), statistics.fmean(finals)
        time_s = None if math.isinf(centre.value) else centre.value
        of_arm = (ordered(condition, by, arm), arm.name, time_s, metric, mean, centre.num, centre.num_censored)
        row = ParetoRow(experiment, *of_arm, arm.composed, arm.first_crossing, False)
        points.append((centre.value, -mean if metric == "loss" else mean, row))
    points.sort(key=lambda point: (point[0], -point[1], point[2].algorithm))
    optimal = non_dominated([(time_s, -good) for time_s, good, _ in points])
    return [replace(row, optimal=best) for (_, _, row), best in zip(points, optimal, strict=True)]


def _arm_row(
    experiment: str, condition: Condition, arm: ArmCells, baseline: str, reference: ArmCells | None, family: int
) -> ArmRow:
    others = reference.arrivals if reference else {}
    ratio = ratio_of(others, arm.arrivals)
    time, other_time = estimate(list(arm.arrivals.values())), estimate(list(others.values())) if others else None
    both = time.num_censored + (other_time.num_censored if other_time else 0)
    return ArmRow(
        experiment,
        condition,
        arm.name,
        baseline,
        ratio,
        take_apart(others, arm.arrivals),
        together(family),
        ratio.num if ratio else min(time.num, other_time.num if other_time else 0),
        ratio.num_censored if ratio else both,
        time,
        other_time,
        arm.composed or (reference is not None and reference.composed),
        arm.first_crossing,
        reference is not None and reference.first_crossing,
        host_bound=arm.host_bound or (reference is not None and reference.host_bound),
    )


def _samples_rows(
    experiment: str, condition: Condition, by: str, baseline: str, arms: Mapping[str, ArmCells]
) -> Iterator[SamplesRow]:
    """Every arm but the baseline; those that records say no samples of are left out."""
    found = {name: samples for name, arm in arms.items() if (samples := in_samples(arm.arrivals))}
    others = found.get(baseline, {})
    reference = estimate(list(others.values())) if others else None
    for name, arrivals in found.items():
        if name == baseline:
            continue
        ratio, own = ratio_of(others, arrivals), estimate(list(arrivals.values()))
        both = own.num_censored + (reference.num_censored if reference else 0)
        num = ratio.num if ratio else min(own.num, reference.num if reference else 0)
        its = ordered(condition, by, arms[name])
        yield SamplesRow(
            experiment, its, name, baseline, ratio, own, reference, num, ratio.num_censored if ratio else both
        )


def _place_of(row: ArmRow | SamplesRow | RateRow) -> tuple[object, ...]:
    by, *others = [sortable(value) for value in row.condition.values()]
    centre = row.time if isinstance(row, ArmRow) else row.samples if isinstance(row, SamplesRow) else row.sample
    return row.experiment, others, by, centre.value, centre.at_least, row.algorithm
