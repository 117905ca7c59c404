"""Results in Python: tables and pictures of records, and what ``run`` refuses before anything starts."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
from fixtures_given import GOOD
from fixtures_records import Study as MadeUp
from fixtures_records import write_study

import bwbench
from bwbench.base.errors import ConfigError
from bwbench.cli.result_commands import TableFormat, TableRows, export
from bwbench.results.publish import publish

MADE_UP = MadeUp(
    "wifi", arms=("ddp", "ring-fp16", "threshold", "single"), bandwidths_mbps=(1.0, 10.0), repeats=2,
    statuses={("threshold", 1): ("failed", "rank 2: connection reset by peer")},
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "results"
    write_study(folder, MADE_UP)
    return folder


@pytest.fixture
def study(results: Path) -> bwbench.Study:
    return bwbench.load(results)


def test_tables_are_those_of_export(study: bwbench.Study, results: Path, tmp_path: Path) -> None:
    for what in ("cells", "evaluations", "steps"):
        out = tmp_path / f"{what}.csv"
        export(results, TableFormat.csv, out, TableRows(what))
        exported, given = pd.read_csv(out), getattr(study, what)()
        assert list(given.columns) == list(exported.columns) and len(given) == len(exported) > 0
    cells = study.cells()
    assert set(cells["status"]) == {"done", "failed"} and len(study) == len(cells)
    assert cells["time_to_target_s"].dtype == float
    failed = cells[cells["status"] == "failed"]
    assert set(failed["reason"]) == {"rank 2: connection reset by peer"}


def test_it_is_shown_in_a_line_and_in_a_notebook(study: bwbench.Study) -> None:
    assert repr(study) == "<Study of wifi: 14 cells, 12 done, 2 failed>"
    shown = study._repr_html_()
    assert "<table" in shown and "ring-fp16" in shown and "failed" in shown and "experiment" not in shown


def test_a_baseline_is_compared_with(study: bwbench.Study, capsys: pytest.CaptureFixture[str]) -> None:
    table = study.compare("ddp")
    assert {"algorithm", "ratio", "ratio_low", "ratio_high", "step_ratio", "n"} <= set(table.columns)
    assert set(table["algorithm"]) == {"ring-fp16", "threshold", "single"}
    slow = table[table["group.link.bandwidth"] == "1 Mbit/s"].set_index("algorithm")["ratio"]
    assert slow["threshold"] > slow["ring-fp16"] > 1
    assert "note: Left out: 2 failed" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"^baseline: no arm 'ring-fp61' there\. Did you mean 'ring-fp16'"):
        study.compare("ring-fp61")
    with pytest.raises(ConfigError, match=r"^by: no key 'link\.bandwith'"):
        study.compare("ddp", by="link.bandwith")


def test_another_target_is_asked_of_the_same_cells(study: bwbench.Study) -> None:
    easier = study.at_target(accuracy=0.5).cells()
    assert set(easier["target_value"].dropna()) == {0.5}
    with pytest.raises(ConfigError, match="at_target"):
        study.at_target()


@pytest.mark.parametrize("asked", [{}, {"accuracy": "0.8"}, {"accuracy": float("nan")}, {"accuracy": 0.8, "loss": 1.0}])
def test_a_target_that_is_none_is_refused(study: bwbench.Study, asked: dict[str, object]) -> None:
    with pytest.raises(bwbench.ConfigError, match="one metric and its value"):
        study.at_target(**asked)


def test_published_sets_are_taken_where_they_are_asked_for(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results, tmp_path / "results")
    (done,) = publish(tmp_path / "results")
    done.path.parent.rename(done.path.parent.with_name("theirs"))
    own = len(bwbench.load(tmp_path / "results"))
    assert "published sets left out: theirs" in capsys.readouterr().err
    assert len(bwbench.load(tmp_path / "results", published=True)) > own


def test_pictures_are_shown_and_saved(study: bwbench.Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = study.plot("bandwidth")
    assert [picture.name for picture in pictures] == ["bandwidth"]
    assert pictures[0]._repr_png_().startswith(b"\x89PNG") and len(pictures[0].table) > 4
    pictures[0].save(tmp_path / "bandwidth.pdf")
    assert (tmp_path / "bandwidth.pdf").read_bytes().startswith(b"%PDF")
    over_time = study.plot("accuracy-over-time")
    assert [one.name for one in over_time] == ["accuracy-over-time_1Mbps", "accuracy-over-time_10Mbps"]
    assert [one.name for one in study.plot("accuracy-over-time", at="10Mbps")] == ["accuracy-over-time_10Mbps"]
    capsys.readouterr()
    with pytest.raises(ConfigError, match="Did you mean 'bandwidth'"):
        study.plot("bandwith")
    with pytest.raises(ConfigError, match=r"no picture is of '3Mbps'; there are wifi \(1Mbps\), wifi \(10Mbps\)"):
        study.plot("accuracy-over-time", at="3Mbps")
    with pytest.raises(ConfigError, match="there is nothing to draw"):
        study.plot("batch-size")


def test_a_notebook_shows_one_picture_below_the_other(study: bwbench.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    display = types.SimpleNamespace(display=lambda *objects: shown.extend(objects))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    pictures = study.plot("accuracy-over-time")
    pictures._ipython_display_()
    assert shown == list(pictures)


def test_a_cell_that_cannot_be_read_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_study(tmp_path, MADE_UP)
    (folders[0] / "status.json").write_text('{"status": "do')
    rank = folders[1] / "attempt-1" / "rank0.jsonl"
    lines = rank.read_text().splitlines()
    rank.write_text("\n".join(["{no event}", *lines]) + "\n")
    study = bwbench.load(tmp_path)
    assert len(study) == len(folders) - 1
    assert "note: 1 cell is unreadable" in capsys.readouterr().err
    assert set(study.evaluations()["id"]) == set(study.cells()["id"]) - {folders[1].name.rpartition("-")[2]}
    assert "rank0.jsonl" in capsys.readouterr().err
    study.plot("accuracy-over-time")
    assert "rank0.jsonl" in capsys.readouterr().err


def test_loading_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        bwbench.load(tmp_path / "gone")
    with pytest.raises(ConfigError, match="holds no records"):
        bwbench.load(tmp_path)


def test_run_refuses_as_the_command_does(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nnodes: four\nlink: {bandwidth: 10 Mbit/s}\nmodel: mlp\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml:2: nodes: 'four' is not a whole number"):
        bwbench.run(file, results=tmp_path / "results")
    with pytest.raises(ConfigError, match=r"experiment\['nodes'\]: nodes: 0"):
        bwbench.run({**GOOD, "nodes": 0}, results=tmp_path / "results")
    with pytest.raises(ConfigError, match=r"override\['nodes'\]: nodes: 0"):
        bwbench.run(GOOD, override={"nodes": 0}, results=tmp_path / "results")
    with pytest.raises(ConfigError, match="--only arm=rng leaves no cell"):
        bwbench.run(GOOD, only={"arm": "rng"}, results=tmp_path / "results")
    with pytest.raises(ConfigError, match="'lost' is no status"):
        bwbench.run(GOOD, retry=["lost"], results=tmp_path / "results")
    with pytest.raises(ConfigError, match="mode: 'fast' is no mode"):
        bwbench.run(GOOD, mode="fast", results=tmp_path / "results")
    with pytest.raises(ConfigError, match="is a folder"):
        bwbench.run(tmp_path)
    with pytest.raises(ConfigError, match="a int is no experiment"):
        bwbench.run(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"no such file"):
        bwbench.run(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="'bwbench launch-script FILE' prints the file"):
        bwbench.run({**GOOD, "launcher": "external", "link": "unshaped", "matrix": {"algorithm": ["ring"]}})
    assert not (tmp_path / "results").exists(), "nothing was started, nothing written"


def test_hosts_are_refused_inside_of_an_event_loop(tmp_path: Path) -> None:
    on_hosts = {**GOOD, "launcher": "ssh", "hosts": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]}

    async def in_a_notebook() -> None:
        bwbench.run(on_hosts, results=tmp_path)

    with pytest.raises(ConfigError, match="launcher: ssh cannot be driven from a notebook"):
        asyncio.run(in_a_notebook())


def test_a_notebook_shows_the_message_of_a_mistake_alone() -> None:
    assert ConfigError("x.yaml:3: bad")._render_traceback_() == ["ConfigError: x.yaml:3: bad"]


def test_tables_and_pictures_need_no_torch(results: Path) -> None:
    code = f"""
import sys
import bwbench
study = bwbench.load({str(results)!r})
study.cells(), study.evaluations(), study.steps(), study.compare("ddp"), study.plot("bandwidth")[0]._repr_png_()
assert not {{"torch", "IPython"}} & set(sys.modules), "it came in"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=280)
