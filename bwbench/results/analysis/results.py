"""What one picture shows: the cells of one group, their tables, and what a reader must know about them.

Records become pandas tables here: cells, curves, ledgers, and the time to accuracy of each arm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from bwbench.base.errors import RecordError
from bwbench.methods.roles import LIMITS, REFERENCE, as_role
from bwbench.records import CellFolder, iter_cells, readable
from bwbench.records.schema import PARTS, Digest
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.analysis.cell_arrival import CURVE, arrival_notes
from bwbench.results.analysis.cells import DONE, Row, cell_row, is_virtual, left_out_notes, standing_of, state_of
from bwbench.results.analysis.grouping import BANDWIDTH_KEY, Group, group_cells
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.notes import notes_on
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import COLUMNS, Arrival, Estimate, by_seed, estimate, number
from bwbench.results.analysis.trial import digest_of

CURVE_COLUMNS = ("id", "arm", "seed", "repeat", "bandwidth_bps", "step", "samples", "clock_s", "payload_bytes")
TIME_COLUMNS = (
    "arm", "bandwidth_bps", "num", "num_censored", "kind", "time_s", "low_s", "high_s", "at_least_s",
    "speedup", "speedup_low", "speedup_high", "speedup_bound", "speedup_num", "num_composed", "num_host_bound",
)  # fmt: skip
_NO_TIMES = dict.fromkeys(
    ("time_to_target_s", "censored_at_s", "first_crossing_s", "training_clock_s", "steps_clock_s")
)
OF_PAYLOAD, OF_STEPS = "payload", "steps"  # where bytes at an evaluation are from
ENDS = ("value", "low", "high", "at_least")  # of an estimate
# Columns of ``cells_table`` that tell the values of a compared setting apart (the bandwidth always does).
COMPARED_COLUMNS = {
    "link.latency": "rtt_s",
    "link.medium": "medium",
    "nodes": "nodes",
    "batch_size": "batch_size",
    "accumulate": "accumulate",
}


@dataclass(frozen=True)
class Reader:
    """Reads a cell's event files once, however many tables and pictures show it; of a composed or published
    cell what stands for them: a curve and a ledger, of a composed one that of the timing run."""

    _digests: dict[Path, Digest] = field(default_factory=dict)

    def read(self, folder: CellFolder) -> Digest:
        """Curve and ledger of the cell's last attempt."""
        if folder.path not in self._digests:
            self._digests[folder.path] = folder.digest or digest_of(folder.events(), folder.link)
            folder.made.setdefault(CURVE, self._digests[folder.path].curve)
        return self._digests[folder.path]

    def forget(self, folder: CellFolder) -> None:
        """Read the cell anew when it is asked for next: it has trained on."""
        self._digests.pop(folder.path, None)


def cells_table(folders: Iterable[CellFolder], own: OwnSteps | None = None) -> pd.DataFrame:
    """One row a cell: identity, setting, outcome, and whether the host bounds it. Reads no events.

    Of cells of virtual nodes without times, which say nothing: what is drawn or averaged of times does without them.

    Args:
        own: what steps take without communication, where more cells than these tell.
    """
    cells = list(folders)
    own = own or OwnSteps.of(cells)
    rows = [(cell_row(folder) | own.row(folder), is_virtual(folder)) for folder in cells]
    return pd.DataFrame([row | {"virtual": virtual, **(_NO_TIMES if virtual else {})} for row, virtual in rows])


def curves_table(folders: Iterable[CellFolder], reader: Reader) -> pd.DataFrame:
    """One row a validation evaluation: CURVE_COLUMNS and a column for each metric."""
    rows = []
    for folder in folders:
        about = {key: value for key, value in cell_row(folder).items() if key in CURVE_COLUMNS[:5]}
        rows += [{**about, **point.to_json()} for point in reader.read(folder).curve]
    return pd.DataFrame(rows, columns=None if rows else list(CURVE_COLUMNS))


