"""``bwbench tune`` from a file to a table, killed in between, and an experiment that uses it."""

from __future__ import annotations

import json

import pytest

from tests.e2e.program import TINY, run, start, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.timeout(900)]

# One node a training: a minute or two for the whole search.
TUNED = "algorithm: single\ntune: {rate: [0.1, 0.4, 1.6]}" + TINY.replace(
    "{sgd: {lr: 0.05}}", "{tuned: rates.yaml}"
).replace("accuracy: 0.99", "accuracy: 0.7").replace("640", "160").replace("1280", "3200")


def trials(folder):
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("results/.tuning/*/status.json")}


def test_a_killed_search_goes_on_and_its_table_is_used(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TUNED)
    missing = run("plan", "tiny.yaml", cwd=tmp_path)
    assert missing.returncode == 2 and "'bwbench tune tiny.yaml' makes it" in missing.stderr
    listed = json.loads(run("tune", "tiny.yaml", "--dry-run", "--json", cwd=tmp_path).stdout)
    assert (
        listed["trainings_to_run"] == 9
        and listed["rows"][0]["rates_to_run"] == [0.1, 0.4, 1.6]
        and listed["predicted_s"] > 0
    )
    assert not (tmp_path / "results").exists() and not (tmp_path / "rates.yaml").exists()

    search = start("tune", "tiny.yaml", cwd=tmp_path)
    wait_for(lambda: trials(tmp_path), 150, "the first trial")
    search.kill()
    search.wait(60)
    before = trials(tmp_path)
    result = run("tune", "tiny.yaml", "--json", cwd=tmp_path, timeout_s=700)
    assert result.returncode == 0, result.stderr
    assert before.items() <= trials(tmp_path).items(), "what was trained is not trained again"
    (row,) = json.loads(result.stdout)["rows"]
    assert row["grid"][0] < row["lr"] < row["grid"][-1] and row["seeds"] == 3
    assert len(row["trials"]) == len(row["grid"]) + 6
    assert {trial["id"] for trial in row["trials"]} <= {name.rpartition("-")[2] for name in trials(tmp_path)}
    assert all(trial["loss"] > 0 and trial["status"] == "done" for trial in row["trials"])

    assert run("run", "tiny.yaml", cwd=tmp_path).returncode == 0
    (cell,) = (tmp_path / "results" / "tiny").glob("*/cell.json")
    assert json.loads(cell.read_text())["config"]["optimizer"]["lr"] == row["lr"]
    shown = json.loads(run("status", "results", "--json", cwd=tmp_path).stdout)
    assert len(shown["cells"]) == 1
