"""A table of what each arm of an experiment is: what its records were configured with, and what it sends."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from bwbench.base.plain_data import JsonObject, list_at, mapping_at
from bwbench.base.units import MEMORY
from bwbench.records import CellFolder
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.statistics import number
from bwbench.results.section.content import Lines, Table
from bwbench.results.text import Number, phrase, significant
from paper.program.spoken import name_of

_HEAD = ("arm", "algorithm", "collective", "codec", "optimizer", "rate", "sent a step")
_DIGITS = 3
_WIDE = 34  # letters of small type: a table of more is wider than its page


def arms_table(
    label: str, caption: str, folders: Sequence[CellFolder], names: Mapping[str, str] | None = None
) -> Iterator[Table]:
    """A row for each arm: algorithm, collective and codecs with their options, optimizer, rate, and bytes on the wire
    that all nodes send in a step, the median over its cells; none without cells.

    Args:
        folders: of one experiment, done.
        names: what prose calls an arm, which stands below its recorded name in place of its options.
    """
    arms: dict[str, list[CellFolder]] = {}
    for folder in folders:
        arms.setdefault(str(folder.cell.arm), []).append(folder)
    rows = [list(_cells(label, arm, arms[arm], names or {})) for arm in sorted(arms)]
    if rows:
        yield Table(label, phrase(caption), [phrase(name) for name in _HEAD], rows, "lllllrr")


def _cells(label: str, arm: str, folders: Sequence[CellFolder], names: Mapping[str, str]) -> Iterator[Lines]:
    config = folders[0].cell.config
    codecs = [one for one in list_at(config, "compression") if isinstance(one, Mapping) and one.get("name") != "none"]
    optimizer = mapping_at(config, "optimizer")
    rates = sorted({rate for one in folders if (rate := _rate(one)) is not None})
    sent = [found for one in folders if (found := _sent(one)) is not None]
    name, _, options = arm.partition("(")
    spoken = name_of(arm, str(folders[0].cell.experiment), names)
    given = f"({options}".replace(",", ", ") if options else ""  # options stand beside, at what they belong to
    yield [phrase(name), *map(phrase, _wrapped(spoken if spoken != arm else given))]
    yield _component(label, arm, mapping_at(config, "algorithm"))
    yield _component(label, arm, mapping_at(config, "collective"))
    yield [line for one in codecs for line in _component(label, arm, one)] or [phrase("–")]
    yield [phrase(str(optimizer.get("name", "–")))]
    yield [phrase(*_joined(Number(f"{label} {arm} rate {rate:g}", f"{rate:g}") for rate in rates))]
    yield [phrase(Number(f"{label} {arm} sent", MEMORY.show(statistics.median(sent), _DIGITS)) if sent else "–")]


def _component(label: str, arm: str, component: JsonObject) -> Lines:
    """Its name, and its options in small type below: those that are set, numbers and words alone."""
    name = str(component.get("name", "–"))
    options = [
        f"{key.replace('_', ' ')} {significant(value) if isinstance(value, float) else value}"
        for key, value in component.items()
        if key != "name" and isinstance(value, (int, float, str)) and not isinstance(value, bool)
    ]
    if not options:
        return [phrase("–" if name == "none" else name)]
    lines = enumerate(_wrapped(", ".join(options)))
    return [phrase(name), *(phrase(Number(f"{label} {arm} {name} options {line}", text)) for line, text in lines)]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDE, break_long_words=False, break_on_hyphens=False)


def _joined(numbers: Iterator[Number]) -> Iterator[Number | str]:
    for index, one in enumerate(numbers):
        if index:
            yield ", "
        yield one


def _rate(folder: CellFolder) -> float | None:
    return number(mapping_at(folder.cell.config, "optimizer").get("lr"))


def _sent(folder: CellFolder) -> float | None:
    row = cell_row(folder)
    wire_bytes, steps = number(row.get("wire_bytes")), number(row.get("steps"))
    return wire_bytes / steps if wire_bytes and steps else None
