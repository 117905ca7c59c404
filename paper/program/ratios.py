"""A table of how many times as fast some arms are as others, link by link: for what would be a list in prose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bwbench.results.analysis.host_bound import HOST_BOUND_MARK
from bwbench.results.section.content import Lines, Table
from bwbench.results.text import Number, phrase
from paper.program.claim import Claim, Value
from paper.program.claim_words import ends_text, number_text
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError, Records
from paper.program.evaluate import evaluate

NONE: Lines = (phrase("–"),)
_BANDWIDTH = "link.bandwidth"


def ratio_lines(claim: Claim, value: Value, before: str = "", after: str = "") -> Lines:
    """A ratio, its interval below it.

    Args:
        before, after: what stands around the number.
    """
    number = Number(claim.name, f"{value.bound} {number_text(value, value.value or 0.0)}".strip())
    ends = [phrase("[", ends_text(claim, value), "]")] if value.has_interval else []
    return [phrase(before, number, after), *ends]


def ratios_table(
    label: str,
    caption: str,
    links: Sequence[str],
    rows: Sequence[tuple[Lines, Claim]],
    records: Records,
    is_host_bound: Callable[[Claim, Value], bool],
) -> Table:
    """A row for each claim of kind ``ratio``, a column for each link; nothing where a link has no records.

    In parentheses where the interval holds 1, so that the two arms are not told apart.

    Args:
        links: bandwidths, which take the place of that of the claim.
        rows: what a row is called, and its claim.
    """

    def cells(claim: Claim) -> Iterator[Lines]:
        for link in links:
            name = f"{claim.name}-at-{link.lower().replace(' ', '-').replace('/', '-')}"
            asked = claim.model_copy(update={"name": name, "where": {**claim.where, _BANDWIDTH: link}})
            try:
                value = evaluate(asked, records)
            except (MissingRecordsError, AmbiguousClaimError):
                yield NONE
                continue
            mark = HOST_BOUND_MARK if is_host_bound(asked, value) else ""
            around = ("", mark) if value.side else ("(", f"{mark})")
            yield NONE if value.value is None else ratio_lines(asked, value, *around)

    head = [phrase("arm, over"), *map(phrase, links)]
    return Table(label, phrase(caption), head, [[name, *cells(claim)] for name, claim in rows])
