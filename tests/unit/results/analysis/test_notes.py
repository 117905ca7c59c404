"""What must be said of cells: the same below tables, pictures and the charts of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures_pages import write_page_study
from fixtures_records import Study, write_study

from bwbench.cli.comparison_text import comparison_notes
from bwbench.cli.outcome_table import outcome_notes
from bwbench.records import iter_cells
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.notes import notes_on
from bwbench.results.analysis.results import Reader, Results, results_of
from bwbench.results.page.payload import build_payload


def _host_bound(root: Path) -> None:
    arms = ("ddp", "ring-fp16", "no-communication", "single")
    write_study(root, Study("bound", arms=arms, step_time_s=0.005, environment={"git": {"commit": "a" * 40}}))
    write_study(root, Study("bound", arms=arms, step_time_s=0.005, nodes=8))


@pytest.mark.parametrize(("write", "beginnings"), [
    (write_page_study, ["† Composed of a run", "Arms differ in more"]),
    (_host_bound, ["⊙ Host-bound: ", "Arms differ in more"]),
])  # fmt: skip
def test_tables_pictures_and_page_say_the_same(
    tmp_path: Path, write: Callable[[Path], object], beginnings: list[str]
) -> None:
    write(tmp_path)
    groups: list[Results] = results_of(iter_cells(tmp_path), Reader())
    for group in groups:
        said = notes_on(group.done, group.cells.to_dict("records"))
        assert [note[: len(begins)] for note, begins in zip(said, beginnings, strict=False)] == beginnings
        assert group.notes[-len(said) :] == said, "below pictures"
        assert comparison_notes(compare_cells(group.folders, "ddp"), group.folders)[-len(said) :] == said
        assert [note for note in outcome_notes(group.done, {}) if not note.startswith(("‡", "n = 1"))] == said
        payload: Any = build_payload(group.folders, "x")
        in_words = [note.removeprefix("† ").removeprefix("⊙ ") for note in said]
        assert payload["groups"][0]["notes"][-len(said) :] == in_words
