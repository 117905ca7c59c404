"""Drawing in several processes gives what drawing in one does, and each picture as soon as it is there."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from fixtures_album import joined
from fixtures_records import Study, write_study

from bwbench.base.errors import RecordError
from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results, load_results
from bwbench.results.figures import album
from bwbench.results.figures.album import Drawn, draw_pictures
from bwbench.results.figures.choice import Picture, first_figures, pictures_of

ARMS = ("ring", "single")


def drawn_quickly(picture: Picture, folder: Path, width_in: float, formats: Sequence[str]) -> Drawn:
    """In place of a picture: what would be drawn, and by which process."""
    folder.mkdir(parents=True, exist_ok=True)
    if picture.experiment == "broken":
        raise RecordError("cannot write the picture")
    path = folder / picture.figure
    path.write_text(f"{picture.experiment} {len(picture.candidates[0].cells)}")
    (folder / f"process-{os.getpid()}").touch()
    return Drawn([path], [f"{picture.experiment}: nothing"], ["a note of all"])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(album, "draw_picture", drawn_quickly)


def experiments(folder: Path, *names: str) -> list[Results]:
    for name in names:
        write_study(folder, Study(name, arms=ARMS, repeats=1, limit_s=1.0))
    return load_results(folder)


@pytest.mark.usefixtures("quick")
def test_several_processes_draw_the_same(tmp_path: Path) -> None:
    pictures = pictures_of(experiments(tmp_path / "results", "one", "two"))

    def drawn(jobs: int) -> tuple[Drawn, dict[str, str], set[int]]:
        out = tmp_path / f"jobs-{jobs}"
        found = joined(draw_pictures(pictures, out, jobs=jobs))
        texts = {str(path.relative_to(out)): path.read_text() for path in found.paths}
        return found, texts, {int(path.name.partition("-")[2]) for path in out.glob("*/process-*")}

    (alone, alone_texts, here), (shared, shared_texts, others) = drawn(1), drawn(2)
    assert alone_texts == shared_texts
    assert set(alone_texts) == {f"{name}/{figure}" for name in ("one", "two") for figure in FIGURES.names()}
    assert [path.name for path in alone.paths] == [path.name for path in shared.paths]
    assert (alone.notes, alone.skipped) == (shared.notes, shared.skipped)
    assert alone.notes == ["a note of all"]
    assert here == {os.getpid()} and os.getpid() not in others


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("jobs", [1, 2])
def test_each_picture_comes_when_it_is_drawn(tmp_path: Path, jobs: int) -> None:
    pictures = pictures_of(experiments(tmp_path / "results", "one"), ["bandwidth", "throughput", "nodes"])
    coming = draw_pictures(pictures, tmp_path / "out", jobs=jobs)
    first = next(coming)
    assert [path.name for path in first.paths] == ["bandwidth"] and first.paths[0].is_file()
    if jobs == 1:
        assert not (tmp_path / "out" / "throughput").exists()
    assert [path.name for one in coming for path in one.paths] == ["throughput", "nodes"]


@pytest.mark.usefixtures("quick")
def test_an_error_in_another_process_is_the_error_of_all(tmp_path: Path) -> None:
    pictures = pictures_of(experiments(tmp_path / "results", "broken", "one"))
    with pytest.raises(RecordError, match="cannot write the picture"):
        joined(draw_pictures(pictures, tmp_path / "out", jobs=2))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("folders", "parent"), [(True, "one"), (False, "out")])
def test_one_experiment_gets_a_folder_where_that_is_asked_for(tmp_path: Path, folders: bool, parent: str) -> None:
    pictures = pictures_of(experiments(tmp_path / "results", "one"), ["time-to-accuracy"])
    (drawn,) = draw_pictures(pictures, tmp_path / "out", folders=folders)
    assert [path.parent.name for path in drawn.paths] == [parent]


def test_a_killed_process_ends_it_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> Drawn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")

    monkeypatch.setattr(album, "draw_picture", killed)
    pictures = pictures_of(experiments(tmp_path / "results", "one", "two"))
    with pytest.raises(RecordError, match="was killed"):
        joined(draw_pictures(pictures, tmp_path / "out", jobs=2))


def test_what_answers_first_is_a_handful_and_what_spans_settings_stands_before_the_rest() -> None:
    first = first_figures()
    spans = [bool(FIGURES.load(name).compares) for name in first]
    assert spans == sorted(spans, reverse=True) and {"accuracy-over-time", "time-to-accuracy"} <= set(first)
    assert {"bandwidth", "nodes", "topology", "links", "precision"} <= set(first)
    assert not {"step-time", "pareto", "speedup", "throughput"} & set(first)


def test_one_picture_stands_for_all_settings(tmp_path: Path) -> None:
    bandwidths = (1.0, 5.0, 20.0)
    write_study(tmp_path, Study("wifi", arms=ARMS, repeats=2, bandwidths_mbps=bandwidths, limit_s=2.0))
    results = load_results(tmp_path)
    names = ["bandwidth", "accuracy-over-time"]
    every = [(one.figure, one.candidates[0].label) for one in pictures_of(results, names)]
    assert every == [("bandwidth", ""), *(("accuracy-over-time", f"{one}Mbps") for one in (1, 5, 20))]
    (whole, of_one) = pictures_of(results, names, all_settings=False)
    assert (whole.figure, of_one.figure) == ("bandwidth", "accuracy-over-time")
    assert [one.label for one in of_one.candidates] == ["5Mbps", "1Mbps", "20Mbps"]  # from the middle outwards
    for cell in (tmp_path / "wifi").glob("ring-*-5mbps-*"):
        (cell / "status.json").unlink()
    (_, of_one) = pictures_of(load_results(tmp_path), names, all_settings=False)
    assert of_one.candidates[-1].label == "5Mbps"  # fewer of its cells are done


def test_the_first_candidate_is_drawn_that_the_figure_applies_to(tmp_path: Path) -> None:
    write_study(tmp_path, Study("wifi", arms=("ring", "ddp"), repeats=1, bandwidths_mbps=(1.0, 5.0), limit_s=1.0))
    for cell in (tmp_path / "wifi").glob("*-1mbps-*"):
        (cell / "status.json").unlink()
    (picture,) = pictures_of(load_results(tmp_path), ["step-time"], all_settings=False)
    turned = Picture(picture.figure, picture.candidates[::-1])
    for one in (picture, turned):
        drawn = joined(draw_pictures([one], tmp_path / "out", formats=[]))
        assert [path.name for path in drawn.paths] == ["step-time_5Mbps.json"] and not drawn.skipped
