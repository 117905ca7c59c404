"""How far links were from what was asked: every measurement of every cell, before and after its training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bwbench.records import CellFolder
from bwbench.results.analysis.arrival import number
from bwbench.results.analysis.cells import setting_of

BEFORE, AFTER = "before", "after"
_COLUMNS = ["id", "arm", "bandwidth_bps", "when", "src", "dst", "over_tcp", "tolerance", "goodput_error", "rtt_error",
            "rtt_off_s"]  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """Sizes of relative errors: median, 95th percentile, largest; and of how many measurements."""

    median: float
    p95: float
    worst: float
    num: int


def link_errors(folders: Iterable[CellFolder]) -> pd.DataFrame:
    """One row a pair of nodes and measurement; errors are achieved over asked, less 1.

    Composed cells of one timing run share its link, which counts once. Where nothing was measured there is no row.

    Returns:
        id (of the first such cell), arm, bandwidth_bps, when (``before``, ``after``), src, dst, over_tcp (between the
        processes of real hosts; else by paced UDP), tolerance, goodput_error, rtt_error, rtt_off_s (seconds that a
        round trip took longer).
    """
    return pd.DataFrame(_rows(folders), columns=_COLUMNS)


def spread_of(errors: pd.Series) -> Spread | None:
    """Of the sizes of these errors; None without any."""
    sizes = errors.dropna().astype(float).abs()
    if sizes.empty:
        return None
    return Spread(float(sizes.median()), float(sizes.quantile(0.95)), float(sizes.max()), len(sizes))


def _rows(folders: Iterable[CellFolder]) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for folder in folders:
        link, config = folder.link or {}, folder.cell["config"]
        run = str(((folder.status or {}).get("composed") or {}).get("timing") or folder.cell["id"])
        if run in seen:
            continue
        seen.add(run)
        for when in (BEFORE, AFTER):
            measured = link.get(f"achieved_{when}") or {}
            about = {"id": folder.cell["id"], "arm": folder.cell["arm"], "when": when,
                     "bandwidth_bps": setting_of(config).bandwidth_bps,
                     "over_tcp": "tcp" in str(measured.get("method", "")),
                     "tolerance": number(measured.get("tolerance"))}  # fmt: skip
            for pair in measured.get("pairs") or []:
                asked_s, achieved_s = number(pair.get("asked_rtt_s")), number(pair.get("achieved_rtt_s"))
                yield {
                    **about, "src": pair.get("src"), "dst": pair.get("dst"),
                    "goodput_error": _error(pair.get("achieved_goodput_bps"), pair.get("asked_goodput_bps")),
                    "rtt_error": _error(achieved_s, asked_s),
                    "rtt_off_s": None if asked_s is None or achieved_s is None else achieved_s - asked_s,
                }  # fmt: skip


def _error(achieved: Any, asked: Any) -> float | None:
    achieved_number, asked_number = number(achieved), number(asked)
    return None if achieved_number is None or not asked_number else achieved_number / asked_number - 1
