"""``bwbench watch`` beside a sweep that runs, is killed, and goes on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.program import TINY, run, start, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.timeout(600)]
LONG = TINY.replace("limit: {samples: 1280}", "limit: {samples: 64000}\ncompute: {step_time: 20 ms}")
MATRIX = LONG + "matrix:\n  algorithm: [ring, single]\n"


def states(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}payload.json", timeout=30) as answer:
        payload: dict[str, Any] = json.load(answer)
    column = payload["columns"].index("status")
    return sorted(row[column] for row in payload["cells"])


def url_of(folder: Path) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:\d+/", (folder / "messages").read_text())
    return found[0] if found else None


def test_it_follows_a_sweep_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(MATRIX)
    (tmp_path / "watching").mkdir()
    sweep = start("run", "tiny.yaml", cwd=tmp_path)
    wait_for(lambda: [*tmp_path.glob("results/tiny/*/cell.json")], 60, "a plan")
    watching = start("watch", str(tmp_path / "results"), "--port", "0", cwd=tmp_path / "watching")
    url = wait_for(lambda: url_of(tmp_path / "watching"), 60, "its address")
    wait_for(lambda: "running" in states(url), 60, "a cell that runs")
    assert psutil.Process(watching.pid).nice() == 19
    refused = run("watch", "results", "--port", url.rpartition(":")[2].strip("/"), cwd=tmp_path)
    assert refused.returncode == 2 and "is in use; choose another one" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    wait_for(lambda: [*tmp_path.glob("results/tiny/*/attempt-1/rank0.jsonl")], 60, "a training")
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    wait_for(lambda: states(url) == ["missing", "unfinished"], 60, "what is left of a sweep that was killed")
    (tmp_path / "tiny.yaml").write_text(MATRIX)
    again = start("run", "tiny.yaml", "--set", "limit.samples=1280", "--set", "name=other", cwd=tmp_path)
    wait_for(lambda: states(url).count("done") == 2, 120, "the cells of another experiment")
    assert again.wait(60) == 0
    watching.send_signal(signal.SIGINT)
    assert watching.wait(20) == 0
    assert "Traceback" not in (tmp_path / "watching" / "messages").read_text()
    with pytest.raises(OSError):
        states(url)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    refused: subprocess.CompletedProcess[str] = run("watch", str(tmp_path), cwd=tmp_path)
    assert refused.returncode == 2 and "holds no records" in refused.stderr
