"""docs/concepts.md defines each word once, and the names that it lists are those of the program."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS, PARTITIONS
from bwbench.training.loop.step import PARTS

PAGE = (Path(__file__).parents[3] / "docs" / "concepts.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| word")]


def test_each_word_is_defined_once():
    words = [word.strip("`") for row in ROWS for word in re.findall(r"\*\*(.+?)\*\*", row.split(" | ")[0])]
    assert len(words) > 60
    assert [word for word, count in Counter(words).items() if count > 1] == []


@pytest.mark.parametrize("registry", [ALGORITHMS, COLLECTIVES, COMPRESSIONS, PARTITIONS], ids=lambda r: r.kind)
def test_every_built_in_name_of_the_axes_is_there(registry):
    names = [entry.name for entry in registry if entry.provider == "bwbench" and entry.name != "none"]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_the_parts_of_the_ledger_are_the_recorded_ones():
    ledger = next(row for row in ROWS if row.startswith("| **ledger**"))
    assert sorted(re.findall(r"compute|pad|codec|exposed|optimizer|other", ledger)) == sorted(
        part.removesuffix("_s") for part in PARTS
    )
