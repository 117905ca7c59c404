"""The table at the end of a run: a heading a link, below it a row an arm and setting, the fastest first.

Repeats of a row are taken together, as everywhere else: the geometric mean, its interval, and how many there are.
"""

from __future__ import annotations

import json
import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from shlex import quote

from bwbench.base.plain_data import JsonObject, mapping_at
from bwbench.base.step_time import recorded_step_times
from bwbench.base.units import BANDWIDTH, DURATION, rounded
from bwbench.cli.output import MAX_ROWS, FittedTable, fit_table, seconds, size
from bwbench.experiment.config.cell_config import NO_DATA
from bwbench.methods.roles import REFERENCE, standing_by_name
from bwbench.records import CellFolder
from bwbench.records.schema import Measurement
from bwbench.results.analysis.answer import usual_baseline
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.analysis.arrival import FIRST_CROSSING
from bwbench.results.analysis.caveats import COMPOSED_MARK
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK, arrival_notes
from bwbench.results.analysis.cells import Row, cell_row, concerns_no_link, is_virtual, name_of, standing_of, time_words
from bwbench.results.analysis.grouping import deciding, flat_settings, sortable
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK, OwnSteps
from bwbench.results.analysis.notes import notes_on
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import ONE_REPEAT, Arrival, Estimate, by_seed, estimate, number
from bwbench.results.analysis.taken_apart import in_samples
from bwbench.results.analysis.throughput import seconds_a_sample
from bwbench.results.text import span

_DIGITS = 4  # of a measured rate
# Said of rows of one name whenever they differ in it; of all else as much as tells them apart.
_ALWAYS_SAID = ("nodes", "batch_size", "accumulate", "dilation", "shrink", "model.name", "dataset.name")
_NEVER_TELL = ("link", "seed", "algorithm.name", "collective.name", "compression.name")  # a heading, n, the name do
_OF_OTHERS = ("nodes", "link", "algorithm", "collective", "compression", "dilation", "shrink", "compute", "seed")
_UNITS = ((3600.0, " h"), (60.0, " min"), (1.0, ""))  # of an interval behind a time, which is in seconds below a minute
_LESS_NEEDED = ("wire/step", "payload/step", "samples", "seeds")  # left out in this order where room is short


