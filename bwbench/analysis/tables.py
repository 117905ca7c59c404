"""Records as pandas tables: cells, curves, ledgers, and the time to accuracy of each arm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bwbench.analysis.arrival import Arrival, by_seed, number
from bwbench.analysis.cells import cell_row
from bwbench.analysis.ledger import PARTS, LedgerSummary, summarise_ledger
from bwbench.analysis.statistics import Ratio, estimate, paired_ratio
from bwbench.analysis.trial import curve_of
from bwbench.records import CellFolder

CURVE_COLUMNS = ("id", "arm", "seed", "repeat", "bandwidth_bps", "step", "samples", "clock_s")
TIME_COLUMNS = (
    "arm", "bandwidth_bps", "num", "num_censored", "kind", "time_s", "low_s", "high_s", "at_least_s",
    "speedup", "speedup_low", "speedup_high", "speedup_bound", "speedup_num", "num_composed",
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What the tables need of one cell's event files.

    Attributes:
        curve: a row for each validation evaluation: step, samples, clock_s (largest over ranks), one column a metric
            (mean over ranks).
        ledger: summary of its steps; None where none was recorded.
    """

    curve: list[dict[str, Any]]
    ledger: LedgerSummary | None


@dataclass(frozen=True)
class Reader:
    """Reads a cell's event files once, however many tables and pictures show it; of a composed cell what stands for
    them: the composed curve, and the ledger of the timing run."""

    _readings: dict[Path, Reading] = field(default_factory=dict)

    def read(self, folder: CellFolder) -> Reading:
        """Curve and ledger of the cell's last attempt."""
        if folder.path not in self._readings and folder.composed is not None:
            ledger = folder.composed.get("ledger")
            curve = [dict(point) for point in folder.composed.get("curve") or []]
            self._readings[folder.path] = Reading(curve, LedgerSummary(**ledger) if ledger else None)
        if folder.path not in self._readings:
            events = {rank: folder.events(rank) for rank in folder.ranks}
            self._readings[folder.path] = Reading(curve_of(events), summarise_ledger(events))
        return self._readings[folder.path]


def cells_table(folders: Iterable[CellFolder]) -> pd.DataFrame:
    """One row a cell: identity, setting, outcome. Reads cell.json and status.json only."""
    return pd.DataFrame([cell_row(folder) for folder in folders])


def curves_table(folders: Iterable[CellFolder], reader: Reader) -> pd.DataFrame:
    """One row a validation evaluation: CURVE_COLUMNS and a column for each metric."""
    rows = []
    for folder in folders:
        about = {key: value for key, value in cell_row(folder).items() if key in CURVE_COLUMNS[:5]}
        rows += [{**about, **point} for point in reader.read(folder).curve]
    return pd.DataFrame(rows, columns=None if rows else list(CURVE_COLUMNS))


def ledger_table(folders: Iterable[CellFolder], reader: Reader) -> pd.DataFrame:
    """One row a cell: mean seconds a step of each part (they add up to ``step_s``), medians as ``median_<part>``."""
    rows = []
    for folder in folders:
        ledger = reader.read(folder).ledger
        if ledger is None:
            continue
        about = cell_row(folder)
        row: dict[str, Any] = {
            key: about[key] for key in ("id", "arm", "seed", "repeat", "bandwidth_bps", "global_batch", "composed")
        }
        row |= {part: ledger.mean_s[part] for part in PARTS}
        row |= {f"median_{part}": ledger.median_s[part] for part in PARTS}
        row |= {"step_s": ledger.step_mean_s, "median_step_s": ledger.step_median_s, "num_steps": ledger.num_steps}
        row |= {"peers_known": ledger.peers_known, "peers_reason": ledger.peers_reason, "estimated": ledger.estimated}
        rows.append(row | {"additivity_error": ledger.additivity_error, "adds_up": ledger.adds_up})
    return pd.DataFrame(rows)


def time_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Time to accuracy of each arm at each bandwidth, with speed-up against ``single`` paired by seed.

    Args:
        cells: rows of ``cells_table`` that are done and have a target; all of one group (equal but for arm, repeat
            and bandwidth).

    Returns:
        TIME_COLUMNS, fastest first at each bandwidth. ``time_s`` is infinite where the median repeat is censored;
        ``at_least_s`` is then the limit that it exceeds. ``low_s``/``high_s``: 95 %, NaN where there is none.
    """
    single = arrivals_by_seed(cells[cells["algorithm"] == "single"]) if len(cells) else {}
    rows = []
    for arm, bandwidth, part in _by_arm_and_bandwidth(cells):
        arrivals = arrivals_by_seed(part)
        if not arrivals:
            continue
        centre = estimate(list(arrivals.values()))
        row: dict[str, Any] = {"arm": arm, "bandwidth_bps": bandwidth, "num": centre.num, "kind": centre.kind}
        row |= {"num_censored": centre.num_censored, "time_s": centre.value, "low_s": centre.low, "high_s": centre.high}
        row |= {"num_composed": sum(map(bool, part["composed"])) if "composed" in part else 0}
        row |= {"at_least_s": centre.at_least, **_speedup(paired_ratio(single, arrivals))}
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(TIME_COLUMNS))
    numbers = [column for column in TIME_COLUMNS if column not in ("arm", "kind", "speedup_bound")]
    table[numbers] = table[numbers].astype(float)
    return table.sort_values(["bandwidth_bps", "time_s", "at_least_s", "arm"], kind="stable").reset_index(drop=True)


def arrivals_by_seed(cells: pd.DataFrame) -> dict[int, Arrival]:
    """Each seed's time to the target, or the limit it is censored at. Cells without either are left out."""
    return by_seed({str(name): value for name, value in row.items()} for row in cells.to_dict("records"))


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
        grid_s = min(arrival.grid_s for arrival in alike)
        share = max(arrival.timing_share for arrival in alike)
        reached = centre.value < float("inf")
        found[seed] = Arrival(centre.value, None, grid_s, share) if reached else Arrival(None, centre.at_least)
    return found


def _by_arm_and_bandwidth(cells: pd.DataFrame) -> Iterable[tuple[str, float | None, pd.DataFrame]]:
    if cells.empty:
        return
    for (arm, bandwidth), part in cells.groupby(["arm", "bandwidth_bps"], dropna=False, sort=True):
        yield str(arm), number(bandwidth), part


def _speedup(ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {"speedup": None, "speedup_low": None, "speedup_high": None, "speedup_bound": "", "speedup_num": 0}
    return {
        "speedup": ratio.value,
        "speedup_low": ratio.low,
        "speedup_high": ratio.high,
        "speedup_bound": ratio.bound,
        "speedup_num": ratio.num,
    }
