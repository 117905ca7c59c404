"""What accuracy costs: the validation metric against the training clock, and against the bytes on the wire."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from bwbench.base.units import BANDWIDTH
from bwbench.results.analysis.results import OF_STEPS, Results, with_wire_bytes
from bwbench.results.analysis.statistics import Arrival, estimate
from bwbench.results.figures import captions
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.curve_lines import Cost, composed_label, draw_curves

_MUCH = 1.1  # times as many bytes as on the link that is shown, from which on a note says so


class AccuracyOverTime(AbstractFigure):
    """Every run as a thin line, and boldly each arm's mean time to every level of the metric."""

    name = "accuracy-over-time"
    summary = "validation metric against training time"

    def applies(self, results: Results) -> str | None:
        """Needs one cell that is done and was evaluated after its first step."""
        return None if (results.curves["clock_s"] > 0).any() else "no evaluation was recorded"

    def table(self, results: Results) -> pd.DataFrame:
        """Every evaluation of every run."""
        return results.curves

    def _draw(self, results: Results, width_in: float) -> Figure:
        timed = not results.times.empty
        label = "training time ({}, evaluation excluded)".format
        cost = Cost("clock_s", label, _unit_of, "time to target" if timed else None)
        labels = _labels(results, sorted(set(results.curves["arm"])))
        return draw_curves(results, results.curves, width_in, "over training time", results.notes, cost, labels)


def _unit_of(longest_s: float) -> tuple[str, float]:
    unit = captions.time_unit(longest_s)
    return unit.symbol, unit.seconds


def _labels(results: Results, arms: list[str]) -> list[tuple[str, str]]:
    ordered = results.times.sort_values(["time_s", "at_least_s", "arm"])
    times = {str(row["arm"]): row for row in ordered.to_dict("records")}
    labels = []
    for arm in [arm for arm in times if arm in arms] + sorted(arm for arm in arms if arm not in times):
        label = composed_label(results, arm)
        if row := times.get(arm):
            bound = "> " if math.isinf(row["time_s"]) else ""
            label += f": {bound}{captions.seconds(row['at_least_s'])}"
        labels.append((arm, label))
    return labels


class AccuracyOverBytes(AbstractFigure):
    """As accuracy-over-time, on the axis of what all nodes have sent; arms that send nothing are named below."""

    name = "accuracy-over-bytes"
    summary = "validation metric against bytes on the wire"
    compares = frozenset({"link.bandwidth", "link.latency"})

    def applies(self, results: Results) -> str | None:
        """Needs one evaluation after something was sent and counted."""
        if (results.curves["clock_s"] > 0).sum() == 0:
            return "no evaluation was recorded"
        return None if (self.table(results)["wire_bytes"] > 0).any() else "no bytes were counted on the wire"

    def table(self, results: Results) -> pd.DataFrame:
        """Every evaluation of the runs on one link, with the bytes that all nodes had sent by then."""
        on_one_link = one_link(results)
        return with_wire_bytes(on_one_link.curves, on_one_link.cells)

    def _draw(self, results: Results, width_in: float) -> Figure:
        shown, curves = one_link(results), self.table(results)
        sending = curves[curves.groupby("id")["wire_bytes"].transform("max") > 0]
        arms = sorted({str(arm) for arm in sending["arm"]})
        spent = {arm: bytes_to_target(shown.cells[shown.cells["arm"] == arm]) for arm in arms}
        timed = any(not math.isnan(value) for value, _ in spent.values())
        labels = []
        for arm in sorted(arms, key=lambda arm: (*spent[arm], arm)):
            reached = f": {_reached(spent[arm])}" if timed else ""
            labels.append((arm, f"{composed_label(shown, arm)}{reached}"))
        label = "bytes on the wire, all nodes ({})".format
        cost = Cost("wire_bytes", label, captions.bytes_unit, "bytes to target" if timed else None)
        notes = _notes(results, shown, curves, set(arms))
        return draw_curves(shown, sending, width_in, "against bytes on the wire", notes, cost, labels)


