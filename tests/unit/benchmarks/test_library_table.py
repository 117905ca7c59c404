"""benchmarks/library_table.py: what the ends of all ranks are taken for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from library_table_parts.processes import End, Report
from library_table_parts.rig import Case
from library_table_parts.verdicts import good, outcome

LOST_PEER = "RuntimeError: communication failed: [pair.cc:553] Connection closed by peer"


def ended(value: float | None = None, error: str = "", warnings: tuple[str, ...] = ()) -> End:
    found = None if value is None else {"weight": torch.tensor([1.0, value])}
    return End(Report(found, error, warnings), killed_by="", hung=False, last_words="")


def killed(signal: str) -> End:
    return End(None, killed_by=signal, hung=False, last_words="terminate called\n  what(): EnforceNotMet")


def case(**facts: object) -> Case:
    return Case("some", "group", lambda rig: None, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "truth", "ends", "word", "is_good"),
    [
        ({}, ended(2.0), [ended(2.0), ended(2.0 + 1e-6)], "right", True),
        ({}, ended(2.0), [ended(2.0), ended(2.1)], "wrong", False),
        ({}, ended(float("nan")), [ended(float("nan"))] * 2, "right", True),
        ({}, ended(2.0), [ended(float("nan")), ended(2.0)], "wrong", False),
        ({"names": "late"}, ended(2.0), [ended(2.1, warnings=("too late",))] * 2, "warned", False),
        ({"names": "late", "warning": True}, ended(2.0), [ended(2.1, warnings=("too late",))] * 2, "warned", True),
        ({"names": "late", "warning": True}, None, [ended(2.1, warnings=("too late",)), ended(2.1)], "wrong", False),
        ({"names": "shape"}, None, [ended(error="ConfigError: a shape")] * 2, "refused", True),
        ({"names": "shape"}, None, [ended(error="ConfigError: a shape"), ended(error=LOST_PEER)], "raises", False),
        ({"names": "shape"}, None, [ended(error="ConfigError: a shape"), ended(2.0)], "raises", False),
        ({"names": "shape"}, None, [ended(error="AttributeError: no shape")] * 2, "raises", False),
        ({"truth": False}, None, [ended(2.0)] * 2, "wrong", False),
        ({}, ended(error="KeyError: x"), [ended(error="KeyError: x")] * 2, "right", True),
        ({}, ended(error="KeyError: x"), [ended(2.0)] * 2, "wrong", False),
        ({"lost": "last"}, None, [ended(error=LOST_PEER), ended(2.0)], "ended", True),
        ({"lost": "last"}, None, [ended(2.0), ended(error="ValueError: own")], "raises", False),
        ({"lost": "first"}, None, [ended(2.0), ended(error=LOST_PEER)], "ended", True),
        ({"lost": "last"}, None, [ended(2.0)] * 2, "wrong", False),
        ({}, ended(2.0), [ended(2.0), killed("SIGABRT")], "aborted", False),
        ({}, ended(2.0), [ended(2.0), End(None, "", hung=True, last_words="")], "hangs", False),
    ],
)
def test_one_word_for_the_ends_of_all_ranks(
    facts: dict[str, object], truth: End | None, ends: list[End], word: str, is_good: bool
) -> None:
    found = outcome(case(**facts), truth, ends)
    assert (found.word, good(case(**facts), found)) == (word, is_good), found
