"""What a trial ran on, as recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.methods import native
from bwbench.records import read_record, write_record
from bwbench.records.environment import capture_environment
from bwbench.records.schema import Environment
from bwbench.results.analysis.caveats import codecs_of


def test_codecs_are_compiled_where_they_are_found_and_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.SWITCH, "python")
    assert not native.are_compiled()
    monkeypatch.setattr(native, "find", lambda: native.Found(object(), "compiled"))  # type: ignore[arg-type]
    assert native.are_compiled()


@pytest.mark.parametrize(("said", "words"), [(True, "compiled"), (False, "in Python"), (None, "")])
def test_whether_codecs_ran_compiled_is_written_and_read(tmp_path: Path, said: bool | None, words: str) -> None:
    write_record(tmp_path / "environment.json", capture_environment(compiled_codecs=said))
    assert codecs_of(read_record(Environment, tmp_path / "environment.json")) == words


def test_a_record_from_before_says_nothing_of_codecs() -> None:
    before = Environment.model_validate({"schema": 1, "host": "anna"})
    assert codecs_of(before) == codecs_of(None) == "" and "compiled_codecs" not in before.to_json()