@dataclass(frozen=True, eq=False)
class Outcome:
    """The repeats of one arm under one setting, all of them done.

    Attributes:
        label: the arm's, as ``arm_labels`` has it.
        config: what they were planned with, but for the seed.
        rows: of ``cell_row`` and ``OwnSteps.row``, in the order of ``folders``.
    """

    label: str
    config: JsonObject
    folders: tuple[CellFolder, ...]
    rows: tuple[Row, ...]

    @cached_property
    def is_virtual(self) -> bool:
        """Whether a repeat had virtual nodes: then no time of them is said."""
        return any(map(is_virtual, self.folders))

    @cached_property
    def arrivals(self) -> dict[int, Arrival]:
        """By seed."""
        return by_seed(self.rows)

    @cached_property
    def time(self) -> Estimate | None:
        """None where the nodes were virtual, or where there is no target."""
        return estimate(list(self.arrivals.values())) if self.arrivals and not self.is_virtual else None

    @cached_property
    def samples(self) -> Estimate | None:
        """To the target; None where records do not say."""
        found = in_samples(self.arrivals)
        return estimate(list(found.values())) if found else None

    @cached_property
    def sample(self) -> Estimate | None:
        """Seconds of one, of all nodes together; None where there is a target, and where the nodes were virtual."""
        found = seconds_a_sample(self.rows)
        return estimate(list(found.values())) if found and not self.is_virtual else None

    @property
    def place(self) -> tuple[bool, float, float, str]:
        """Where it stands below its link: by time, without a target by that of a sample; behind those by samples."""
        if (time := self.time or self.sample) is not None:
            return False, time.value, time.at_least, self.label
        samples = self.samples
        return True, *((samples.value, samples.at_least) if samples else (math.inf, math.inf)), self.label

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its repeats, rising."""
        return tuple(sorted(int(number(row["seed"]) or 0) for row in self.rows))

    @property
    def marks(self) -> str:
        """Of its time: first crossing, composed, host-bound."""
        crossed = any(row["arrival_kind"] == FIRST_CROSSING for row in self.rows)
        composed, bound = (any(row[name] is True for row in self.rows) for name in ("composed", "host_bound"))
        marks = ((FIRST_CROSSING_MARK, crossed), (COMPOSED_MARK, composed), (HOST_BOUND_MARK, bound))
        return "".join(mark for mark, is_there in marks if is_there)

    def mean(self, value: Callable[[CellFolder], float | None]) -> float | None:
        """Over the repeats that have it."""
        known = [found for folder in self.folders if (found := value(folder)) is not None]
        return statistics.fmean(known) if known else None


Configs = Mapping[Path, JsonObject]  # of all planned cells, done or not, by their folder: as this version resolves them


def outcome_lines(done: Sequence[CellFolder], planned: Configs, width: int) -> Iterator[str]:
    """The lines, for a terminal of ``width`` columns.

    Args:
        done: cells that are done, of any number of experiments.
    """
    labels, own = arm_labels(folder.cell for folder in done), OwnSteps.of(done)
    ordered = sorted(done, key=lambda folder: folder.cell.experiment)
    shown = total = 0
    for experiment, found in groupby(ordered, lambda folder: folder.cell.experiment):
        cells = list(found)
        outcomes = _outcomes(cells, planned, labels, own)
        links = list(_by_link(outcomes))
        total += sum(len(rows) for _, rows in links)
        if shown >= MAX_ROWS:
            continue
        if shown:
            yield ""
        yield from _wrapped(f"{experiment}: {_in_common(cells)}", width)
        table = _table([rows for _, rows in links], _Singles(outcomes, planned), width)
        lines = [line for of_row in table.rows for line in of_row]
        for link, rows in links:
            if (fitting := min(len(rows), MAX_ROWS - shown)) > 0:
                shown += fitting
                about = (part for line in (link, *_goodput_lines(rows)) for part in _wrapped(line, width))
                yield from ("", *about, table.header, *lines[:fitting])
            del lines[: len(rows)]
        yield from table.note
    if total > shown:
        yield f"… and {total - shown} more rows; `bwbench status` lists all cells"


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def outcome_notes(done: Sequence[CellFolder], planned: Configs) -> Iterator[str]:
    """What must be said of the cells of the table."""
    labels, own = arm_labels(folder.cell for folder in done), OwnSteps.of(done)
    rows = [cell_row(folder) | own.row(folder) for folder in done]
    yield from arrival_notes(folder for folder in done if not is_virtual(folder))
    yield from notes_on(done, rows)
    if any(len(outcome.folders) == 1 for outcome in _outcomes(done, planned, labels, own)):
        yield f"n = 1: {ONE_REPEAT}."


def where_rates_stand(done: Iterable[CellFolder]) -> Iterator[str]:
    """The command that compares samples a second, of each experiment without a target."""
    arms: dict[Path, dict[str, str]] = {}  # by the experiment's folder: names and roles
    for folder in done:
        if folder.cell.config.get("target") is None and not is_virtual(folder):
            arms.setdefault(folder.path.parent, {})[str(folder.cell.arm)] = standing_of(folder.cell).role
    for path, roles in arms.items():
        alone = next((name for name, role in roles.items() if role == REFERENCE), None)
        baseline = alone or usual_baseline(roles) or min(roles)
        command = f"bwbench compare {quote(str(path))} --baseline {quote(baseline)}"
        yield f"no target, so no time to it; samples a second beside {baseline}: `{command}`"


def _outcomes(cells: Sequence[CellFolder], planned: Configs, labels: Mapping[str, str], own: OwnSteps) -> list[Outcome]:
    """Cells that differ in nothing but their seed, together."""
    together: dict[str, list[CellFolder]] = {}
    configs: dict[str, JsonObject] = {}
    for folder in cells:
        config = {key: value for key, value in planned.get(folder.path, folder.cell.config).items() if key != "seed"}
        key = json.dumps([folder.cell.experiment, folder.cell.arm, config], sort_keys=True)
        together.setdefault(key, []).append(folder)
        configs[key] = config
    return [
        Outcome(
            labels[of_row[0].cell.arm], configs[key], tuple(of_row), tuple(cell_row(f) | own.row(f) for f in of_row)
        )
        for key, of_row in together.items()
    ]


def _by_link(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    """Each link in words, the slowest first, with its rows in order: those that ran on it, or that no link concerns."""
    everywhere = [one for one in outcomes if concerns_no_link(one.folders[0].cell)]
    linked: dict[str, list[Outcome]] = {}
    for one in outcomes if len(everywhere) == len(outcomes) else (one for one in outcomes if one not in everywhere):
        linked.setdefault(json.dumps(mapping_at(one.config, "link"), sort_keys=True), []).append(one)
    words = {link: str(rows[0].rows[0]["link"]) for link, rows in linked.items()}
    flat = {link: flat_settings(rows[0].folders[0]) for link, rows in linked.items()}
    for link in sorted(linked, key=lambda link: (*_rate_and_rtt(linked[link][0].rows[0]), words[link])):
        alike = [other for other in linked if words[other] == words[link]]
        names = sorted({name for other in alike for name in flat[other] if name.startswith("link.")})
        telling = [name for name in names if len({str(flat[other].get(name)) for other in alike}) > 1]
        more = [f"{name.removeprefix('link.')} {flat[link].get(name)}" for name in telling]
        rows = linked[link] if linked[link][0] in everywhere else [*linked[link], *everywhere]
        yield ", ".join([words[link], *more]), sorted(rows, key=lambda one: one.place)


def _rate_and_rtt(row: Row) -> tuple[float, float]:
    rate, rtt = number(row["bandwidth_bps"]), number(row["rtt_s"])
    return math.inf if rate is None else rate, rtt or 0.0


def _in_common(cells: Sequence[CellFolder]) -> str:
    """``cnn on digits, 4 nodes, batch 32, step 50 ms, target accuracy 0.93``: what the rows of an experiment share."""
    linked = deciding(cells)
    rows = [cell_row(folder) for folder in linked]

    def each(*names: str) -> str:
        found = {tuple(row[name] for name in names) for row in rows}
        named = ([str(name) for name in one if name != NO_DATA] for one in sorted(found, key=_sorted_by))
        return " or ".join(map(" on ".join, named))

    nodes = each("nodes")
    parts = [each("model", "dataset"), f"{nodes} {'node' if nodes == '1' else 'nodes'}"]
    parts += [f"batch {each('batch_size')} a node", *time_words(folder.cell.config for folder in linked)]
    target = {f"target {row['target_metric']} {number(row['target_value']):g}" for row in rows if row["target_metric"]}
    return ", ".join([*parts, *sorted(target)])


def _sorted_by(values: Sequence[object]) -> list[tuple[int, float, str]]:
    return [*map(sortable, values)]


def _goodput_lines(rows: Sequence[Outcome]) -> Iterator[str]:
    """What the link was to carry and did, before training: of all flows at once, which on a shared air is much less
    than the link's rate; and of one by itself where that was measured."""
    by_flows: dict[tuple[int, bool], list[Measurement]] = {}
    is_shared = any(row.rows[0]["medium"] == "shared" for row in rows)
    where = " over the shared air" if is_shared else ""
    for folder in (folder for row in rows for folder in row.folders):
        link = folder.link
        measured = link.in_asked_time.achieved_before if link is not None else None
        if link is not None and measured is not None and any(pair.asked_goodput_bps for pair in measured.pairs):
            has_sites = link.applied is not None and bool(link.applied.sites)
            by_flows.setdefault((len(measured.pairs), has_sites), []).append(measured)
    for (flows, has_sites), found in sorted(by_flows.items()):
        pairs = [pair for measured in found for pair in measured.pairs]
        asked, achieved = ([getattr(pair, f"{what}_goodput_bps") for pair in pairs] for what in ("asked", "achieved"))
        line = f"goodput of one of {flows} flows, all sending{where}: "
        if has_sites:
            line = f"goodput of each of {flows} ways inside and between the sites, one flow on a line at a time: "
        line += f"{_rates(asked)} expected, {_rates(achieved)} achieved"
        alone = [[getattr(one, f"alone_{what}_goodput_bps") for one in found] for what in ("asked", "achieved")]
        if any(alone[0]):
            line += f"; of one alone: {_rates(alone[0])} expected, {_rates(alone[1])} achieved"
        yield line


