"""Drawing in several processes gives what drawing in one does."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import RecordError
from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results, load_results
from bwbench.results.figures import album as parallel
from bwbench.results.figures.album import Drawn, draw_albums

ARMS = ("ring", "single")


def drawn_quickly(
    results: Sequence[Results], out: Path, names: Sequence[str], width_in: float, at: Sequence[str], formats: object
) -> Drawn:
    """In place of pictures: what would be drawn, and by which process."""
    out.mkdir(parents=True, exist_ok=True)
    experiment = results[0].experiment
    if experiment == "broken":
        raise RecordError("cannot write the picture")
    for name in names:
        (out / name).write_text(f"{experiment} {len(results[0].cells)}")
    (out / f"process-{os.getpid()}").touch()
    return Drawn([out / name for name in names], [f"{experiment}: nothing"], ["a note of all"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "draw_album", drawn_quickly)


def experiments(folder: Path, *names: str) -> list[Results]:
    for name in names:
        write_study(folder, Study(name, arms=ARMS, repeats=1, limit_s=1.0))
    return load_results(folder)


def test_several_processes_draw_the_same(tmp_path: Path) -> None:
    results = experiments(tmp_path / "results", "one", "two")

    def drawn(jobs: int) -> tuple[Drawn, dict[str, str], set[int]]:
        out = tmp_path / f"jobs-{jobs}"
        found = draw_albums(results, out, jobs=jobs)
        texts = {str(path.relative_to(out)): path.read_text() for path in found.paths}
        return found, texts, {int(path.name.partition("-")[2]) for path in out.glob("*/process-*")}

    (alone, alone_texts, here), (shared, shared_texts, others) = drawn(1), drawn(2)
    assert alone_texts == shared_texts
    assert set(alone_texts) == {f"{name}/{figure}" for name in ("one", "two") for figure in FIGURES.names()}
    assert [path.name for path in alone.paths] == [path.name for path in shared.paths]
    assert (alone.notes, alone.skipped) == (shared.notes, shared.skipped)
    assert alone.notes == ["a note of all"]
    assert here == {os.getpid()} and os.getpid() not in others


def test_an_error_in_another_process_is_the_error_of_all(tmp_path: Path) -> None:
    results = experiments(tmp_path / "results", "broken", "one")
    with pytest.raises(RecordError, match="cannot write the picture"):
        draw_albums(results, tmp_path / "out", jobs=2)


@pytest.mark.parametrize(("folders", "parent"), [(True, "one"), (False, "out")])
def test_one_experiment_gets_a_folder_where_that_is_asked_for(tmp_path: Path, folders: bool, parent: str) -> None:
    results = experiments(tmp_path / "results", "one")
    drawn = draw_albums(results, tmp_path / "out", ["time-to-accuracy"], folders=folders)
    assert [path.parent.name for path in drawn.paths] == [parent]


def test_a_killed_process_ends_it_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> Drawn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")

    monkeypatch.setattr(parallel, "draw_album", killed)
    with pytest.raises(RecordError, match="was killed"):
        draw_albums(experiments(tmp_path / "results", "one", "two"), tmp_path / "out", jobs=2)
