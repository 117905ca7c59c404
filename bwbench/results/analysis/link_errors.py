"""How far links were from what was asked: every measurement of every cell, before and after its training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from bwbench.records import CellFolder
from bwbench.results.analysis.cells import Row, setting_of

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


def _rows(folders: Iterable[CellFolder]) -> Iterator[Row]:
    seen: set[str] = set()
    for folder in folders:
        composed = folder.status.composed if folder.status is not None else None
        run = composed.timing if composed is not None else folder.cell.id
        if run in seen:
            continue
        seen.add(run)
        link = folder.link
        for when in (BEFORE, AFTER):
            measured = (link.achieved_before if when == BEFORE else link.achieved_after) if link is not None else None
            if measured is None:
                continue
            about = {"id": folder.cell.id, "arm": folder.cell.arm, "when": when,
                     "bandwidth_bps": setting_of(folder.cell.config).bandwidth_bps,
                     "over_tcp": "tcp" in (measured.method or ""), "tolerance": measured.tolerance}  # fmt: skip
            for pair in measured.pairs:
                asked_s, achieved_s = pair.asked_rtt_s, pair.achieved_rtt_s
                yield {
                    **about, "src": pair.src, "dst": pair.dst,
                    "goodput_error": _error(pair.achieved_goodput_bps, pair.asked_goodput_bps),
                    "rtt_error": _error(achieved_s, asked_s),
                    "rtt_off_s": None if asked_s is None or achieved_s is None else achieved_s - asked_s,
                }  # fmt: skip


def _error(achieved: float | None, asked: float | None) -> float | None:
    return None if achieved is None or not asked else achieved / asked - 1