def _rates(rates_bps: Iterable[float | None]) -> str:
    known = sorted(rate for rate in rates_bps if rate is not None)
    if not known:
        return "-"
    low, high = (BANDWIDTH.show(rate, _DIGITS) for rate in (known[0], known[-1]))
    return low if low == high else span(low, high)


def _telling(headings: Iterable[Sequence[Outcome]]) -> list[str]:
    """Flat names of the settings that tell rows of one name below one heading apart."""
    flat: dict[int, Mapping[str, object]] = {}
    alike: list[list[Outcome]] = []
    for outcomes in headings:
        by_label: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_label.setdefault(outcome.label, []).append(outcome)
            flat[id(outcome)] = flat_settings(outcome.folders[0])
        alike += [rows for rows in by_label.values() if len(rows) > 1]
    names = sorted({name for rows in alike for row in rows for name in flat[id(row)]})
    names = [name for name in names if not any(name == one or name.startswith(f"{one}.") for one in _NEVER_TELL)]
    varying = [name for name in names if any(len({str(flat[id(row)].get(name)) for row in rows}) > 1 for rows in alike)]
    taken = [name for name in _ALWAYS_SAID if name in varying]

    def num_told(chosen: Sequence[str]) -> int:
        return sum(len({tuple(str(flat[id(row)].get(name)) for name in chosen) for row in rows}) for rows in alike)

    for name in varying:
        if name not in taken and num_told([*taken, name]) > num_told(taken):
            taken.append(name)
    return taken


