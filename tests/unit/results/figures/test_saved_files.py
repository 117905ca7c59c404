"""PNG, PDF and JSON: equal bytes from equal records, fonts inside, no dates."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures_album import draw_all
from fixtures_records import Study, write_study
from PIL import Image

from bwbench.base.errors import ConfigError, RecordError
from bwbench.results.analysis.results import load_results
from bwbench.results.figures.album import plain

STUDY = Study(arms=("ring", "single"), repeats=2, bandwidths_mbps=(1.0, 10.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path / "results", STUDY)
    return tmp_path / "results" / "study"


def test_equal_records_give_equal_bytes_where_there_is_no_torch(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bwbench.cli.result_commands import Width, plot\n"
        "sys.modules['torch'] = None\n"  # whoever imports it fails: figures are made where there is none
        "plot(Path(sys.argv[1]), out=Path(sys.argv[2]), figure=['accuracy-over-time', 'bandwidth'], width=Width.column)"
    )
    for name, seed in (("one", "1"), ("two", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(folder), str(tmp_path / name)]
        subprocess.run(command, check=True, timeout=280, env=environment, capture_output=True)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 3 * (2 + 1)
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_fonts_are_inside_and_dates_are_not(folder: Path, tmp_path: Path) -> None:
    drawn = draw_all(load_results(folder), tmp_path, ["bandwidth"])
    png, pdf, _ = drawn.paths
    content = pdf.read_bytes()
    assert b"/FontFile2" in content and b"/Type3" not in content
    assert b"CreationDate" not in content
    assert not re.search(rb"tIME|Creation", png.read_bytes())
    with Image.open(png) as image:
        assert image.width == 1400  # 7 in at 200 dpi


def test_one_format_alone(folder: Path, tmp_path: Path) -> None:
    for formats in (["pdf"], ["png"], []):
        drawn = draw_all(load_results(folder), tmp_path / f"only-{'-'.join(formats)}", ["bandwidth"], formats=formats)
        assert [path.suffix[1:] for path in drawn.paths] == [*formats, "json"]
        assert sorted(path.name for path in drawn.paths) == sorted(
            path.name for path in drawn.paths[0].parent.iterdir()
        )


def test_files_say_which_group_they_show(folder: Path, tmp_path: Path) -> None:
    drawn = draw_all(load_results(folder), tmp_path, ["bandwidth", "step-time"])
    assert sorted({path.stem for path in drawn.paths}) == ["bandwidth", "step-time_10Mbps", "step-time_1Mbps"]
    some = draw_all(load_results(folder), tmp_path / "some", ["bandwidth", "step-time"], at=["10Mbps", "54Mbps"])
    assert sorted({path.stem for path in some.paths}) == ["bandwidth", "step-time_10Mbps"]


def test_several_experiments_get_a_folder_each(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_study(tmp_path / "results", Study(name, arms=("ring",), repeats=1, limit_s=1.0))
    drawn = draw_all(load_results(tmp_path / "results"), tmp_path / "out", ["step-time"])
    assert sorted({path.parent.name for path in drawn.paths}) == ["first", "second"]


def test_the_table_beside_it_has_no_infinities(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, limit_s=0.3))
    drawn = draw_all(load_results(tmp_path), tmp_path / "out", ["time-to-accuracy"])
    (row,) = json.loads(drawn.paths[2].read_text())["table"]
    assert row["time_s"] is None and row["at_least_s"] >= 0.3 and row["num_censored"] == 1
    assert plain(float("nan")) is None and plain(1.5) == 1.5


def test_an_unknown_figure_and_a_folder_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'bandwidth'"):
        draw_all(load_results(folder), tmp_path, ["bandwith"])
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(RecordError, match="cannot write"):
        draw_all(load_results(folder), tmp_path / "taken", ["bandwidth"])


def test_drawing_leaves_matplotlibs_settings_alone(folder: Path, tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"font.size": 31.0}):
        before = dict(matplotlib.rcParams)
        draw_all(load_results(folder), tmp_path, ["bandwidth"])
        assert dict(matplotlib.rcParams) == before
