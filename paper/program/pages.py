"""What README.md and docs/ say of the published records, written between markers; and the README's picture.

    <!-- records: answer bandwidth-fashion at 10 Mbit/s to 0.89 -->
    (made anew by `python -m paper.program --pages`)
    <!-- end -->

So no number between markers is typed by anybody, and a test fails where the records have gone on without them. With
``to 0.89`` before its end a marker asks for another target than the cells' own. ``standing`` alone asks for the table
of ``standing.py``. Within a sentence ``<!-- says NAME -->…<!-- end -->`` holds what a claim of the paper says, with its
interval, and ``<!-- claim NAME -->…<!-- end -->`` its number.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from bwbench.base.errors import ConfigError
from bwbench.records import CellFolder
from bwbench.records.files import write_bytes_atomic
from bwbench.results.analysis.answer import (
    Answer,
    answer_phrase,
    answers,
    link_phrase,
    setting_phrase,
    shared_phrases,
    whole_phrase,
)
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.results import Reader, results_of
from bwbench.results.figures.album import save
from bwbench.results.figures.bandwidth import TimeToAccuracyByBandwidth
from bwbench.results.section.content import Table
from bwbench.results.section.time_and_accuracy import time_blocks
from bwbench.results.section.write import markdown_table
from bwbench.results.text import MarkdownWriter, Phrase, phrase, plain
from paper.program.claim_words import bare_text, ends_text
from paper.program.claimed_cells import MissingRecordsError, Records, how_to_make
from paper.program.comparing import metric_of
from paper.program.quotes import Quotes
from paper.program.standing import Published, standings, table

PAGES = ("README.md", "docs/findings.md", "docs/claims.md")
PICTURE = Path("docs/images/answer.png")
HEADLINE, TARGET = "bandwidth-fashion", 0.89
# In the picture: more are a thicket. The free network is not drawn; it tells which cells the host bounds.
SHOWN = (
    "single", "single(optimizer=muon,weight_average=ema)", "no-communication", "ddp",
    "ring-fp16(optimizer=muon,weight_average=ema)", "muloco(period=16,weight_average=ema)",
    "muloco(period=64,outer_lr=1.0,weight_average=ema)",
)  # fmt: skip
_WIDTH = 120
_MARKED = re.compile(
    r"(<!-- records: (?P<kind>[\w-]+) (?P<experiment>[\w-]+)(?: at (?P<at>[^>]+?))?(?: to (?P<target>[\d.]+))? -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)
_STANDING = re.compile(r"(<!-- standing -->\n).*?(<!-- end -->)", re.DOTALL)
_SAID = re.compile(r"(<!-- (?P<kind>says|claim) (?P<name>[\w-]+) -->).*?(<!-- end -->)", re.DOTALL)
_COMMENT = re.compile(r"<!-- .*? -->")
_NO_BREAK = "\0"  # within a comment, until lines are folded


def write_pages(root: Path, quotes: Quotes, published: Mapping[str, Published]) -> list[Path]:
    """Fill the pages below ``root`` and draw the picture; returns the files. Raises as ``filled`` does."""
    written = []
    for name in PAGES:
        path = root / name
        text = filled(path.read_text(encoding="utf-8"), quotes, published)
        write_bytes_atomic(path, text.encode(), sync=False)
        written.append(path)
    return [*written, *draw_picture(root / PICTURE, quotes.records)]


def filled(text: str, quotes: Quotes, published: Mapping[str, Published]) -> str:
    """The page with all that stands between markers made anew.

    Args:
        quotes: the claims of the paper with their records, and what to call arms.
        published: numbers as they were first said, for the table of those that stand.

    Raises ConfigError for a marker that asks for nothing known, MissingRecordsError where there are no records.
    """
    records = quotes.records

    def made(match: re.Match[str]) -> str:
        kind, experiment = match["kind"], match["experiment"]
        if kind not in _KINDS:
            raise ConfigError(f"<!-- records: {kind} … -->: no such kind; allowed: {', '.join(_KINDS)}")
        if experiment not in records.experiments:
            raise MissingRecordsError(f"{match[1].strip()}: no records of {experiment}; {how_to_make(experiment)}")
        cells = records.of(experiment)
        if match["target"] is not None:  # of the metric of their own
            cells = at_target(cells, (metric_of(cells), float(match["target"])))
        lines = "\n".join(_KINDS[kind](cells, match["at"])).strip()
        return f"{match[1]}\n{lines}\n\n<!-- end -->"

    def standing(match: re.Match[str]) -> str:
        return f"{match[1]}\n{table(standings(published, quotes.claims, records))}\n\n<!-- end -->"

    text = _STANDING.sub(standing, _MARKED.sub(made, text))
    said = _SAID.sub(lambda match: f"{match[1]}{_said(match['kind'], match['name'], quotes)}<!-- end -->", text)
    return said if said == text else "\n\n".join(_folded(part) for part in said.split("\n\n"))


def _said(kind: str, name: str, quotes: Quotes) -> str:
    """A claim as a predicate, or as its number, with its interval in brackets."""
    value = quotes.value(name)
    if value is None:
        raise ConfigError(f"<!-- {kind} {name} -->: {'; '.join(quotes.problems)}")
    if kind == "says":
        return _written(quotes.verdict(name, interval=True)[0])
    claim = quotes.claims[name]
    words = bare_text(claim, value)
    return _written(phrase(words, " (", ends_text(claim, value), ")") if value.has_interval else words)


def _folded(paragraph: str) -> str:
    """In lines of the page's width, where a sentence has become longer; tables are left alone."""
    if max(map(len, paragraph.split("\n"))) <= _WIDTH or not _SAID.search(paragraph) or "\n|" in f"\n{paragraph}":
        return paragraph
    items = [re.sub(r" *\n *", " ", item) for item in re.split(r"\n(?=- )", paragraph)]
    unbroken = [_COMMENT.sub(lambda match: match[0].replace(" ", _NO_BREAK), item) for item in items]
    lines = [line for item in unbroken for line in _fold(item, "  " if item.startswith("- ") else "")]
    return "\n".join(lines).replace(_NO_BREAK, " ")


