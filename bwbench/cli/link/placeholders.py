"""``{rank}``, ``{nodes}``, ``{address}`` and ``{address:K}`` in a command's words.

A placeholder is one word of letters in braces, with or without a number behind a colon, and nothing else: what JSON,
awk, find or a shell write with braces (``{"a": 1}``, ``{print $1}``, ``{}``, ``${HOME}``, ``{1..3}``) stays as it is.
A word in braces that is none of ours is refused, since it may be one that was mistyped; doubled braces around it
(``{{word}}``) stand for single ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bwbench.base.explain import nearest

_NAMES = ("rank", "nodes", "address", "address:K")
_WORD = r"([A-Za-z_]\w*)(?::([\w.+-]*))?"
_PLACEHOLDER = re.compile(r"\{\{(" + _WORD + r")\}\}|(?<!\$)\{" + _WORD + r"\}", re.ASCII)


def fill_in(words: Sequence[str], rank: int, addresses: Sequence[str]) -> list[str]:
    """The words of a command as node ``rank`` gets them.

    Args:
        addresses: of all nodes.

    Raises:
        ValueError: a placeholder that is none, or the address of a node that does not exist.
    """
    return [_PLACEHOLDER.sub(lambda match: _value(match, rank, addresses), word) for word in words]


def _value(match: re.Match[str], rank: int, addresses: Sequence[str]) -> str:
    literal, _, _, name, argument = match.groups()
    if literal is not None:
        return f"{{{literal}}}"
    if name == "address" and argument is not None:
        if not argument.isdigit() or int(argument) >= len(addresses):
            raise ValueError(f"{match[0]}: there is no node {argument!r}; nodes are numbered 0 to {len(addresses) - 1}")
        return addresses[int(argument)]
    values = {"rank": str(rank), "nodes": str(len(addresses)), "address": addresses[rank]}
    if name not in values:
        known = ", ".join(f"{{{known}}}" for known in _NAMES)
        raise ValueError(
            f"{match[0]} is no placeholder.{nearest(name, values)} There are {known}; for braces as such write "
            f"{{{match[0]}}}"
        )
    if argument is not None:
        raise ValueError(f"{match[0]}: {{{name}}} takes nothing behind a colon")
    return values[name]
