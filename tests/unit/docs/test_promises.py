"""Every promise of docs/security.md names a test, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
PROMISES = re.split(r"^- ", PAGE.partition("## Promises")[2].partition("## Not promised")[0], flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda text: text[:40].replace("\n", " "))
def test_a_promise_names_a_test_that_is_there(promise: str) -> None:
    tests = re.findall(r"`(tests/[\w/]+\.py)`", promise)
    assert tests, "no test holds it"
    assert not [test for test in tests if not (ROOT / test).is_file()]
