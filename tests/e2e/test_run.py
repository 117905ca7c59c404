"""From a YAML file to records and figures, over a real (emulated) link."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.methods.native import are_compiled
from tests.e2e.program import TINY, run, status_of

pytestmark = [pytest.mark.netns, pytest.mark.main_job]

MATRIX = TINY + "matrix:\n  algorithm: [ring, single]\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.yaml").write_text(MATRIX)
    result = run("run", "tiny.yaml", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "single" in result.stdout and "ring" in result.stdout
    return folder


def test_every_file_of_the_result_folder_is_there(finished: Path) -> None:
    for arm, status in status_of(finished / "results").items():
        assert status["status"] == "done"
        assert status["censored_at_s"] is not None, f"{arm} cannot reach 99 %"
        assert status["replicas_identical"] is not False
        assert status["ledger_error"] <= 0.02
    (ring,) = (finished / "results" / "tiny").glob("*ring*")
    link = json.loads((ring / "attempt-1" / "link.json").read_text())
    assert link["achieved_before"]["verdict"] == "ok" and link["achieved_after"]["verdict"] == "ok"
    assert len(link["achieved_before"]["pairs"]) == 2
    environment = json.loads((ring / "attempt-1" / "environment.json").read_text())
    assert environment["compiled_codecs"] is are_compiled()
    written = {path.name for path in ring.glob("attempt-1/rank*")}
    assert written == {f"rank{rank}.{ending}" for rank in (0, 1) for ending in ("jsonl", "log")}


def test_wire_bytes_are_the_payload_plus_headers(finished: Path) -> None:
    (ring,) = (finished / "results" / "tiny").glob("*ring*")
    wire = json.loads((ring / "attempt-1" / "link.json").read_text())["wire"]
    assert wire["steps"] == 20
    assert 0 < wire["control_bytes"] < 20 * 2 * 1_000
    assert 1.0 < wire["ratio"] < 1.35, "a logistic model is 2.6 kB: headers weigh more than on full frames"


ROUND_THE_LINK = """
import time

from bwbench.base.registry import ALGORITHMS
from bwbench.methods.algorithms import ExchangeReport
from bwbench.methods.algorithms.buckets import RunningLocally
from bwbench.methods.algorithms.single import Single


class Escape(Single):
    needs_peers = True
    role = "method"

    def attach(self, context):
        return Escaping(context)


class Escaping(RunningLocally):
    def finish(self):
        ready_mono_s = time.monotonic()
        for gradients in self._gradients.flat:
            self._context.control.average(gradients)
        return ExchangeReport(ready_mono_s=ready_mono_s, exposed_s=time.monotonic() - ready_mono_s)


ALGORITHMS.register("escape", Escape, "Averages on the control path.")
"""


def test_a_method_that_goes_round_the_link_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "escape.py").write_text(ROUND_THE_LINK)
    (tmp_path / "tiny.yaml").write_text(TINY + "plugins: [escape.py]\nalgorithm: escape\n")
    result = run("run", "tiny.yaml", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "invalid" and "unshaped control path" in status["reason"]


def test_the_same_command_again_runs_nothing(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.glob("results/tiny/*/status.json")}
    result = run("run", "tiny.yaml", cwd=finished)
    assert result.returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in finished.glob("results/tiny/*/status.json")}


def test_status_and_figures_come_from_the_folder_alone(finished: Path) -> None:
    listed = run("status", "results", "--json", cwd=finished)
    assert {cell["status"] for cell in json.loads(listed.stdout)["cells"]} == {"done"}
    plotted = run("plot", "results", cwd=finished)
    assert plotted.returncode == 0, plotted.stderr
    for line in plotted.stdout.splitlines():
        assert (finished / line).stat().st_size > 500


def test_a_data_set_that_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(MATRIX.replace("dataset: digits", "dataset: fashion-mnist"))
    result = run("run", "tiny.yaml", cwd=tmp_path, BWBENCH_DATA=str(tmp_path / "nowhere"))
    assert result.returncode == 2
    assert "bwbench data fetch fashion-mnist" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "results").exists()


def test_a_file_where_the_results_should_go_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(MATRIX)
    (tmp_path / "taken").write_text("a file")
    result = run("run", "tiny.yaml", "--results", "taken", cwd=tmp_path)
    assert result.returncode == 3
    assert "taken" in result.stderr and "Traceback" not in result.stderr


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(MATRIX)
    result = run("run", "tiny.yaml", "--dry-run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "results").exists()