def _table(headings: Sequence[Sequence[Outcome]], singles: _Singles, width: int) -> FittedTable:
    """The rows below all headings, in columns of one width."""
    rows, settings = [row for rows in headings for row in rows], _telling(headings)
    timed = not all(row.is_virtual for row in rows)
    metrics = {folder.status.metric or "final" for row in rows for folder in row.folders if folder.status}
    final = metrics.pop() if len(metrics) == 1 else "final"
    compared = timed and any(singles.ratio(row) is not None for row in rows)
    times = [*(["time to target"] if timed else []), *(["vs single"] if compared else [])]
    seeds = ["seeds"] if len({row.seeds for row in rows}) > 1 else []
    outcome = [*times, "samples", final]
    if aimless := any(row.sample for row in rows) and not any(row.arrivals for row in rows):  # none has a target
        learnt = any(_final(row) is not None for row in rows)
        outcome = ["step", "samples a second", *([final] if learnt else [])]
    numbers = [*outcome, "payload/step", "wire/step", "n", *seeds]
    flat = [flat_settings(row.folders[0]) for row in rows]
    right = {*numbers, *(name for name in settings if all(isinstance(one.get(name), (int, float)) for one in flat))}
    columns = ["method", *(name.removesuffix(".name") for name in settings), *numbers]
    table = []
    for row in rows:
        time = [*([_time(row)] if timed else []), *([_ratio(singles.ratio(row))] if compared else [])]
        found = [*_pace(row), _in_words(_final(row))] if aimless else [*time, _samples(row), _in_words(_final(row))]
        table.append(_cells(row, settings, found[: len(outcome)], [_ranges(row.seeds)] if seeds else []))
    return fit_table(columns, table, width, less_needed=_LESS_NEEDED, right=right)


def _cells(row: Outcome, settings: Sequence[str], outcome: Sequence[str], seeds: Sequence[str]) -> list[str]:
    flat = flat_settings(row.folders[0])
    arrived = sum(arrival.time_s is not None for arrival in row.arrivals.values())
    num, reached = len(row.folders), len(row.arrivals)
    return [
        row.label,
        *("-" if flat.get(name) is None else str(flat[name]) for name in settings),
        *outcome,
        size(row.mean(lambda folder: _a_step(folder, "payload_bytes"))),
        size(row.mean(_wire_a_step)),
        str(num) if arrived == reached else f"{arrived} of {num}",
        *seeds,
    ]


def _samples(row: Outcome) -> str:
    """To the target."""
    return "-" if row.samples is None else f"{'> ' if math.isinf(row.samples.value) else ''}{row.samples.at_least:.0f}"


def _final(row: Outcome) -> float | None:
    """The metric at the end; None where nothing is learnt."""
    return row.mean(lambda folder: folder.status.final_metric if folder.status is not None else None)


def _in_words(final: float | None) -> str:
    return "-" if final is None else f"{final:.3f}"


