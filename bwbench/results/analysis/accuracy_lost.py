"""What fewer bytes cost: the metric of each compressed arm less that of fp32, at equal samples, paired by seed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence

import pandas as pd

from bwbench.base.plain_data import JsonObject, list_at
from bwbench.methods.roles import averages_gradients
from bwbench.results.analysis.bytes_sent import with_wire_bytes
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.student import student_t

_REFERENCES = ("ring", "torch", "scatter-gather", "parameter-server")  # the first one there is, else any other


def losses(results: Results, metric: str) -> pd.DataFrame:
    """One row an arm that averages gradients in every step, the fp32 reference among them.

    Compared is the last evaluation at or before the number of samples that all of these runs have seen.

    Returns:
        arm; codec: its codecs in short (``top-k 1 %``); pair: equal for arms that differ in the residual alone;
        residual (True, False; None where the codec has none to keep); samples; ``value``: mean of the metric;
        ``lost``: mean over the seeds of its difference to the reference's, ``low``, ``high`` its 95 % interval
        (Student's t, NaN for one seed); wire_bytes until then, all nodes, mean; num: pairs; is_reference.
        Empty where there is no fp32 reference.
    """
    cells = results.cells
    every_step = cells[cells["algorithm"].map(averages_gradients)] if len(cells) else cells
    curves = results.curves
    if every_step.empty or metric not in curves:
        return pd.DataFrame(columns=["arm", "is_reference"])
    sent = with_wire_bytes(curves[curves["id"].isin(every_step["id"])], every_step)
    equal = int(sent.groupby("id")["samples"].max().min())
    last = sent[sent["samples"] <= equal].sort_values("samples").groupby("id").tail(1)
    codecs = {
        str(folder.cell.arm): [codec for codec in list_at(folder.cell.config, "compression") if isinstance(codec, dict)]
        for folder in results.done
    }
    fp32 = every_step[every_step["compression"] == "none"]
    ways = (*_REFERENCES, *fp32["collective"])  # all of them send fp32 gradients and get their exact mean
    reference = next((str(arm) for way in ways for arm in fp32[fp32["collective"] == way]["arm"]), None)
    if reference is None:
        return pd.DataFrame(columns=["arm", "is_reference"])
    by_arm = {str(arm): part.set_index("seed") for arm, part in last.groupby("arm")}
    rows = []
    for arm, part in by_arm.items():
        differences = (part[metric] - by_arm[reference][metric]).dropna()
        if differences.empty:
            continue
        mean, half = _mean(list(differences))
        rows.append({
            "arm": arm, "codec": short_name(codecs[arm]), "pair": _pair(codecs[arm]),
            "residual": _residual(codecs[arm]),
            "samples": equal, "value": float(part[metric].mean()), "lost": mean, "low": mean - half,
            "high": mean + half, "wire_bytes": float(part["wire_bytes"].mean()), "num": len(differences),
            "is_reference": arm == reference,
        })  # fmt: skip
    table = pd.DataFrame(rows)
    composed = cells.groupby("arm")["composed"].sum()
    table["num_composed"] = [int(composed[arm]) for arm in table["arm"]]
    return table.sort_values("wire_bytes", ascending=False, kind="stable").reset_index(drop=True)


def stops_at_target(results: Results) -> bool:
    """Whether runs ended where they met their target: then nobody knows what more samples would have given them, and
    those that a lucky evaluation ended would look better than they are."""
    configs = [folder.cell.config for folder in results.done]
    return any(config.get("target") and config.get("stop", "target") == "target" for config in configs)


def short_name(codecs: Sequence[JsonObject]) -> str:
    """``fp32``, ``top-k 1 %``, ``int4``, ``top-k 1 % + int8``; a residual is not mentioned."""
    words = []
    for codec in codecs:
        name, ratio = str(codec.get("name", "none")), codec.get("ratio")
        words.append(f"{name} {100 * float(ratio):g} %" if isinstance(ratio, (int, float)) else name)
    return "fp32" if words in ([], ["none"]) else " + ".join(words)


def _residual(codecs: Sequence[JsonObject]) -> bool | None:
    kept = [codec["error_feedback"] for codec in codecs if codec.get("error_feedback") is not None]
    return any(kept) if kept else None


def _pair(codecs: Sequence[JsonObject]) -> str:
    return json.dumps([{key: value for key, value in codec.items() if key != "error_feedback"} for codec in codecs])


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval; NaN for fewer than two."""
    if len(values) < 2:
        return statistics.fmean(values), math.nan
    half = student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), half
