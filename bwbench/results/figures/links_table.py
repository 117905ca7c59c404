"""The numbers of the picture that compares links: time to the target of each arm on each of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from bwbench.results.analysis.arrival import Arrival
from bwbench.results.analysis.cells import describe_link
from bwbench.results.analysis.once import once
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.statistics import estimate
from bwbench.results.analysis.tables import arrivals_by_seed, arrivals_over_bandwidths
from bwbench.results.figures.link_names import Asked, LinkName, name_links

_NUMBERS = ["time_s", "low_s", "high_s", "at_least_s"]
_COLUMNS = ["link", "words", "arm", "num", "num_censored", "num_composed", *_NUMBERS]


@once
def links_table(results: Results) -> pd.DataFrame:
    """One row an arm and link, fastest link and arm first; last, one row for each arm that no link concerns.

    Returns:
        link (its name; empty for an arm that no link concerns) and words (all that it was asked to be); arm; num,
        num_censored, num_composed of its repeats; in seconds time_s (infinite where the median repeat did not reach
        the target), low_s and high_s (95 %, NaN where there is none), at_least_s (the limit that an infinite time
        exceeds, else the time).
    """
    asked = {str(folder.cell.id): _asked(folder.cell.config) for folder in results.done}
    cells = results.cells.assign(asked=results.cells["id"].map(asked))
    names = dict(zip(_keys(results), name_links(asked_links(results)), strict=True))
    rows: list[dict[str, Any]] = []
    for (link, arm), part in cells[~cells["arm"].isin(results.limits)].groupby(["asked", "arm"], sort=True):
        row = {"link": names[str(link)].name, "words": describe_link(json.loads(str(link)))}
        rows.append(row | _time(str(arm), part, arrivals_by_seed(part)))
    for limit in results.limits:
        part = cells[cells["arm"] == limit]
        # Beside every link it does the same but for noise, as it does at every bandwidth.
        arrivals = arrivals_over_bandwidths(part.assign(bandwidth_bps=part["asked"]))
        rows.append({"link": "", "words": "", **_time(limit, part, arrivals)})
    table = pd.DataFrame([row for row in rows if row["num"]], columns=_COLUMNS)
    table[_NUMBERS] = table[_NUMBERS].astype(float)
    linked = table[table["link"] != ""]
    order = [*ranked(linked, "link", "arm"), *ranked(linked, "arm", "link"), "", *results.limits]
    return table.sort_values(["link", "arm"], key=lambda column: column.map(order.index)).reset_index(drop=True)


def ranked(rows: pd.DataFrame, column: str, beside: str) -> list[str]:
    """The values of ``column``, fastest first: by the mean log of their times, each against the mean of its ``beside``.

    So an arm that did not run on the slowest link is not taken for a fast one.
    """
    logs = rows["at_least_s"].map(math.log)
    share = logs - logs.groupby(rows[beside]).transform("mean")
    means = share.groupby(rows[column]).mean()
    return [str(value) for value in means.sort_values(kind="stable").index]


def asked_links(results: Results) -> list[Asked]:
    """The links that done cells of arms that a link concerns ran on, each once."""
    return [json.loads(key) for key in _keys(results)]


def named_links(results: Results) -> dict[str, LinkName]:
    """Their names, by what stands in the table."""
    return {name.name: name for name in name_links(asked_links(results))}


def _keys(results: Results) -> list[str]:
    return sorted({_asked(folder.cell.config) for folder in results.done if folder.cell.arm not in results.limits})


def _asked(config: Mapping[str, Any]) -> str:
    return json.dumps(config.get("link") or {}, sort_keys=True)


def _time(arm: str, cells: pd.DataFrame, arrivals: Mapping[int, Arrival]) -> dict[str, Any]:
    if not arrivals:
        return {"arm": arm, "num": 0}
    centre = estimate(list(arrivals.values()))
    return {"arm": arm, "num": centre.num, "num_censored": centre.num_censored,
            "num_composed": int(cells["composed"].sum()), "time_s": centre.value, "low_s": centre.low,
            "high_s": centre.high, "at_least_s": centre.at_least}  # fmt: skip
