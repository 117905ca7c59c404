"""All claims with what records say of them: what an author reads before writing a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paper.program.claims import Claim, Value, evaluate, judge, load_claims
from paper.program.claims.judge import about
from paper.program.claims.records import Records
from paper.program.claims.select import AmbiguousClaimError, MissingRecordsError
from paper.program.claims.spec import COMPARISONS
from paper.program.claims.words import full_text, plain
from paper.program.outline import load_outline

_DIRECTIONS = {
    "ratio": ("below 1", "above 1"),
    "fastest": ("below 1", "above 1"),
    "difference": ("negative", "positive"),
    "crossover": ("faster above", "faster below"),
}


def claim_lines(source: Path, results: Path) -> Iterator[str]:
    """A line a claim: its value with interval and n, and which direction it would support."""
    records = Records(results)
    for name, claim in load_claims(source / load_outline(source).claims).items():
        if claim.kind == "given":
            continue
        if claim.experiment != "all" and claim.experiment not in records.experiments:
            yield f"{name}: no records of {claim.experiment} yet"
            continue
        try:
            value = evaluate(claim, records)
        except (MissingRecordsError, AmbiguousClaimError) as error:
            yield f"{name}: MISSING {error}"
            continue
        yield f"{name}: {plain(full_text(claim, value))} [{about(claim)}]{_supports(claim, value)}"


def _supports(claim: Claim, value: Value) -> str:
    if claim.kind not in COMPARISONS:
        return ""
    if judge(claim, value) is not None:
        return " NOT SUPPORTED"
    if value.side == 0:
        return " supports distinguishable: false"
    return f" supports expect: {_DIRECTIONS[claim.kind][value.side > 0]}"
