"""Cells as runs of TensorBoard and MLflow, read back by these programs; and one line where they are not installed."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures_pages import write_page_study
from fixtures_records import Study, write_study

from bwbench.base.errors import ConfigError, RecordError
from bwbench.cli.result_commands import TableFormat, TableRows, export
from bwbench.records import iter_cells
from bwbench.records.lock import claimed
from bwbench.results.analysis.cell_arrival import kept_curve
from bwbench.results.trackers import TrackedPoint, tracked_runs

STUDY = Study(
    "wifi", arms=("ddp", "ring-fp16", "single"), repeats=2,
    statuses={("ddp", 1): ("missing", ""), ("ring-fp16", 1): ("failed", "rank 2: boom")},
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_study(tmp_path / "results", STUDY)
    return tmp_path / "results"


@pytest.fixture
def their_warnings_are_theirs() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_a_cell_becomes_a_run(results: Path) -> None:
    refused: list[Any] = []
    runs = {run.name.rpartition("-")[0]: run for run in tracked_runs(list(iter_cells(results)), refused)}
    assert len(runs) == 5 and refused == [], "the cell that has not begun is none"
    ring = runs["ring-fp16-cnn-10mbps-r0"]
    assert ring.began_unix_s == 1.7e9 and ring.status == "done" and ring.experiment == "wifi"
    assert ring.params["optimizer.lr"] == 0.05 and ring.params["link.bandwidth"] == "10 Mbit/s"
    assert ring.varied == {"arm": "ring-fp16", "nodes": 4, "algorithm.name": "every-step", "collective.name": "ring",
                           **{key: ring.params[key] for key in ring.varied if key.startswith(("link.", "compr"))},
                           "seed": 0}  # fmt: skip
    assert ring.tags["arm"] == "ring-fp16" and ring.outcomes["time_to_target_s"] > 0
    assert {"validation/accuracy", "validation/loss", "train/loss", "train/lr", "train/step_s"} <= ring.curves.keys()
    first, *_, last = ring.curves["validation/accuracy"]
    assert first.samples == 0 and first.clock_s == pytest.approx(0, abs=1e-3)
    assert ring.curves["train/loss"][0] == TrackedPoint(128, ring.curves["train/step_s"][0].clock_s, 1.0)
    assert last.samples == ring.outcomes["samples"]
    assert runs["ring-fp16-cnn-10mbps-r1"].tags["reason"] == "rank 2: boom"


def test_a_composed_cell_has_its_curve_and_no_steps(tmp_path: Path) -> None:
    runs = list(tracked_runs(write_page_study(tmp_path), []))
    composed = next(run for run in runs if run.tags["composed"] == "True")
    assert composed.curves["validation/accuracy"] and "train/loss" not in composed.curves


def test_a_cell_whose_events_cannot_be_read_is_left_out(results: Path) -> None:
    cells, refused = list(iter_cells(results)), []
    rank = next(results.glob("wifi/single-*/attempt-1/rank0.jsonl"))
    rank.write_text("{no event}\n" + rank.read_text())
    assert len(list(tracked_runs(cells, refused))) == 4
    (why,) = refused
    assert "rank0.jsonl" in str(why)


@pytest.mark.usefixtures("their_warnings_are_theirs")
def test_tensorboard_reads_what_was_exported(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tensorboardX", "tensorboard"):
        pytest.importorskip(name, reason=f"{name} is not installed (extra [tensorboard])")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "runs"
    for _ in range(2):  # once more replaces what was there
        assert export(results, TableFormat.tensorboard, out) == 0
        captured = capsys.readouterr()
        assert captured.out == f"{out}\n" and f"5 runs; `tensorboard --logdir {out}` shows them" in captured.err
    folder = next(out.glob("wifi/ring-fp16-cnn-10mbps-r0-*"))
    assert len(list(folder.iterdir())) == 1
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    cell = next(cell for cell in iter_cells(results) if cell.path.name == folder.name)
    curve, shown = kept_curve(cell), read.Scalars("validation/accuracy")
    assert [one.step for one in shown] == [point.samples for point in curve]
    assert [one.value for one in shown] == pytest.approx([point.metrics["accuracy"] for point in curve], rel=1e-6)
    assert [one.wall_time - 1.7e9 for one in shown] == pytest.approx([point.clock_s for point in curve], abs=1e-5)
    assert read.Scalars("outcome/time_to_target_s")[0].value == pytest.approx(cell.status.time_to_target_s, rel=1e-6)
    assert "_hparams_/session_start_info" in read.summary_metadata


@pytest.mark.usefixtures("their_warnings_are_theirs")
def test_mlflow_reads_what_was_exported(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed (extra [mlflow])")
    from mlflow import MlflowClient

    out = tmp_path / "runs"
    for _ in range(2):
        assert export(results, TableFormat.mlflow, out) == 0
        shown = f"`mlflow ui --backend-store-uri sqlite:///{out}/mlflow.db` shows them"
        assert f"5 runs; {shown}" in capsys.readouterr().err
    client = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("wifi")
    assert experiment is not None
    runs = {run.data.tags["mlflow.runName"].rpartition("-")[0]: run
            for run in client.search_runs([experiment.experiment_id])}  # fmt: skip
    assert len(runs) == 5
    ring = runs["ring-fp16-cnn-10mbps-r0"]
    assert ring.info.status == "FINISHED" and runs["ring-fp16-cnn-10mbps-r1"].info.status == "FAILED"
    assert ring.data.params["optimizer.lr"] == "0.05" and ring.data.tags["arm"] == "ring-fp16"
    history = client.get_metric_history(ring.info.run_id, "validation/accuracy")
    cell = next(cell for cell in iter_cells(results) if cell.path.name == ring.data.tags["mlflow.runName"])
    assert history[-1].value == pytest.approx(cell.status.final_metric)
    assert ring.info.start_time == 1_700_000_000_000
    began = [(one.timestamp - ring.info.start_time) / 1000 for one in history]
    assert began == pytest.approx([point.clock_s for point in kept_curve(cell)], abs=1e-3)
    assert not Path("mlruns").exists(), "nothing lies where nobody asked for it"
    assert len(client.get_metric_history(ring.info.run_id, "train/loss")) == cell.status.steps


@pytest.mark.usefixtures("their_warnings_are_theirs")
def test_a_run_that_is_not_done_has_mlflows_word_for_why(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed (extra [mlflow])")
    from mlflow import MlflowClient

    words = ("done", "unfinished", "unfinished", "interrupted", "diverged")
    statuses = {("ddp", repeat): (word, "") for repeat, word in enumerate(words)}
    write_study(tmp_path, Study("wifi", arms=("ddp",), repeats=len(words), statuses=statuses))
    (running,) = tmp_path.glob("wifi/ddp-*-r1-*")
    out = tmp_path / "runs"
    with claimed(running):
        export(tmp_path / "wifi", TableFormat.mlflow, out)
    client = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    found = client.search_runs([client.get_experiment_by_name("wifi").experiment_id])
    by_seed = {int(run.data.params["seed"]): run for run in found}
    assert [by_seed[seed].info.status for seed in range(len(words))] == [
        "FINISHED", "RUNNING", "KILLED", "KILLED", "FAILED",
    ]  # fmt: skip
    assert by_seed[1].info.end_time is None and by_seed[1].data.tags["status"] == "running"
    assert by_seed[2].info.end_time > by_seed[2].info.start_time


@pytest.mark.usefixtures("their_warnings_are_theirs")
def test_a_database_that_is_none_is_said_in_a_line(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed (extra [mlflow])")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mlflow.db").write_text("no database, but a text that is long enough to be told from one" * 9)
    with pytest.raises(RecordError, match="mlflow cannot write its database"):
        export(results, TableFormat.mlflow, tmp_path / "runs")


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_a_missing_extra_is_one_line_with_what_to_do(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str
) -> None:
    for name in ("tensorboardX", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # whoever imports it fails
    with pytest.raises(ConfigError) as refused:
        export(results, TableFormat(tracker), tmp_path / "runs")
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"--to {tracker} needs ") and f"'pip install \"bwbench[{tracker}]\"' brings it" in line
    assert not (tmp_path / "runs").exists()


def test_options_of_tables_are_refused(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--what, --baseline and --target are for tables"):
        export(results, TableFormat.tensorboard, tmp_path / "runs", TableRows.steps)
    with pytest.raises(ConfigError, match="for tables"):
        export(results, TableFormat.mlflow, tmp_path / "runs", target="accuracy=0.5")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        export(results, TableFormat.tensorboard, tmp_path / "file")


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_runs_are_written_without_torch(results: Path, tmp_path: Path, tracker: str) -> None:
    pytest.importorskip({"tensorboard": "tensorboardX"}.get(tracker, tracker), reason=f"extra [{tracker}]")
    code = f"""
import sys
sys.modules["torch"] = None
from bwbench.cli.main import _run
sys.exit(_run(["export", {str(results)!r}, "--to", {tracker!r}, "--out", {str(tmp_path / "runs")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
