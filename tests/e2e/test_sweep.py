"""A sweep of several files over real (emulated) links: shared, interrupted, watched, and on a disk that fills up."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import BWBENCH, TINY, family, run, start, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.timeout(400)]

LONG = TINY.replace("samples: 1280", "samples: 2000000")


def write(folder: Path) -> None:
    """Two experiments, two cells each."""
    (folder / "experiments").mkdir()
    for name, arms in (("first", "ring, single"), ("second", "threshold, single")):
        text = TINY.replace("name: tiny", f"name: {name}") + f"matrix: {{algorithm: [{arms}]}}\n"
        (folder / "experiments" / f"{name}.yaml").write_text(text)


def statuses(results: Path) -> dict[str, tuple[str, int]]:
    found = {}
    for file in results.glob("*/*/status.json"):
        status = json.loads(file.read_text())
        found[f"{file.parts[-3]}/{status['slug']}"] = (status["status"], status["attempt"])
    return found


def test_two_processes_share_a_folder_and_every_cell_runs_once(tmp_path: Path) -> None:
    write(tmp_path)
    both = [start("sweep", cwd=tmp_path) for _ in range(2)]
    assert [process.wait(180) for process in both] == [0, 0], (tmp_path / "messages").read_text()
    found = statuses(tmp_path / "results")
    assert len(found) == 4 and set(found.values()) == {("done", 1)}
    assert {path.name for path in tmp_path.rglob("results/**/.*")} == {".lock"}
    again = run("sweep", "--dry-run", cwd=tmp_path)
    assert again.returncode == 0 and "4 cells, 0 to run" in again.stderr


def test_a_running_cell_is_seen_from_elsewhere_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(LONG)
    process = start("sweep", "long.yaml", cwd=tmp_path)

    def training() -> dict[str, object] | None:
        (cell,) = json.loads(run("status", "results", "--json", cwd=tmp_path).stdout)["cells"]
        return cell if (cell["running"] or {}).get("samples") else None

    wait_for(lambda: list(tmp_path.glob("results/tiny/*/attempt-1")), 60, "the first attempt")
    cell = wait_for(training, 60, "an evaluation that status shows")
    assert cell["status"] == "running" and cell["running"]["pid"] == process.pid
    assert cell["running"]["phase"] == "training" and "of at most 2000000 samples" in cell["reason"]
    process.kill()
    process.wait()
    wait_for(lambda: not family(tmp_path), 20, "the end of all processes")
    (cell,) = json.loads(run("status", "results", "--json", cwd=tmp_path).stdout)["cells"]
    assert cell["status"] == "unfinished" and cell["running"] is None
    planned = run("plan", "long.yaml", cwd=tmp_path)
    assert "interrupted before" in planned.stdout


def test_a_failing_cell_is_told_and_the_end_as_well(tmp_path: Path) -> None:
    bad = TINY.replace("lr: 0.05", "lr: 1e10").replace("model: logistic", "model: mlp")
    (tmp_path / "bad.yaml").write_text(bad + "repeats: 5\n")
    told = 'echo "$BWBENCH_EVENT $BWBENCH_STATUS $BWBENCH_ARM $BWBENCH_DONE" >> told'
    result = run("sweep", "bad.yaml", "--notify", told, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert "2 cells were skipped" in result.stderr or "3 cells diverged the same way" in result.stderr
    lines = (tmp_path / "told").read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["cell", "diverged"]] * 3 + [["end", "failed"]]
    assert len(statuses(tmp_path / "results")) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_disk_that_fills_up_midway_ends_clearly_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    write(tmp_path)
    small = tmp_path / "small"
    small.mkdir()
    sweep = f"{' '.join(BWBENCH)} sweep --results small"
    script = f"""
        mount -t tmpfs -o size=600k tmpfs small || exit 99
        {sweep} --only experiment=first || exit 98
        find small -name status.json | sort | xargs cat > before
        dd if=/dev/zero of=small/filler bs=1k 2> /dev/null
        {sweep}; echo "code $?"
        find small/first -name status.json | sort | xargs cat > after
        cmp before after && echo intact
        find small -name '*.part'
        rm small/filler
        {sweep} && echo complete
        find small -name status.json | wc -l
    """
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    lines = result.stdout.splitlines()
    assert "code 3" in lines, result.stderr
    assert "No space left" in result.stderr and "make room" in result.stderr and "Traceback" not in result.stderr
    assert "intact" in lines and "complete" in lines and lines[-1] == "4", result.stdout + result.stderr
    assert not [line for line in lines if line.endswith(".part")]


def test_an_interrupted_sweep_leaves_nothing_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(LONG)
    process = start("sweep", "long.yaml", "--notify", 'echo "$BWBENCH_EVENT $BWBENCH_STATUS" > told', cwd=tmp_path)
    wait_for(lambda: list(tmp_path.glob("results/tiny/*/attempt-1/rank1.jsonl")), 60, "the first attempt")
    process.terminate()
    assert process.wait(60) == 130
    assert (tmp_path / "told").read_text() == "end interrupted\n"
    wait_for(lambda: not family(tmp_path), 20, "the workers' end")
    assert set(statuses(tmp_path / "results").values()) == {("interrupted", 1)}
    assert not list(tmp_path.rglob(".claim"))
