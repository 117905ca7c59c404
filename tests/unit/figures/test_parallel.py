"""Drawing in several processes gives what drawing in one does."""

from __future__ import annotations

from pathlib import Path

from fixtures_records import Study, write_study

from bwbench.analysis.results import load_results
from bwbench.figures.album import Drawn
from bwbench.figures.parallel import draw_albums

ARMS = ("ddp", "ring", "single")


def test_several_processes_draw_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_study(tmp_path / "results" / name, Study(name, arms=ARMS, bandwidths_mbps=(5.0, 20.0), repeats=1))
    (tmp_path / "results" / "one" / "one").rename(tmp_path / "results" / "a")
    (tmp_path / "results" / "two" / "two").rename(tmp_path / "results" / "b")
    results = load_results(tmp_path / "results")

    def drawn(jobs: int) -> tuple[Drawn, dict[str, bytes]]:
        out = tmp_path / f"jobs-{jobs}"
        found = draw_albums(results, out, ["bandwidth", "time-to-accuracy"], jobs=jobs)
        return found, {str(path.relative_to(out)): path.read_bytes() for path in found.paths}

    (alone, alone_bytes), (shared, shared_bytes) = drawn(1), drawn(2)
    assert alone_bytes == shared_bytes
    assert [path.name for path in alone.paths] == [path.name for path in shared.paths]
    assert {path.split("/")[0] for path in alone_bytes} == {"one", "two"}
    assert (alone.notes, alone.skipped) == (shared.notes, shared.skipped)


def test_one_experiment_gets_a_folder_where_that_is_asked_for(tmp_path: Path) -> None:
    write_study(tmp_path / "results", Study("one", arms=ARMS, repeats=1))
    drawn = draw_albums(load_results(tmp_path / "results"), tmp_path / "out", ["time-to-accuracy"], folders=True)
    assert {path.parent.name for path in drawn.paths} == {"one"}
