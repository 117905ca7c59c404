"""What ``{rank}``, ``{nodes}``, ``{address}`` and ``{address:K}`` in the words of a command stand for.

A placeholder is one of these names in braces, with or without a number behind a colon, and nothing else. What JSON,
awk, templates or a shell write with braces (``{"a": 1}``, ``{print}``, ``{}``, ``${HOME}``, ``{1..3}``, ``{{x}}``)
stays as it is. A word that is nearly one of the names is refused, since it will have been mistyped. Doubled braces
around a name, or nearly one, stand for single ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_NAMES = ("rank", "nodes", "address")
_FORMS = ", ".join(f"{{{form}}}" for form in (*_NAMES, "address:K"))
_WORD = r"([A-Za-z_]\w*)(?::([\w.+-]*))?"
_IN_BRACES = r"\{\{(" + _WORD + r")\}\}|(?<!\$)\{" + _WORD + r"\}"
# Of difflib's likeness: takes `rnk`, `node`, `addr` and `RANK` for slips, and leaves `print`, `next` and `end` to awk.
_NEAR = 0.7


def fill_in(words: Sequence[str], rank: int, addresses: Sequence[str]) -> list[str]:
    """The words of a command as node ``rank`` gets them.

    Args:
        addresses: of all nodes.

    Raises:
        ValueError: a placeholder that is mistyped, or the address of a node that does not exist.
    """
    return [re.sub(_IN_BRACES, lambda match: _value(match, rank, addresses), word, flags=re.ASCII) for word in words]


def _value(match: re.Match[str], rank: int, addresses: Sequence[str]) -> str:
    literal, doubled, _, name, argument = match.groups()
    meant = _meant(doubled or name)
    if meant is None:
        return match[0]
    if literal is not None:
        return f"{{{literal}}}"
    if name != meant:
        raise ValueError(
            f"{match[0]} is no placeholder. Did you mean '{meant}'? There are {_FORMS}; for braces as such write "
            f"{{{match[0]}}}"
        )
    if name == "address" and argument is not None:
        if not argument.isdigit() or int(argument) >= len(addresses):
            raise ValueError(f"{match[0]}: there is no node {argument!r}; nodes are numbered 0 to {len(addresses) - 1}")
        return addresses[int(argument)]
    if argument is not None:
        raise ValueError(f"{match[0]}: {{{name}}} takes nothing behind a colon")
    return {"rank": str(rank), "nodes": str(len(addresses)), "address": addresses[rank]}[name]


def _meant(word: str) -> str | None:
    """The name that ``word`` is, or nearly is."""
    near = difflib.get_close_matches(word.lower(), _NAMES, n=1, cutoff=_NEAR)
    return near[0] if near else None