def ledger_table(folders: Iterable[CellFolder], reader: Reader) -> pd.DataFrame:
    """One row a cell: mean seconds a step of each part (they add up to ``step_s``), medians as ``median_<part>``."""
    rows = []
    for folder in folders:
        ledger = reader.read(folder).ledger
        if ledger is None:
            continue
        about = cell_row(folder)
        row: Row = {
            key: about[key] for key in ("id", "arm", "seed", "repeat", "bandwidth_bps", "global_batch", "composed")
        }
        row |= {part: ledger.mean_s[part] for part in PARTS}
        row |= {f"median_{part}": ledger.median_s[part] for part in PARTS}
        row |= {"step_s": ledger.step_mean_s, "median_step_s": ledger.step_median_s, "num_steps": ledger.num_steps}
        row |= {"peers_known": ledger.peers_known, "peers_reason": ledger.peers_reason, "estimated": ledger.estimated}
        rows.append(row | {"additivity_error": ledger.additivity_error, "adds_up": ledger.adds_up})
    return pd.DataFrame(rows)


def time_table(cells: pd.DataFrame, compares: Collection[str] = ()) -> pd.DataFrame:
    """Time to accuracy of each arm at each bandwidth, with speed-up against ``single``.

    Args:
        cells: rows of ``cells_table`` that are done and have a target; all of one group.
        compares: flat names of the settings, besides arm and repeat, in which these cells may differ. Those of
            COMPARED_COLUMNS get a row for each of their values, and a column. One node alone is paired with cells of
            its own batch.

    Returns:
        TIME_COLUMNS and those of ``compares``, fastest first at each bandwidth. ``time_s`` is infinite where fewer than
        half arrive; ``at_least_s`` is then the limit that it exceeds. ``low_s``/``high_s``: 95 %, NaN where
        there is none.
    """
    by = [column for name, column in COMPARED_COLUMNS.items() if name in compares]
    single = cells[cells["role"] == REFERENCE] if len(cells) else cells
    rows = []
    columns = ["arm", "bandwidth_bps", *by]
    for values, part in () if cells.empty else cells.groupby(columns, dropna=False, sort=True):
        known = [value if isinstance(value, str) else number(value) for value in values]
        where: Row = dict(zip(columns, known, strict=True))  # None where a number is missing
        arrivals = arrivals_by_seed(part)
        if not arrivals:
            continue
        centre = estimate(list(arrivals.values()))
        row: Row = {**where, "num": centre.num, "kind": centre.kind}
        row |= {"num_censored": centre.num_censored, "time_s": centre.value, "low_s": centre.low, "high_s": centre.high}
        for name in ("composed", "host_bound"):
            row[f"num_{name}"] = sum(value is True for value in part[name]) if name in part else 0
        alone = single  # with the batch and accumulation of the cells that it is compared with
        for column in {"batch_size", "accumulate"} & where.keys():
            alone = alone[alone[column] == where[column]]
        ratio = ratio_of(arrivals_by_seed(alone), arrivals) or Ratio(math.nan, None, None, 0)
        row |= {"at_least_s": centre.at_least, "speedup": ratio.value, "speedup_low": ratio.low}
        row |= {"speedup_high": ratio.high, "speedup_bound": ratio.bound, "speedup_num": ratio.num}
        rows.append(row)
    table = pd.DataFrame(rows, columns=[*TIME_COLUMNS, *by])
    numbers = [column for column in table.columns if column not in ("arm", "kind", "speedup_bound", "medium")]
    table[numbers] = table[numbers].astype(float)
    order = ["bandwidth_bps", *by, "time_s", "at_least_s", "arm"]
    return table.sort_values(order, kind="stable").reset_index(drop=True)


def arrivals_by_seed(cells: pd.DataFrame) -> dict[int, Arrival]:
    """Each seed's time to the target, or the limit it is censored at. Cells without either are left out."""
    known = [name for name in COLUMNS if name in cells]
    # A whole table as dicts would take most of the time that drawing takes.
    return by_seed(dict(zip(known, row, strict=True)) for row in zip(*(cells[name] for name in known), strict=True))


def samples_by_seed(cells: pd.DataFrame) -> dict[int, Arrival]:
    """Each seed's samples to the target, in the place of seconds: known up to the interval between evaluations, or at
    least those that were taken where it did not arrive."""
    found: dict[int, Arrival] = {}
    for row in cells.drop_duplicates("seed").to_dict("records"):
        needed, given = number(row["samples_to_target"]), number(row["samples"])
        if needed is not None:
            grid = max(number(row["evaluate_every_samples"]) or 0.0, float(row["global_batch"]))
            found[int(row["seed"])] = Arrival(needed, None, min(grid, needed))
        elif given and row["target_metric"] and (row["virtual"] or number(row["censored_at_s"]) is not None):
            found[int(row["seed"])] = Arrival(None, given)
    return found


