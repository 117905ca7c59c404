"""The table of evidence: a row for each number of the prose, under the mark that stands behind it there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bwbench.results.analysis.caveats import COMPOSED_MARK
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK
from bwbench.results.text import Number, Phrase, Writer, phrase
from paper.program.claim import RATE, Claim, Value
from paper.program.claim_words import bare_text, ends_text
from paper.program.spoken import as_said, reference_name

HOSTS_MARK = "↔"
HEAD = ("", "what", "value", "interval", "n", "", "records")
_WIDTHS = (5, 48, 13, 18, 7, 5, 18)  # in hundredths of the page
_SHORT = {
    "link.bandwidth": "", "link.latency": "latency", "link.preset": "", "batch_size": "batch",
    "link.medium": "", "link.overrides": "slower nodes", "link.trace": "recording", "link.wired": "wired",
}  # fmt: skip
# What is usual, and is not said.
_OMITTED: tuple[tuple[str, object], ...] = (("link.overrides", "none"), ("link.wired", []), ("accumulate", 1))


class Row(NamedTuple):
    """What a mark stands for.

    Attributes:
        number: of the mark.
        host_bound: the machine, and not the link alone, decides what a step of one of the cells takes.
        two_hosts: its times were taken on machines with unlike processors.
    """

    number: int
    claim: Claim
    value: Value
    host_bound: bool = False
    two_hosts: bool = False


def evidence_lines(rows: Iterable[Row], writer: Writer, anchor: str) -> Iterator[str]:
    """Lines of a table with pipes, as pandoc reads them.

    Args:
        anchor: a format with ``{0}``: what the number of a row looks like.
    """
    yield "| " + " | ".join(HEAD) + " |"
    yield "|" + "|".join("-" * width for width in _WIDTHS) + "|"
    for row in rows:
        cells = [writer.write(cell) for cell in row_texts(row)]
        yield "| " + " | ".join([anchor.format(row.number), *cells]) + " |"


def row_texts(row: Row) -> Sequence[Phrase]:
    """The cells of a row behind its mark: what, value, interval, n, marks, records."""
    claim, value = row.claim, row.value
    key, said = as_said(claim, value)
    number = _short(bare_text(claim.model_copy(update={"name": key}), said))
    if claim.kind == "crossover" and value.value is None:
        number = phrase("–")
    ends = _short(ends_text(claim.model_copy(update={"name": key}), said)) if said.has_interval else phrase("–")
    ends = phrase(ends, ", assumed") if value.num_timed == 1 else ends
    of_value = ((COMPOSED_MARK, value.composed), (FIRST_CROSSING_MARK, value.first_crossing))
    of_row = ((HOST_BOUND_MARK, row.host_bound), (HOSTS_MARK, row.two_hosts))
    marks = "".join(mark for mark, holds in (*of_value, *of_row) if holds)
    missed = f"; {value.num_censored} not reached" if value.num_censored else ""
    said_of = re.sub(r",(?=\S)", ", ", _what(claim, value, turned=key != claim.name))  # so that long labels break
    what = phrase(said_of + missed)
    num = value.num if value.num_timed is None else f"{value.num_timed} timed"
    return (what, number, ends, phrase(str(num)), phrase(marks), phrase(claim.experiment))


def _short(text: Phrase) -> Phrase:
    """A table has no room for a long unit."""
    return tuple(
        one if isinstance(one, str) else Number(one.key, one.text.replace("percentage points", "points"))
        for one in text
    )


def _what(claim: Claim, value: Value, *, turned: bool) -> str:
    """``time of ddp over that of diloco; 10 Mbit/s``."""
    target = "" if claim.asked_target is None else f"to {claim.asked_target:g}"
    settings = ", ".join(filter(None, [settings_text(claim), target]))
    at = f"; {settings}" if settings else ""
    over = reference_name(claim)
    match claim.kind:
        case "ratio" if claim.of == RATE:
            return f"samples a second of {claim.arm} over those of {over}{at}"
        case "ratio":
            first, second = (claim.arm, over) if turned else (over, claim.arm)
            return f"{claim.of} of {first} over that of {second}{at}"
        case "difference":
            return f"final metric of {claim.arm} less that of {over}{at}"
        case "crossover":
            why = f": {value.words}" if value.words else ""
            return f"{claim.part or 'bandwidth'} at which {claim.arm} and {over} are equally fast{at}{why}"
        case "shift":
            one, other = claim.crossovers
            both = [f"{of.arm} and {of.over} in {of.experiment}" for of in (one, other)]
            return f"S/(B·T) at which as fast: {both[0]}, over that of {both[1]}{at}"
        case "closed form":
            return f"S/(B·T) at which {claim.arm} and {over} are equally fast, by samples, nodes and bytes{at}"
        case "fastest":
            first, *others = value.words.split("|")
            tied = f"may be as fast: {', '.join(others)}" if value.side == 0 else f"before {others[0]}"
            return f"{first} has the shortest mean time, {tied}; ratio to the next, {value.beside}{at}"
        case "value":
            return f"{claim.of} of {claim.arm}{at}"
    return f"{claim.kind}{f', {claim.part}' if claim.part else ''}{at}"


def settings_text(claim: Claim, below: str = "") -> str:
    """The settings of a claim in few words: ``10 Mbit/s, latency 100 ms``; what differs of the reference behind it.

    Args:
        below: only keys that begin so, and nothing of the reference.
    """
    asked = {key: value for key, value in claim.where.items() if key.startswith(below)}
    shown = [(key, value) for key, value in asked.items() if (key, value) not in _OMITTED]
    other = [] if below else [f"against {_setting(key, value)}" for key, value in claim.over_where.items()]
    return ", ".join([*(_setting(key, value) for key, value in shown), *other])


def _setting(key: str, value: object) -> str:
    return f"{_SHORT.get(key, key.rpartition('.')[2])} {_value_text(value)}".strip()


def _value_text(value: object) -> str:
    return "none" if value in ([], None) else str(value)
