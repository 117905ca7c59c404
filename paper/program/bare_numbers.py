"""Digits that stand in prose by themselves: every number there has to come from a claim."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bwbench.base.errors import Problem

# What may hold digits: expressions and statements of jinja, code, formulae, citations, addresses; digits of a name.
_NOT_PROSE = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|```.*?```|`[^`]*`|\$[^$]*\$|\[@[^\]]*\]|@[\w:-]+|https?://\S+|<!--.*?-->",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.-])\d[\d.,]*")


def bare_numbers(text: str, file: str) -> Iterator[Problem]:
    """A problem, with its line, for each number in the source of prose that no claim stands for."""
    prose = _NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in _NUMBER.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        message = (
            f"the number {match[0].rstrip('.,')} stands in prose; declare a claim and cite it: {{{{ num('NAME') }}}}"
        )
        yield Problem(message, file, line)
