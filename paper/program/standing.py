"""Which numbers of the paper stand as they were first published, and which fell: the table of docs/claims.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from bwbench.base.errors import ConfigError, Problem
from bwbench.results.text import plain
from paper.program.claim import COMPARISONS, Claim, Value
from paper.program.claim_words import about, full_text
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError, Records
from paper.program.evaluate import evaluate

PUBLISHED = "published.yaml"
STANDS, SAID_OTHERWISE, FELL, TOLD_NOW = "stands", "said otherwise", "fell", "can be told now"
WITHDRAWN, UNKNOWN = "withdrawn", "unknown until run again"


class Published(BaseModel):
    """A number as it was first said.

    Attributes:
        said: the number with its interval and n.
        side: the direction that it supported; 0 where its interval held "no difference".
        why: one line on what became of it; empty where the numbers say so themselves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    said: str
    side: int
    why: str = ""


@dataclass(frozen=True)
class Standing:
    """A claim, as it was said and as it is now."""

    name: str
    about: str
    said: str
    now: str
    verdict: str
    why: str


def load_published(path: Path) -> dict[str, Published]:
    """The numbers as they were first said, by claim; raises ConfigError where the file is not of that form."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return TypeAdapter(dict[str, Published]).validate_python(content)
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(Problem(f"not readable as published numbers: {error}", str(path))) from None


def standings(published: Mapping[str, Published], claims: Mapping[str, Claim], records: Records) -> Iterator[Standing]:
    """Every published claim beside what the same records say by today's rules."""
    for name, was in published.items():
        claim = claims.get(name)
        if claim is None:
            yield Standing(name, "", was.said, "", WITHDRAWN, was.why)
            continue
        try:
            value = evaluate(claim, records)
        except (MissingRecordsError, AmbiguousClaimError) as error:
            yield Standing(name, about(claim), was.said, "", UNKNOWN, was.why or str(error))
            continue
        now = _said(claim, value)
        yield Standing(name, about(claim), was.said, now, _verdict(claim, value, was, now), was.why)


def _said(claim: Claim, value: Value) -> str:
    if claim.kind != "fastest":
        return plain(full_text(claim, value))
    first, *others = value.words.split("|")
    return f"{first} {'before' if value.side > 0 else 'or'} {', '.join(others)}, {plain(full_text(claim, value))}"


def _verdict(claim: Claim, value: Value, was: Published, now: str) -> str:
    if claim.kind == "crossover" and value.unit == "words" and was.side:
        return UNKNOWN
    if claim.kind in COMPARISONS and value.side != was.side:
        return FELL if was.side else TOLD_NOW
    return STANDS if _number(now) == _number(was.said) else SAID_OTHERWISE


def _number(text: str) -> str:
    """Without what stands in brackets: a wider or narrower interval on the same side changes no sentence."""
    return text.partition(" (")[0]


def table(found: Iterator[Standing]) -> str:
    """Markdown: how many stand, those that do not, and those that do with their intervals then and now."""
    rows = list(found)
    changed = [row for row in rows if row.verdict != STANDS]
    counts = ", ".join(f"{sum(r.verdict == v for r in changed)} {v}" for v in dict.fromkeys(r.verdict for r in changed))
    lines = [f"Of {len(rows)} numbers {len(rows) - len(changed)} stand{'; ' if counts else ''}{counts}."]
    crossings = sum(row.verdict == STANDS and "first crossings" in row.now for row in rows)
    lines += [f"Of those that stand {crossings} are of first crossings: which way they point, not how far.", ""]
    lines += ["| claim | said | now | verdict | why |", "|---|---|---|---|---|"]
    lines += [_row(row) for row in changed]
    lines += ["", "Those that stand:", "", "| claim | said | now |", "|---|---|---|"]
    lines += [_row(row) for row in rows if row.verdict == STANDS]
    return "\n".join(lines)


def _row(row: Standing) -> str:
    cells = [f"`{row.name}`: {row.about}" if row.about else f"`{row.name}`", row.said]
    cells += ["the same"] if row.verdict == STANDS and row.now == row.said else [row.now]
    cells += [] if row.verdict == STANDS else [row.verdict, row.why]
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