def arrivals_over_bandwidths(cells: pd.DataFrame) -> dict[int, Arrival]:
    """Each seed's time for an arm that no link concerns, although it may have run at several bandwidths.

    Runs of one seed are then the same run but for noise: their geometric mean stands for them, so that they do not
    count as repeats.
    """
    by_bandwidth = [arrivals_by_seed(part) for _, part in cells.groupby("bandwidth_bps", dropna=False)]
    found: dict[int, Arrival] = {}
    for seed in sorted({seed for arrivals in by_bandwidth for seed in arrivals}):
        alike = [arrivals[seed] for arrivals in by_bandwidth if seed in arrivals]
        centre = estimate(alike)
        worst = max(alike, key=lambda arrival: arrival.timing_variance)
        if math.isinf(centre.value):
            found[seed] = replace(worst, time_s=None, censored_at_s=centre.at_least, grid_s=0.0)
            continue
        grid_s = min(arrival.grid_s for arrival in alike)
        found[seed] = replace(worst, time_s=centre.value, censored_at_s=None, grid_s=grid_s)
    return found


def with_wire_bytes(curves: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The evaluations with two columns more: ``wire_bytes`` that all nodes sent until then, and where they are from.

    The wire was counted over the whole run. At an evaluation it is that count by the share of the payload that was
    sent until then (``bytes_from`` is ``payload``); where records do not hold that, by the share of the steps
    (``steps``), as if every step sent the same. NaN where nothing was counted.

    Args:
        curves: rows of ``curves_table``.
        cells: rows of ``cells_table``, of the same cells.
    """
    totals = cells[["id", "wire_bytes", "payload_bytes", "steps"]].drop_duplicates("id")
    totals = totals.rename(columns={"wire_bytes": "whole_wire", "payload_bytes": "whole_payload"})
    joined = curves.merge(totals.rename(columns={"steps": "whole_steps"}), on="id", how="left", validate="many_to_one")
    numbers = joined[["whole_wire", "whole_payload", "whole_steps"]].apply(pd.to_numeric)
    payload = (
        pd.to_numeric(joined["payload_bytes"]) if "payload_bytes" in joined else pd.Series(float("nan"), joined.index)
    )
    recorded = payload.notna().to_numpy() & (numbers["whole_payload"] > 0).to_numpy()
    by_payload = (payload / numbers["whole_payload"]).clip(upper=1.0)
    share = by_payload.where(recorded, joined["step"] / numbers["whole_steps"])
    sent = joined.drop(columns=["whole_wire", "whole_payload", "whole_steps"])
    sent["wire_bytes"] = numbers["whole_wire"] * share
    sent["bytes_from"] = [OF_PAYLOAD if known else OF_STEPS for known in recorded]
    return sent


def ends_of(what: str, centre: Estimate | None) -> Row:
    """Columns ``what_value``, ``_low``, ``_high`` and ``_at_least`` of an estimate; NaN where there is none."""
    return {f"{what}_{end}": math.nan if centre is None else getattr(centre, end) for end in ENDS}


@dataclass(frozen=True)
class Results:
    """Cells that are compared with each other. Tables are made when asked for.

    Attributes:
        experiment: name of the experiment.
        group: all its cells, drawn or not.
        own: what steps take without communication: a step is the same on links where no cell of the group tells it.
        called: what arms are called, where more of an experiment have to be told apart than are among these cells.
    """

    experiment: str
    group: Group
    own: OwnSteps
    reader: Reader = field(default_factory=Reader, repr=False)
    called: Mapping[str, str] | None = None
    made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # see ``once``

    @property
    def label(self) -> str:
        """For file names: what tells this group from the others; empty where there is one alone."""
        return self.group.label

    @property
    def folders(self) -> tuple[CellFolder, ...]:
        """All cells of the group, drawn or not."""
        return self.group.folders

    @cached_property
    def done(self) -> list[CellFolder]:
        """The cells that figures draw."""
        return [folder for folder in self.folders if state_of(folder) == DONE]

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Table of the cells that are done."""
        return cells_table(self.done, self.own)

    @cached_property
    def roles(self) -> dict[str, str]:
        """What each arm of the cells that are done is in a comparison."""
        return {folder.cell.arm: standing_of(folder.cell).role for folder in self.done}

    @cached_property
    def labels(self) -> dict[str, str]:
        """What each of them is called where people read: ``arm_labels``."""
        return arm_labels(folder.cell for folder in self.done) if self.called is None else dict(self.called)

    @cached_property
    def limits(self) -> list[str]:
        """The arms that draw the frame for methods: one node alone, then averages that cost nothing."""
        return sorted((arm for arm, role in self.roles.items() if role in LIMITS),
                      key=lambda arm: (LIMITS.index(as_role(self.roles[arm])), arm))  # fmt: skip

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Table of their validation evaluations."""
        return curves_table(self.done, self.reader)

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """Table of where the time of their steps goes; without those of virtual nodes, whose times say nothing."""
        return ledger_table((folder for folder in self.done if not is_virtual(folder)), self.reader)

    @cached_property
    def times(self) -> pd.DataFrame:
        """Table of time to accuracy by arm, bandwidth and whatever else the group compares."""
        return time_table(self.cells, self.group.compares)

    @cached_property
    def has_times(self) -> bool:
        """Whether ``times`` has a row: one cell has a time to its target, or a limit that it exceeds."""
        return bool(len(self.cells)) and bool(arrivals_by_seed(self.cells))

    @property
    def bandwidths(self) -> list[float | None]:
        """Bandwidths in bit/s that done cells ran at; None is an unshaped link."""
        return replace(self.group, folders=tuple(self.done)).bandwidths

    @cached_property
    def notes(self) -> list[str]:
        """What must stand under the picture: cells left out or composed, hosts or commits that are mixed."""
        about_all = notes_on(self.done, self.cells.to_dict("records"))
        return [*left_out_notes(self.folders), *arrival_notes(self.done), *about_all]


def load_results(folder: Path) -> list[Results]:
    """Every group of every experiment under ``folder``: ``results/``, one experiment in it, or one cell.

    Cells that cannot be read are left out; ``read_cells`` says which.

    Raises RecordError where the folder does not exist.
    """
    reader = Reader()
    return results_of(read_cells(iter_cells(folder), reader)[0], reader)


def read_cells(cells: Iterable[CellFolder], reader: Reader) -> tuple[list[CellFolder], list[RecordError]]:
    """Those of ``cells`` all whose records can be read, and why each of the others is left out.

    Args:
        reader: keeps what the cells' events come to, so that no picture meets a broken one.
    """
    good, refused = readable(cells)
    whole = []
    for cell in good:
        try:
            reader.read(cell)
            whole.append(cell)
        except RecordError as error:
            refused.append(error)
    return whole, refused


def results_of(cells: Iterable[CellFolder], reader: Reader) -> list[Results]:
    """Every group of every experiment that ``cells`` are of."""
    ordered = sorted(cells, key=lambda cell: cell.cell.experiment)
    across = frozenset({BANDWIDTH_KEY})
    by_name = groupby(ordered, lambda cell: cell.cell.experiment)
    return [one for name, of_one in by_name for one in _grouped(name, of_one, across, reader)]


def by_experiment(results: Iterable[Results]) -> dict[str, list[Results]]:
    """The groups of each experiment, in their order."""
    found: dict[str, list[Results]] = {}
    for group in results:
        found.setdefault(group.experiment, []).append(group)
    return found


def regrouped(results: Sequence[Results], compares: frozenset[str]) -> list[Results]:
    """The same cells in other groups: each spans the settings ``compares``, besides arms and repeats.

    Args:
        compares: flat names of settings, as in ``figures.base.AbstractFigure.compares``.
    """
    regrouped = []
    for experiment, groups in by_experiment(results).items():
        cells = {folder.path: folder for group in groups for folder in group.folders}  # single is in several groups
        regrouped += _grouped(experiment, cells.values(), compares, groups[0].reader)
    return regrouped


def _grouped(experiment: str, cells: Iterable[CellFolder], compares: frozenset[str], reader: Reader) -> list[Results]:
    everything = list(cells)
    own = OwnSteps.of(everything)
    return [Results(experiment, group, own, reader) for group in group_cells(everything, compares)]


Made = TypeVar("Made")


def once(make: Callable[[Results], Made]) -> Callable[[Results], Made]:
    """``make``, which each group of cells remembers the value of; callers share it and leave it as it is."""

    @wraps(make)
    def remembered(results: Results) -> Made:
        if make not in results.made:
            results.made[make] = make(results)
        value: Made = results.made[make]
        return value

    return remembered
