"""How much faster several nodes are than one of them alone, over numbers of nodes, batches and bandwidths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from bwbench.methods.roles import REFERENCE
from bwbench.results.analysis.arrival import Arrival
from bwbench.results.analysis.once import once
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.scale import scale_of
from bwbench.results.analysis.statistics import paired_ratio
from bwbench.results.analysis.tables import arrivals_by_seed

OF_A_NODE = ("batch_size", "accumulate", "step_time_s")  # what makes one node alone the same machine at the same work
_BY = ("arm", "nodes", "bandwidth_bps", *OF_A_NODE)


@once
def speedup_table(results: Results) -> pd.DataFrame:
    """One row an arm, number of nodes, bandwidth and batch: its speed-up over ``single``, paired by seed.

    One node alone has the same batch and the same declared step; where there is only one kind of it, that one stands
    for all. Rows without any such reference, or where censoring leaves nothing to say, are left out.

    Returns:
        arm, nodes, bandwidth_bps, batch_size, accumulate, step_time_s, global_batch; ``speedup`` with ``low``, ``high``
        (NaN where there is none), ``bound`` (``<``, ``>``: it is less, more than that), ``num``, ``num_censored``;
        ``load``: S/(B·T), how long the gradient takes on the link in steps of computing, NaN where it is not known.
    """
    cells = results.cells
    rows: list[dict[str, Any]] = []
    alone = {values: arrivals_by_seed(part) for values, part in _parts(_of(cells, alone=True), OF_A_NODE)}
    for values, part in _parts(_of(cells, alone=False), _BY):
        reference = _reference(alone, values[-len(OF_A_NODE) :])
        ratio = paired_ratio(reference, arrivals_by_seed(part)) if reference else None
        if ratio is None:
            continue
        row: dict[str, Any] = dict(zip(_BY, values, strict=True))
        row |= {"global_batch": int(part["global_batch"].iloc[0]), "speedup": ratio.value, "bound": ratio.bound}
        row |= {"low": ratio.low, "high": ratio.high, "num": ratio.num, "num_censored": ratio.num_censored}
        row |= {"num_composed": int(part["composed"].sum()), "load": _load(results, part)}
        rows.append(row)
    columns = [*_BY, "global_batch", "speedup", "bound", "low", "high", "num", "num_censored", "num_composed", "load"]
    table = pd.DataFrame(rows, columns=columns)
    numbers = [column for column in columns if column not in ("arm", "bound")]
    table[numbers] = table[numbers].astype(float)
    return table


def _of(cells: pd.DataFrame, *, alone: bool) -> pd.DataFrame:
    return cells[(cells["role"] == REFERENCE) == alone] if len(cells) else cells


def _parts(chosen: pd.DataFrame, by: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    if len(chosen):
        for values, part in chosen.groupby(list(by), dropna=False, sort=True):
            yield tuple(None if isinstance(value, float) and math.isnan(value) else value for value in values), part


def _reference(alone: dict[tuple[Any, ...], dict[int, Arrival]], node: tuple[Any, ...]) -> dict[int, Arrival] | None:
    if node in alone:
        return alone[node]
    return next(iter(alone.values())) if len(alone) == 1 else None


def _load(results: Results, part: pd.DataFrame) -> float:
    wanted = set(part["id"])
    scale = scale_of([folder for folder in results.done if folder.cell.id in wanted])
    bandwidth = part["bandwidth_bps"].iloc[0]
    load = scale.at(None if pd.isna(bandwidth) else float(bandwidth))
    return math.nan if load is None else load