def draw_picture(path: Path, records: Records) -> list[Path]:
    """Time over the shortest at each bandwidth, of a few arms that span the field; and its numbers beside it."""
    cells = [folder for folder in records.of(HEADLINE) if folder.cell.arm in SHOWN]
    (results, *_) = results_of(at_target(cells, (metric_of(cells), TARGET)), Reader())
    results = replace(results, called=arm_labels(folder.cell for folder in records.of(HEADLINE)))
    figure = TimeToAccuracyByBandwidth()
    return save(figure.draw(results), figure.table(results), results, figure.name, path.with_suffix(""), ("png",))


def _answer(cells: Sequence[CellFolder], at: str | None) -> Iterator[str]:
    """The answer at one link, as it stands alone; what is to be remembered in bold."""
    found = [one for one in _all_answers(cells) if plain(link_phrase(one)) == at]
    if len(found) != 1:
        raise ConfigError(
            f"<!-- records: answer … at {at} -->: {len(found)} groups of cells have that link, one is due"
        )
    first, _, rest = _written(whole_phrase(found[0])).partition(". ")
    yield from _fold(f"**{first}.** {rest}")


def _answers(cells: Sequence[CellFolder], at: str | None) -> Iterator[str]:
    """All answers, a list for each group of links."""
    for setting, of_links in groupby(_all_answers(cells), lambda one: _written(setting_phrase(one))):
        here = list(of_links)
        yield from [f"{setting[0].upper()}{setting[1:]}:", ""]
        for one in here:
            yield from _wrapped((*link_phrase(one), ": ", *answer_phrase(one, in_list=True)), "- ", indent="  ")
        yield ""
        for sentence in shared_phrases(here):
            yield from [*_wrapped(sentence), ""]


def _all_answers(cells: Sequence[CellFolder]) -> list[Answer]:
    return answers(cells, labels=arm_labels(folder.cell for folder in cells))


def _times(cells: Sequence[CellFolder], at: str | None) -> Iterator[str]:
    for group in results_of(cells, Reader()):
        for block in time_blocks(group, group.label):
            if isinstance(block, Table):
                for line in markdown_table(block).strip().splitlines():
                    yield from [line] if line.startswith("|") or not line else _fold(line)
                yield ""


def _written(text: Phrase) -> str:
    return MarkdownWriter().write(text)


def _wrapped(text: Phrase, before: str = "", after: str = "", indent: str = "") -> Iterator[str]:
    yield from _fold(f"{before}{_written(text)}{after}", indent)


def _fold(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_KINDS: dict[str, Callable[[Sequence[CellFolder], str | None], Iterator[str]]] = {
    "answer": _answer,
    "answers": _answers,
    "times": _times,
}
