"""``python -m paper.program``: build the paper, or list what its claims come to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from bwbench.base.errors import EXIT_OK, BwbenchError
from bwbench.records import uncollected
from bwbench.results.text import plain
from paper.program.build import build_paper, load_outline, quotes_of, records_of
from paper.program.claim import COMPARISONS, Claim, Value, load_claims
from paper.program.claim_words import about, full_text, judge
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError
from paper.program.evaluate import evaluate
from paper.program.pages import write_pages
from paper.program.standing import PUBLISHED, load_published

_DIRECTIONS = {
    "ratio": ("below 1", "above 1"),
    "fastest": ("below 1", "above 1"),
    "difference": ("negative", "positive"),
    "crossover": ("faster above", "faster below"),
    "shift": ("below 1", "above 1"),
}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 2 where claims and records do not agree, 3 where pandoc or LaTeX fail."""
    parser = argparse.ArgumentParser(prog="python -m paper.program", description=__doc__)
    parser.add_argument("--source", type=Path, default=Path("paper"), help="folder of the prose (paper)")
    parser.add_argument(
        "--results", type=Path, default=Path("results/published"), help="folder of the records (results/published)"
    )
    parser.add_argument("--out", type=Path, default=Path("paper/build"), help="folder for what is built (paper/build)")
    parser.add_argument("--strict", action="store_true", help="a section without records is an error")
    parser.add_argument("--no-pdf", action="store_true", help="stop before LaTeX runs")
    parser.add_argument("--claims", action="store_true", help="print every claim, its value and what may be declared")
    parser.add_argument("--pages", action="store_true", help="write what README.md and docs/ say of the records")
    options = parser.parse_args(arguments)
    with uncollected():
        return _made(options)


def _made(options: argparse.Namespace) -> int:
    try:
        if options.pages:
            published = load_published(options.source / PUBLISHED)
            print("\n".join(map(str, write_pages(Path(), quotes_of(options.source, options.results), published))))
            return EXIT_OK
        if options.claims:
            print("\n".join(claim_lines(options.source, options.results)))
            return EXIT_OK
        paper = build_paper(
            options.source, options.results, options.out, strict=options.strict, with_pdf=not options.no_pdf
        )
    except BwbenchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in paper.paths:
        print(path)
    for line in paper.left_out:
        print(f"left out: {line}", file=sys.stderr)
    for line in paper.too_large:
        print(f"too large: {line}", file=sys.stderr)
    return EXIT_OK


def claim_lines(source: Path, results: Path) -> Iterator[str]:
    """A line a claim: its value with interval and n, and which direction it would support."""
    outline = load_outline(source)
    records = records_of(outline, source, results)
    for name, claim in load_claims(source / outline.claims).items():
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


if __name__ == "__main__":
    sys.exit(main())