def one_link(results: Results) -> Results:
    """The cells at the fastest link, and at the shortest round trip of it: bytes hardly depend on the link.

    Where arms ran on different links, that is the link that most arms ran on.
    """
    cells = results.cells
    linked = cells[cells["bandwidth_bps"].notna()]
    if linked.empty:
        return results
    arms = linked.groupby(["bandwidth_bps", "rtt_s"], dropna=False)["arm"].nunique().reset_index(name="num_arms")
    best = arms.sort_values(["num_arms", "bandwidth_bps", "rtt_s"], ascending=[False, False, True]).iloc[0]
    here = (cells["bandwidth_bps"] == best["bandwidth_bps"]) & (cells["rtt_s"] == best["rtt_s"])
    wanted = set(cells[here | (cells["bandwidth_bps"].isna())]["id"])
    if len(wanted) == len(set(cells["id"])):
        return results
    folders = tuple(folder for folder in results.folders if folder.cell.id in wanted)
    return replace(results, group=replace(results.group, folders=folders))


def bytes_to_target(cells: pd.DataFrame) -> tuple[float, float]:
    """Geometric mean over an arm's repeats of the wire bytes to the target, infinite where the median repeat did not
    reach it; and what it is known to exceed. Both NaN where nothing is known."""
    arrivals = []
    for row in cells.drop_duplicates("seed").to_dict("records"):
        to_target, whole = (
            None if pd.isna(row[key]) else float(row[key]) for key in ("wire_bytes_to_target", "wire_bytes")
        )
        if to_target:
            arrivals.append(Arrival(to_target))
        elif whole and not pd.isna(row["censored_at_s"]):
            arrivals.append(Arrival(None, whole))
    if not arrivals:
        return math.nan, math.nan
    centre = estimate(arrivals)
    return centre.value, centre.at_least


def _reached(spent: tuple[float, float]) -> str:
    value, at_least = spent
    if math.isnan(value):
        return "–"
    return f"> {captions.byte_words(at_least)}" if math.isinf(value) else captions.byte_words(value)


def _elsewhere(results: Results, shown: Results, sending: set[str]) -> str:
    """What the arms send to the target on the links that are not shown, in words."""
    words = []
    for arm, cells in results.cells.groupby("arm"):
        if arm not in sending:
            continue
        here = bytes_to_target(shown.cells[shown.cells["arm"] == arm])[0]
        if not math.isfinite(here):  # it does not arrive on the link that is shown: nothing to compare with
            continue
        links = [part for _, part in cells.groupby(["bandwidth_bps", "rtt_s"], dropna=False)]
        times = [bytes_to_target(part)[0] / here for part in links]
        times = [one for one in times if math.isfinite(one)]
        if times and (min(times) < 1 / _MUCH or max(times) > _MUCH):
            words.append(f"{arm!s} {min(times):.2g} to {max(times):.2g} times as much")
    return f"on other links, {', '.join(words)} to the target" if words else "what is sent hardly depends on the link"


def _notes(results: Results, shown: Results, curves: pd.DataFrame, sending: set[str]) -> list[str]:
    notes = []
    if shown is not results:
        bandwidth = shown.cells["bandwidth_bps"].dropna().iloc[0]
        notes.append(f"Runs at {BANDWIDTH.show(float(bandwidth), 4)}; {_elsewhere(results, shown, sending)}.")
    silent = sorted(set(curves["arm"]) - sending)
    if silent:
        notes.append(f"Not drawn, since nothing of theirs was counted on the wire: {', '.join(silent)}.")
    if (curves[curves["arm"].isin(sending)]["bytes_from"] == OF_STEPS).any():
        notes.append("Bytes at an evaluation: the run's wire bytes in proportion to its steps.")
    else:
        notes.append("Bytes at an evaluation: the run's wire bytes in proportion to the payload sent by then.")
    return [*notes, *shown.notes]
