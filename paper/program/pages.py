"""What README.md and docs/findings.md say of the published records, written between markers; and the README's picture.

    <!-- records: answer bandwidth-fashion at 10 Mbit/s to 0.89 -->
    (made anew by `python -m paper.program --pages`)
    <!-- end -->

So no number between markers is typed by anybody, and a test fails where the records have gone on without them. With
``to 0.89`` before its end a marker asks for another target than the cells' own.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
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
from bwbench.results.text import MarkdownWriter, Phrase, plain
from paper.program.claimed_cells import MissingRecordsError, Records, how_to_make
from paper.program.comparing import metric_of

PAGES = ("README.md", "docs/findings.md")
PICTURE = Path("docs/images/answer.png")
HEADLINE, TARGET = "bandwidth-fashion", 0.89
# In the picture: more are a thicket. The free network is not drawn; it tells which cells the host bounds.
SHOWN = (
    "single", "single(optimizer=muon)", "no-communication", "ddp", "threshold", "diloco(period=16,outer_lr=0.5)",
    "muloco(period=16)",
)  # fmt: skip
_WIDTH = 120
_MARKED = re.compile(
    r"(<!-- records: (?P<kind>[\w-]+) (?P<experiment>[\w-]+)(?: at (?P<at>[^>]+?))?(?: to (?P<target>[\d.]+))? -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)


def write_pages(root: Path, records: Records) -> list[Path]:
    """Fill the pages below ``root`` and draw the picture; returns the files. Raises as ``filled`` does."""
    written = []
    for name in PAGES:
        path = root / name
        write_bytes_atomic(path, filled(path.read_text(encoding="utf-8"), records).encode(), sync=False)
        written.append(path)
    return [*written, *draw_picture(root / PICTURE, records)]


def filled(text: str, records: Records) -> str:
    """The page with all that stands between markers made anew.

    Raises ConfigError for a marker that asks for nothing known, MissingRecordsError where there are no records.
    """

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

    return _MARKED.sub(made, text)


def draw_picture(path: Path, records: Records) -> list[Path]:
    """Time over the shortest at each bandwidth, of a few arms that span the field; and its numbers beside it."""
    cells = [folder for folder in records.of(HEADLINE) if folder.cell.arm in SHOWN]
    (results, *_) = results_of(at_target(cells, (metric_of(cells), TARGET)), Reader())
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
