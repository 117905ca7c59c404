"""Is `deco-sgd`, which chooses ratio and staleness as it goes, as fast as the fixed setting that is best on each link?

The experiment is experiments/measured/adaptive.yaml; its head says what is asked, where the traces come from, and on
which seeds the best fixed setting of each link is chosen. With --run everything that is missing is made: the traces are
copied out of the data folder, rates searched, the settings raced, the best ones written into adaptive-best.yaml beside
it, five seeds of these and of the adaptive one trained. After an interruption the same command goes on. It wants a
quiet machine. Without options the table: geometric means of the time to accuracy, ratios with the 95 % interval of
`bwbench compare` (Welch's t over the logarithms); above 1 the adaptive one is faster.

Usage: python benchmarks/adaptive.py [--run | --choose] [--default-costs] [--results DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bwbench.base.errors import BwbenchError
from bwbench.base.units import BANDWIDTH
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.tuned_table import TunedEntry, read_table, row_of
from bwbench.experiment.plan import Cell, build_plan
from bwbench.methods.algorithms.deco_choice import DecoSetting, DecoSgdConfig, steps_needed
from bwbench.records import CellFolder
from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Estimate, by_seed, estimate
from bwbench.results.analysis.trial import EventsByRank, steps_of_ranks
from bwbench.training.datasets.dataset import data_folder

FOLDER = Path(__file__).parents[1] / "experiments" / "measured"
RACE, BEST = FOLDER / "adaptive.yaml", FOLDER / "adaptive-best.yaml"
# Long enough to know the pace of a setting. Evaluations stay: the training clock stands still in them, traces do not.
RACE_SET = ("limit.samples=12800", "limit.time=1 min")
REPEATS, SEED = 5, 0
LINK, ALGORITHM = "link.trace, link.bandwidth, link.outages", "algorithm"
TRACES = {  # SHA-256 of each, by its name below traces/ of the data folder
    "wifi/wifi_office_231114-154408.txt": "ea2d3d2e2eef4b88ecc854e2e2f883d7a2fa01bca75433a3e0020c6df4d6ca25",
    "cellular/TMobile-LTE-short.up": "1c0d1bf5417b07597724fd64afe676af3c1f337a4ccdde90106bf96b1bcf18b2",
    "cellular/TMobile-LTE-short.down": "4f33dce8dd811b5702272af64aaf64d3913719919abd776edf1e0f7c0965da43",
    "cellular/ATT-LTE-driving-2016.up": "ebb3d53674b77be4ed920ad91c4513a496e04e30da839e2ca8a627cb7269071e",
    "cellular/ATT-LTE-driving-2016.down": "24a40538340de991e0a6595aefc381b11a3da0446176e69b51750707a57b0344",
}
RATIO_COSTS = (0.0, *(10.0 ** (power / 20) for power in range(-100, -19)))  # 1e-5 to 0.1, twenty to a decade
STALENESS_COSTS = tuple(number / 50 for number in range(151))  # 0 to 3

Needed = Mapping[DecoSetting, tuple[float, bool]]  # samples to the target; False: more than so many


@dataclass(frozen=True)
class Costs:
    """What the searches say of sending little and of being late, as options of ``deco-sgd``; how far off they are.

    Attributes:
        error: root of the mean square of the logarithms of needed samples beside those that were found.
    """

    ratio_cost: float
    staleness_cost: float
    error: float

    def options(self) -> dict[str, float]:
        """Being late never pays from a cost of 1 on: the rate is then that of a setting that is not late."""
        found = {"ratio_cost": float(f"{self.ratio_cost:.2g}"), "staleness_cost": float(f"{self.staleness_cost:.2g}")}
        return found | ({"most_staleness": 0} if self.staleness_cost >= 1.0 else {})


@dataclass(frozen=True)
class Raced:
    """A fixed setting on a link: seconds of training that it should take to the target."""

    link: str
    setting: DecoSetting
    expected_s: float


@dataclass(frozen=True)
class Row:
    """An arm on a link. ``ratio``: how many times as fast as the best fixed setting there; None for that itself."""

    target: str
    link: str
    arm: str
    time: Estimate
    ratio: Ratio | None
    chosen: list[DecoSetting]

    def to_json(self) -> dict[str, Any]:
        """As plain data; what is infinite is null."""
        time = {key: getattr(self.time, key) for key in ("value", "low", "high", "at_least", "num", "num_censored")}
        time["value"] = None if math.isinf(self.time.value) else self.time.value
        ratio = None
        if self.ratio is not None:
            ratio = {key: getattr(self.ratio, key) for key in ("value", "low", "high", "bound", "num_censored")}
        chosen = [[one.ratio, one.staleness] for one in self.chosen]
        about = {"target": self.target, "link": self.link, "arm": self.arm}
        return about | {"time_s": time, "times_as_fast": ratio, "chosen": chosen}


def copy_traces(source: Path, target: Path) -> None:
    """Put the traces beside the experiment. Raises SystemExit where one is nowhere, or is not the one that is meant."""
    target.mkdir(exist_ok=True)
    for name, sha256 in TRACES.items():
        place, file = target / Path(name).name, source / "traces" / name
        if not place.is_file():
            if not file.is_file():
                raise SystemExit(
                    f"{file}: no such trace; {RACE} says where it comes from (BWBENCH_DATA: the data folder)"
                )
            shutil.copyfile(file, place)
        if hashlib.sha256(place.read_bytes()).hexdigest() != sha256:
            raise SystemExit(f"{place} is not the trace that is meant: its SHA-256 is not {sha256}. Delete it")


def needed_samples(entries: Sequence[TunedEntry]) -> Needed:
    """Samples to the target of each fixed setting, expected at the rate that its search has found."""
    found = {}
    for entry in entries:
        algorithm = row_of(entry).setting["algorithm"]
        if not isinstance(algorithm, dict) or algorithm.get("name") != "deco-sgd" or entry.lr is None:
            continue
        options = DecoSgdConfig.model_validate({key: value for key, value in algorithm.items() if key != "name"})
        samples = entry.expected[0]
        found[options.first] = (float(samples or entry.limit_samples), samples is not None)
    return found


def fit_costs(needed: Needed) -> Costs:
    """The costs by which ``steps_needed`` comes nearest to what was needed, on logarithms.

    A setting that did not arrive says that it needs more, and not how much more. Raises SystemExit where fewer than
    three did.
    """
    if sum(arrived for _, arrived in needed.values()) < 3:
        raise SystemExit("fewer than three settings reached the target while tuning: nothing can be fitted")
    return min((_costs(needed, *pair) for pair in itertools.product(RATIO_COSTS, STALENESS_COSTS)), key=_error)


def _error(costs: Costs) -> float:
    return costs.error


def _costs(needed: Needed, ratio_cost: float, staleness_cost: float) -> Costs:
    """These costs, and how far off they are with the samples that whole gradients, not late, would best need."""
    whole = {
        one: math.log(samples / steps_needed(one, ratio_cost, staleness_cost)) for one, (samples, _) in needed.items()
    }
    mean = statistics.fmean(whole[one] for one, (_, arrived) in needed.items() if arrived)
    off = [whole[one] - mean if arrived else max(0.0, whole[one] - mean) for one, (_, arrived) in needed.items()]
    return Costs(ratio_cost, staleness_cost, math.sqrt(statistics.fmean(one * one for one in off)))


def pace(events: EventsByRank, global_batch: int, samples: float) -> float:
    """Training seconds after so many samples; beyond the end of the run at its mean pace."""
    ends: dict[int, float] = {}
    for step in steps_of_ranks(events):
        ends[step.step] = max(ends.get(step.step, 0.0), step.clock_s)
    clocks, steps = [0.0, *(ends[step] for step in sorted(ends))], samples / global_batch
    if steps >= len(clocks) - 1:
        return clocks[-1] * steps / (len(clocks) - 1)
    before = int(steps)
    return clocks[before] + (steps - before) * (clocks[before + 1] - clocks[before])


def link_of(config: CellConfig) -> str:
    """The trace that drives a link upwards, or its rate and that it has outages."""
    link = config.link
    if link.trace is not None and link.trace.up is not None:
        return Path(link.trace.up.file).stem
    return f"{BANDWIDTH.format(link.bandwidth_bps)}, outages"


def race(cells: Sequence[Cell], results: Path, needed: Needed) -> list[Raced]:
    """How long each setting should take on each link. Raises SystemExit where one has not run."""
    found = []
    for cell in cells:
        folder, setting = CellFolder(results / cell.experiment / cell.folder_name), setting_of(cell)
        if folder.status is None or folder.status.status != "done":
            raise SystemExit(f"{cell.slug} has not run, or not well: 'bwbench status {results}' says why")
        seconds = pace(folder.events(), cell.config.global_batch, needed[setting][0])
        found.append(Raced(link_of(cell.config), setting, seconds))
    return found


def setting_of(cell: Cell) -> DecoSetting:
    """Of a cell that chooses nothing."""
    return DecoSgdConfig.model_validate(cell.config.algorithm.options.model_dump()).first


def best_of(raced: Sequence[Raced]) -> dict[str, Raced]:
    """The fastest setting of each link."""
    found: dict[str, Raced] = {}
    for one in raced:
        if one.link not in found or one.expected_s < found[one.link].expected_s:
            found[one.link] = one
    return found


def best_experiment(base: Mapping[str, Any], best: Sequence[DecoSetting], adaptive: Sequence[Any]) -> dict[str, Any]:
    """The experiment that compares the best setting of each link with adaptive ones.

    Args:
        base: the race, as its file says it.
        best: of each of its links, in their order.
        adaptive: algorithms as they are written.
    """
    links = base["matrix"][LINK]
    rows = []
    for link, setting in zip(links, best, strict=True):
        fixed = {"deco-sgd": {"ratio": setting.ratio, "staleness": setting.staleness}}
        rows += [[*link, algorithm] for algorithm in (fixed, *adaptive)]
    common = {key: value for key, value in base.items() if key not in ("matrix", "tune")}
    return common | {"name": "adaptive", "repeats": REPEATS, "seed": SEED, "matrix": {f"{LINK}, {ALGORITHM}": rows}}


def choose(results: Path, *, default_costs: bool) -> None:
    """Look at searches and race, and write the experiment that is reported."""
    experiment = load_experiment(RACE, RACE_SET)
    (table,) = experiment.tables
    needed = needed_samples(read_table(table).content.entries)
    cells, costs = build_plan(experiment).cells, fit_costs(needed)
    raced = race(cells, results, needed)
    best = best_of(raced)
    for one in raced:
        mark = " *" if best[one.link] == one else ""
        print(f"{one.link}: {one.setting.ratio:g}, {one.setting.staleness} late: {one.expected_s:.1f} s{mark}")
    print(f"costs: {costs.options()}, which are off by {100 * math.expm1(costs.error):.0f} % of the samples")
    links = list(dict.fromkeys(link_of(point.config) for point in experiment.points))  # as the file has them
    adaptive: list[Any] = [{"deco-sgd": costs.options()}, *(["deco-sgd"] if default_costs else [])]
    content = best_experiment(yaml.safe_load(RACE.read_text()), [best[link].setting for link in links], adaptive)
    text = yaml.safe_dump(content, sort_keys=False, width=120, default_flow_style=None)
    BEST.write_text(
        "# Is deco-sgd as fast as the fixed setting that is best on each link? Written by 'benchmarks/adaptive.py\n"
        f"# --choose' from the race of {RACE.name}, whose head says where traces and rates come from, and the cost.\n"
        f"{text}"
    )


def bwbench(*words: str | Path) -> None:
    """Run a command of ours; raises SystemExit with its status where that is not 0."""
    status = subprocess.run([sys.executable, "-m", "bwbench.cli.main", *map(str, words)], check=False).returncode
    if status:
        raise SystemExit(status)


def run(results: Path, *, default_costs: bool) -> None:
    """Everything that is missing, in its order."""
    again = ("--results", results, "--retry", "failed|invalid|timeout")
    copy_traces(data_folder(), FOLDER / "traces")
    bwbench("tune", RACE, "--results", results)
    bwbench("run", RACE, *(word for one in RACE_SET for word in ("--set", one)), *again)
    choose(results, default_costs=default_costs)
    bwbench("run", BEST, *again)


def rows_of(cells: Sequence[Cell], results: Path) -> list[Row]:
    """The table: for each target and link the best fixed setting, then those that adapt, as far as they have run."""
    found: dict[tuple[str, str], list[CellFolder]] = {}
    fixed: dict[str, str] = {}
    for cell in cells:
        folder, link = CellFolder(results / cell.experiment / cell.folder_name), link_of(cell.config)
        if not adapts(cell):
            fixed[link] = cell.arm
        if folder.status is not None and folder.status.status == "done":
            found.setdefault((link, cell.arm), []).append(folder)
    rows = []
    for target in cells[0].config.all_targets:
        arrivals = {
            key: by_seed(map(cell_row, at_target(folders, (target.metric, target.value))))
            for key, folders in found.items()
        }
        for link, best in fixed.items():
            arms = [arm for on, arm in found if on == link and arrivals[on, arm]]
            for arm in sorted(arms, key=lambda arm: arm != best):
                times = arrivals[link, arm]
                ratio = ratio_of(arrivals.get((link, best), {}), times) if arm != best else None
                settings = [one for folder in found[link, arm] for one in chosen_in(folder.events())]
                row = Row(f"{target.metric} {target.value:g}", link, arm, estimate([*times.values()]), ratio, settings)
                rows.append(row)
    return rows


def adapts(cell: Cell) -> bool:
    """Whether a cell chooses anything."""
    return DecoSgdConfig.model_validate(cell.config.algorithm.options.model_dump()).adapts


def chosen_in(events: EventsByRank) -> list[DecoSetting]:
    """What was chosen in each window, the same on all ranks."""
    steps = [step for step in steps_of_ranks(events) if step.chosen is not None]
    return [DecoSetting(one.ratio, one.staleness) for step in steps if (one := step.chosen) is not None]


def shown(row: Row) -> str:
    """One line of the table."""
    time, ratio = row.time, row.ratio
    if math.isinf(time.value):
        seconds = f"more than {time.at_least:.1f}"
    else:
        seconds = f"{time.value:.1f}" + ("" if time.low is None else f" ({time.low:.1f} to {time.high:.1f})")
    times_as_fast = "-"
    if ratio is not None:
        ends = "" if ratio.low is None else f" ({ratio.low:.2f} to {ratio.high:.2f})"
        times_as_fast = f"{ratio.bound}{ratio.value:.2f}{ends}"
    settings = "-"
    if row.chosen:
        low, middle, high = (100 * one for one in _quartiles([one.ratio for one in row.chosen]))
        late = statistics.fmean(one.staleness for one in row.chosen)
        settings = f"{low:.2g} to {high:.2g} %, {middle:.2g} in the middle; {late:.1f} late on average"
    columns = (row.target, row.link, f"`{row.arm}`", f"{time.num}", seconds, times_as_fast, settings)
    return "| " + " | ".join(columns) + " |"


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    low, middle, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.25, 0.5, 0.75))
    return low, middle, high


def main() -> int:
    """Make what is asked, and print the table; exit status 1 where there is nothing to print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--run", action="store_true", help="make everything that is missing, then print the table")
    what.add_argument("--choose", action="store_true", help="write adaptive-best.yaml by searches and race")
    parser.add_argument("--default-costs", action="store_true", help="beside them an adaptive arm with default costs")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        if options.run:
            run(options.results, default_costs=options.default_costs)
        elif options.choose:
            choose(options.results, default_costs=options.default_costs)
            return 0
        rows = rows_of(build_plan(load_experiment(BEST)).cells, options.results) if BEST.is_file() else []
    except BwbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not rows:
        print(f"nothing of it has been trained below {options.results}; --run does it", file=sys.stderr)
        return 1
    print("| target | link | arm | seeds | seconds to it | times as fast as the best fixed one | ratios chosen |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(shown(row))
    if options.json:
        options.json.write_text(json.dumps({"experiment": "adaptive", "rows": [row.to_json() for row in rows]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
