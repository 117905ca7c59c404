"""A table of how each study was made: what decides how far its numbers may be set beside those of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bwbench.base.plain_data import JsonObject, list_at, mapping_at
from bwbench.methods.roles import METHOD
from bwbench.records import CellFolder
from bwbench.results.analysis.arrival import FIRST_CROSSING
from bwbench.results.analysis.cells import cell_row, is_composed, setting_of, standing_of, value_at
from bwbench.results.section.content import Lines, Table
from bwbench.results.text import Number, phrase
from paper.program.claimed_cells import Records

_HEAD = ("study", "nodes", "target", "limit", "every", "step", "slow motion", "timed", "n", "⊙", "‡")
_MOST = 3  # values that are named one by one
_WHOLE = "whole"  # trained on its link from begin to end, so that nothing was timed apart


def studies_table(label: str, caption: str, names: Sequence[str], records: Records) -> Iterator[Table]:
    """A row a study with records and a target, of the cells of its methods; none without one.

    Args:
        names: of the experiments, in the order of the rows.
    """
    found = ((name, [one for one in records.done(name) if standing_of(one.cell).role == METHOD]) for name in names)
    rows = [
        list(_row(label, name, cells, records)) for name, cells in found if cells and _targets(cells[0].cell.config)
    ]
    if rows:
        yield Table(label, phrase(caption), [phrase(name) for name in _HEAD], rows, "lrlrrrrrrrr")


def _row(label: str, name: str, cells: Sequence[CellFolder], records: Records) -> Iterator[Lines]:
    def of(column: str, text: str) -> Lines:
        return [phrase(Number(f"{label} {name} {column}", text))]

    def config(key: str) -> Callable[[CellFolder], object]:
        return lambda one: value_at(one.cell.config, key)

    rows = [cell_row(one) for one in cells]
    yield [phrase(name)]
    yield of("nodes", _joined(setting_of(one.cell.config).nodes for one in cells))
    yield of("target", _targets(cells[0].cell.config))
    yield of("limit", _joined(map(config("limit.samples"), cells)))
    yield of("every", _joined(str(config("evaluate.every")(one)).removesuffix(" samples") for one in cells))
    yield of("step", _joined(map(config("compute.step_time"), cells)))
    yield of("dilation", _joined(config("dilation")(one) or 1 for one in cells))
    runs = {row.get("timing_runs") or 1 for one, row in zip(cells, rows, strict=True) if is_composed(one)}
    yield of("timed", _joined(runs) if runs else _WHOLE)
    yield of("n", str(len({setting_of(one.cell.config).seed for one in cells})))
    bound = sum(map(records.is_host_bound, cells))
    crossings = sum(row.get("arrival_kind") == FIRST_CROSSING for row in rows)
    yield of("host-bound", f"{bound}/{len(cells)}")
    yield of("first crossings", f"{crossings}/{len(cells)}")


def _targets(config: JsonObject) -> str:
    """``87, 89, 90.5 %``; ``loss 2.2, 2.0``; empty without one."""
    asked = [mapping_at({"one": one}, "one") for one in list_at(config, "targets") or [config.get("target") or {}]]
    shares = [f"{100 * value:.4g}" for one in asked
              if one.get("metric") == "accuracy" and isinstance(value := one.get("value"), float)]  # fmt: skip
    others: dict[str, list[str]] = {}
    for one in asked:
        if one.get("metric") not in ("accuracy", None):
            others.setdefault(str(one["metric"]), []).append(str(one["value"]))
    named = [f"{metric} {', '.join(values)}" for metric, values in others.items()]
    return ", ".join([*([f"{', '.join(shares)} %"] if shares else []), *named])


def _joined(values: Iterable[object]) -> str:
    """All of them, or the first and the last where they are many."""
    found = sorted({f"{one:g}" if isinstance(one, float) else str(one) for one in values}, key=_as_size)
    return ", ".join(found) if len(found) <= _MOST else f"{found[0]} to {found[-1]}"


def _as_size(text: str) -> tuple[float, str]:
    first = text.partition(" ")[0]
    return (float(first) if first.replace(".", "", 1).isdigit() else 0.0, text)
