"""Which source of a plugin a cell was trained with is recorded, and a plan says where it has changed since."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from bwbench.base.registry import COMPRESSIONS
from bwbench.experiment.config import CellConfig, load_experiment
from bwbench.experiment.plan.assess import PlannedCell, doubts
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.plugin_sources import digest_of_package, outdated, sources_of
from bwbench.records.environment import capture_environment
from bwbench.records.files import write_record

CODEC = """\
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression.codec import NoCompression


class {name}(NoCompression):
    pass
"""
STUDY = """\
name: study
nodes: 2
link: unshaped
model: logistic
limit: {samples: 100}
collective: all-gather
"""


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPRESSIONS, "_entries", dict(COMPRESSIONS._entries))
    monkeypatch.setattr(COMPRESSIONS, "_classes", dict(COMPRESSIONS._classes))
    monkeypatch.setattr(COMPRESSIONS, "_entry_points_read", False)


def config_of(folder: Path, more: str) -> CellConfig:
    file = folder / "study.yaml"
    file.write_text(STUDY + more)
    return load_experiment(file).points[0].config


@pytest.fixture
def by_file(tmp_path: Path) -> tuple[CellConfig, Path]:
    """A cell with a codec of a file beside the experiment, and that file."""
    plugin = tmp_path / "of_a_file.py"
    plugin.write_text(CODEC.format(name="OfAFile") + '\n\nCOMPRESSIONS.register("of-a-file", OfAFile, "as it is")\n')
    return config_of(tmp_path, "plugins: [of_a_file.py]\ncompression: of-a-file\n"), plugin


@pytest.fixture
def by_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CellConfig, Path]:
    """A cell with a codec of another package, as if that were installed, and its module."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bwbench_packed", raising=False)  # of another test's folder
    about = tmp_path / "bwbench_packed-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bwbench-packed\nVersion: 0.1.0\nSummary: as it is\n")
    (about / "entry_points.txt").write_text("[bwbench.compression]\nof-a-package = bwbench_packed:OfAPackage\n")
    module = tmp_path / "bwbench_packed.py"
    module.write_text(CODEC.format(name="OfAPackage"))
    return config_of(tmp_path, "compression: of-a-package\n"), module


def done(folder: Path, config: CellConfig) -> PlannedCell:
    """A cell that is done, with what is recorded of its machine."""
    cell = Cell("0" * 10, "slug", "study", "arm", 0, config)
    (folder / "attempt-1").mkdir(parents=True)
    write_record(folder / "attempt-1" / "environment.json", capture_environment(sources_of(config)))
    return PlannedCell(cell, folder, "done", False, "done")


def test_what_is_not_bwbenchs_is_recorded(by_file: tuple[CellConfig, Path], tmp_path: Path) -> None:
    config, plugin = by_file
    assert sources_of(config) == {str(plugin): hashlib.sha256(plugin.read_bytes()).hexdigest()}
    assert capture_environment(sources_of(config)).plugins_sha256 == sources_of(config)
    assert sources_of(config_of(tmp_path, "compression: int2\n")) == {}


def test_an_installed_package_is_recorded_by_its_name_and_listed_by_what_it_says(
    by_package: tuple[CellConfig, Path],
) -> None:
    config, module = by_package
    assert sources_of(config) == {"bwbench_packed": hashlib.sha256(module.read_bytes()).hexdigest()}
    (entry,) = [entry for entry in COMPRESSIONS if entry.name == "of-a-package"]
    assert entry.installed and entry.summary == "as it is (from bwbench-packed)"


def test_all_files_of_a_package_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "bwbench_of_files"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/part.py", "notes.txt"):
        (package / name).write_text("# one\n")
    before = digest_of_package("bwbench_of_files")
    (package / "notes.txt").write_text("two\n")
    assert digest_of_package("bwbench_of_files") == before
    (package / "inner" / "part.py").write_text("# two\n")
    assert before is not None and digest_of_package("bwbench_of_files") not in (before, None)
    assert digest_of_package("bwbench_that_is_not_there") is None


@pytest.mark.parametrize("kind", ["by_file", "by_package"])
def test_a_plan_says_what_has_changed_since(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    config, source = request.getfixturevalue(kind)
    items = [done(tmp_path / "results" / str(number), config) for number in range(2)]
    assert doubts(items) == []
    source.write_text(source.read_text() + "\n# and something else\n")
    (text,) = doubts(items)
    assert text.startswith(f"{source.name if kind == 'by_file' else source.stem} has changed since 2 of the cells")
    assert "raise 'revision' in its class" in text


def test_nothing_is_said_where_no_record_tells(by_file: tuple[CellConfig, Path], tmp_path: Path) -> None:
    config, plugin = by_file
    folder = tmp_path / "results" / "0"
    item = done(folder, config)
    plugin.write_text(plugin.read_text() + "# changed\n")
    write_record(folder / "attempt-1" / "environment.json", capture_environment())  # of an earlier version
    assert outdated([(config, folder), (config, tmp_path / "nowhere")]) == []
    (folder / "attempt-1" / "environment.json").write_text("{")
    assert doubts([item]) == []
