"""Final accuracy: what an arm costs, or does not cost, beside time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from bwbench.results.analysis.arrival import number
from bwbench.results.analysis.config_values import value_at
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.statistics import log_interval
from bwbench.results.section.content import Block, Table
from bwbench.results.text import Number, Phrase, fixed, phrase, significant

_POINTS = 100.0


def accuracy_blocks(group: Results, key: str, baseline: str | None) -> Iterator[Block]:
    """Mean final metric of each arm over its seeds, and the paired difference from the baseline.

    What a synchronous arm learns does not depend on the link: a seed counts once, whatever links it ran on.
    """
    finals = _finals(group)
    if not finals:
        return
    metrics = group.cells["target_metric"].dropna()
    metric = str(metrics.iloc[0]) if len(metrics) else "accuracy"
    as_points = metric == "accuracy"
    reference = finals.get(baseline or "", {})
    rows = []
    for arm, values in sorted(finals.items()):
        at = f"final {key} {arm}"
        cells = [[phrase(arm)], _value_lines(list(values.values()), at, as_points)]
        cells.append(_difference_lines(values, reference, at, as_points) if arm != baseline else [phrase("–")])
        rows.append([*cells, [phrase(Number(f"{at} n", str(len(values))))]])
    unit = " in percent; differences in percentage points" if as_points else ""
    caption = phrase(f"Final {metric} on the validation split{unit}. Mean over seeds, 95 % interval below it.")
    if all(value_at(folder.cell.config, "stop") == "target" for folder in group.done):
        caption = phrase(caption, " Training stopped at the target: these say little beside the time to it.")
    header = [phrase("arm"), phrase(metric), phrase(f"less {baseline}" if reference else "difference"), phrase("n")]
    yield Table(f"accuracy {key}", caption, header, rows)


def _finals(group: Results) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, list[float]]] = {}
    for row in group.cells.to_dict("records"):
        value = number(row.get("final_metric"))
        if value is not None:
            found.setdefault(str(row["arm"]), {}).setdefault(int(row["seed"]), []).append(value)
    return {arm: {seed: statistics.fmean(v) for seed, v in by_seed.items()} for arm, by_seed in found.items()}


def _value_lines(values: Sequence[float], key: str, as_points: bool) -> list[Phrase]:
    shown = [_shown(statistics.fmean(values), as_points)]
    ends = log_interval(values)  # on the values themselves: an accuracy is no time, and needs no logarithm
    lines = [phrase(Number(key, shown[0]))]
    if ends is not None:
        lines.append(phrase(Number(f"{key} interval", f"[{_shown(ends[0], as_points)}, {_shown(ends[1], as_points)}]")))
    return lines


def _difference_lines(
    values: Mapping[int, float], reference: Mapping[int, float], key: str, as_points: bool
) -> list[Phrase]:
    differences = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if not differences:
        return [phrase("–")]
    lines = [phrase(Number(f"{key} difference", _signed(statistics.fmean(differences), as_points)))]
    ends = log_interval(differences)
    if ends is not None:
        text = f"[{_signed(ends[0], as_points)}, {_signed(ends[1], as_points)}]"
        lines.append(phrase(Number(f"{key} difference interval", text)))
    return lines


def _shown(value: float, as_points: bool) -> str:
    return fixed(_POINTS * value, 2) if as_points else significant(value)


def _signed(value: float, as_points: bool) -> str:
    text = fixed(_POINTS * value, 2, apart_from=0.0) if as_points else significant(value, apart_from=0.0)
    return f"+{text}" if value > 0 else text
