"""JSON in which equal parts stand once: five repeats on one link share its measurement, eight links one curve."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

LEAST_CHARACTERS = 120  # of a part that is worth a reference
_REFERENCE = "="  # {"=": 7} stands for the seventh part


def share(contents: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Take out what several of ``contents`` have in common, largest parts first.

    Returns:
        The shared parts, which hold no references themselves, and the contents with references to them. ``restored``
        undoes it.
    """
    contents = list(contents)
    counted: Counter[str] = Counter()
    for content in contents:
        _count(content, counted)
    numbers: dict[str, int] = {}
    parts: list[Any] = []

    def replaced(value: Any) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        text = dump(value)
        if _stands_apart(value) or (len(text) >= LEAST_CHARACTERS and counted[text] > 1):
            if text not in numbers:
                numbers[text] = len(parts)
                parts.append(value)
            return {_REFERENCE: numbers[text]}
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        return [replaced(item) for item in value]

    return parts, [replaced(content) for content in contents]


def restored(line: str | bytes, parts: Sequence[Any]) -> Any:
    """A content out of its JSON, with the shared parts in it; these are not to be changed.

    Raises ValueError where it is no JSON, or speaks of a part that is not there.
    """

    def with_part(value: dict[str, Any]) -> Any:
        if not _stands_apart(value):
            return value
        number = value[_REFERENCE]
        if not isinstance(number, int) or not 0 <= number < len(parts):
            raise ValueError(f"there is no shared part {number}")
        return parts[number]

    return json.loads(line, object_hook=with_part)


def dump(value: Any) -> str:
    """As JSON without blanks; keys keep their order, which tables show."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _count(value: Any, counted: Counter[str]) -> None:
    """Count parts; those inside of one that has been seen stand and fall with it."""
    if not isinstance(value, (dict, list)):
        return
    text = dump(value)
    if len(text) < LEAST_CHARACTERS:
        return
    counted[text] += 1
    if counted[text] == 1:
        for item in value.values() if isinstance(value, dict) else value:
            _count(item, counted)


def _stands_apart(value: Any) -> bool:
    """Whether a dictionary looks like a reference: one in the records is shared always, so that it is none."""
    return isinstance(value, dict) and len(value) == 1 and _REFERENCE in value