def _pace(row: Outcome) -> list[str]:
    """The mean step, and samples a second of all nodes: ``668 ms``, ``95.8 (94.9 to 96.7)``."""
    step_s, one = row.mean(_step_s), row.sample
    if step_s is None or one is None:
        return ["-", "-"]
    ends = "" if one.low is None or one.high is None else f" ({1 / one.high:.3g} to {1 / one.low:.3g})"
    marks = f" {row.marks}" if row.marks else ""
    return [DURATION.show(step_s, 3), f"{1 / one.value:.3g}{ends}{marks}"]


def _time(row: Outcome) -> str:
    """``23.8 s (20.1 to 28.9) ‡†``, ``1 min 28 s (1.3 to 1.65 min)``, ``> 60.0 s``, ``virtual`` without times."""
    if row.time is None:
        return "virtual" if row.is_virtual else "-"
    time, marks = row.time, f" {row.marks}" if row.marks else ""
    if math.isinf(time.value):
        return f"> {seconds(time.at_least)}{marks}"
    ends = ""
    if time.low is not None and time.high is not None:
        unit_s, unit = next((one for one in _UNITS if time.value >= one[0]), _UNITS[-1])
        ends = f" ({rounded(time.low / unit_s, 3)} to {rounded(time.high / unit_s, 3)}{unit})"
    return f"{seconds(time.value)}{ends}{marks}"


def _ratio(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.bound} {ratio.value:.2f}x".strip()


def _step_s(folder: CellFolder) -> float | None:
    """Without the wait for what was under way at its end, where steps wait for nobody."""
    name = "training_clock_s" if folder.status is None or folder.status.steps_clock_s is None else "steps_clock_s"
    return _a_step(folder, name)


def _a_step(folder: CellFolder, name: str) -> float | None:
    status = folder.status
    total = getattr(status, name, None)
    return total / status.steps if status is not None and status.steps and total is not None else None


def _wire_a_step(folder: CellFolder) -> float | None:
    wire = folder.link.wire if folder.link is not None else None
    return wire.per_step_bytes if wire is not None else _a_step(folder, "wire_bytes")


def _ranges(values: Sequence[int]) -> str:
    """``0-2, 5``."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


class _Singles:
    """The repeats of one node alone that each row compares with: they differ in how nodes agree, and over what link.

    Where every arm has a learning rate of its own, one node alone is the only one that differs in nothing but its
    optimizer.
    """

    def __init__(self, outcomes: Iterable[Outcome], planned: Configs) -> None:
        self._planned: dict[str, set[str]] = {}  # workloads of one node alone, by what an arm may compare with
        for config in planned.values():
            algorithm, collective = name_of(config.get("algorithm")), name_of(config.get("collective"))
            if standing_by_name(algorithm, collective, ["none"]).role == REFERENCE:
                for workload in _workloads(config):
                    self._planned.setdefault(workload, set()).add(_workloads(config)[0])
        self._done: dict[str, dict[int, Arrival]] = {}
        for outcome in outcomes:
            if standing_of(outcome.folders[0].cell).role == REFERENCE and outcome.time is not None:
                self._done.setdefault(_workloads(outcome.config)[0], {}).update(outcome.arrivals)

    def ratio(self, row: Outcome) -> Ratio | None:
        """How many times as fast the row is; None where there is none to compare with."""
        if row.time is None or any(arrival.time_s == 0 for arrival in row.arrivals.values()):
            return None  # a target that was met before the first step says nothing
        for workload in _workloads(row.config):
            planned = self._planned.get(workload, set())
            if len(planned) == 1:
                return ratio_of(self._done.get(next(iter(planned)), {}), row.arrivals)
        return None


def _workloads(config: JsonObject) -> list[str]:
    """What is trained, with and without its optimizer. Of the nodes' step times that of node 0, which one node is."""
    compute = mapping_at(config, "compute")
    step_times = recorded_step_times(compute).of_nodes(1)
    kept: dict[str, object] = {key: value for key, value in config.items() if key not in _OF_OTHERS}
    kept |= {"threads": compute.get("threads"), "step_time": str(step_times[0]) if step_times else None}
    without = {key: value for key, value in kept.items() if key != "optimizer"}
    return [json.dumps(content, sort_keys=True) for content in (kept, without)]
