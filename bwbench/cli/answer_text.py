"""The answer of a comparison, link by link, before its tables: as JSON, and as lines for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from bwbench.results.analysis.answer import (
    Answer,
    answer_phrase,
    link_phrase,
    setting_phrase,
    shared_phrases,
    whole_phrase,
)
from bwbench.results.text import plain


def answer_lines(found: Sequence[Answer], width: int = sys.maxsize) -> Iterator[str]:
    """A heading for each group of links, and an answer for each of these; a blank line behind each group.

    Args:
        width: columns of the terminal.
    """
    for (experiment, setting), of_links in groupby(found, lambda one: (one.experiment, plain(setting_phrase(one)))):
        here = list(of_links)
        yield from _wrapped(f"In short, {experiment}, {setting}:", width)
        for answer in here:
            text = f"{plain(link_phrase(answer))}: {plain(answer_phrase(answer, in_list=True))}"
            yield from _wrapped(text, width, "  ")
        for sentence in shared_phrases(here):
            yield from _wrapped(plain(sentence), width, "  ")
        yield ""


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines behind the first stand farther in, so that links can be told apart."""
    more = f"{indent}  "
    return wrap(
        text, width, initial_indent=indent, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )


def answers_json(found: Sequence[Answer]) -> list[dict[str, object]]:
    """``answers`` as docs/statistics.md describes them."""
    return [
        {
            "experiment": answer.experiment,
            "group": answer.condition,
            "first": answer.best.first,
            "n": answer.num,
            "text": plain(whole_phrase(answer)),
        }
        for answer in found
    ]
