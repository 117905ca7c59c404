"""What experiments have cost, as plain tables: ``bwbench status DIR --spent``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bwbench.cli.plain_table import plain_table

_KINDS = {"whole": "whole runs", "convergence": "convergence", "timing": "timing", "tuning": "tuning"}


def spent_text(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines, from ``Spent.to_json`` of every experiment and of all together."""
    yield "machine hours (wall time of the last attempt at every run; of 'all', shared runs count once)"
    columns = ["experiment", "hours", *_KINDS.values()]
    table = []
    for row in rows:
        each = [
            f"{row['machine_s_by_kind'][kind] / 3600:.2f} ({row['num_runs'][kind]})" if row["num_runs"][kind] else "-"
            for kind in _KINDS
        ]
        table.append([row["experiment"], f"{row['machine_s'] / 3600:.2f}", *each])
    yield from plain_table(columns, table, right=set(columns[1:]))
    yield ""
    yield "cells; error of composed times against whole runs; error of links, achieved against asked"
    columns = ["experiment", "done", "composed", "whole", "both ways", "error", "at most", "in interval",
               "links", "goodput", "95 %", "worst", "RTT", "95 % ", "worst "]  # fmt: skip
    table = []
    for row in rows:
        off, goodput, rtt = row["composed_error"], row["goodput_error"], row["rtt_error"]
        share = "-" if row["whole_share"] is None else f"{row['whole']} ({100 * row['whole_share']:.0f} %)"
        inside = f"{off['inside']} of {off['with_interval']}" if off["with_interval"] else "-"
        counts = [f"{row['done']} of {row['cells']}", str(row["composed"]), share, str(off["num"])]
        errors = [_percent(off["median"]), _percent(off["worst"]), inside, str(row["links"])]
        links = [_percent(spread[key]) for spread in (goodput, rtt) for key in ("median", "p95", "worst")]
        table.append([row["experiment"], *counts, *errors, *links])
    yield from plain_table(columns, table, right=set(columns[1:]))
    if unknown := sum(row["num_unknown_runs"] for row in rows[:1]):
        yield f"{unknown} runs that cells were composed from are not in the records: their time is not counted"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2g} %"
