"""``bwbench.run`` as a program calls it, over a real (emulated) link; and the notebook of the docs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import TINY, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"

BREAKING = """
from bwbench.base.registry import ALGORITHMS
from bwbench.methods.algorithms.single import Single


class Breaking(Single):
    def attach(self, context):
        raise RuntimeError("it breaks on purpose")


ALGORITHMS.register("breaking", Breaking, "Raises when training begins.")
"""

PROGRAM = """
import sys
import bwbench

experiment = {
    "name": "tiny", "nodes": 2, "link": {"bandwidth": "100 Mbit/s", "latency": "1 ms"}, "model": "logistic",
    "dataset": "digits", "batch_size": 32, "optimizer": {"sgd": {"lr": 0.05}}, "evaluate": {"every": "640 samples"},
    "target": {"accuracy": 0.1}, "limit": {"samples": 1280}, "plugins": ["breaking.py"],
    "matrix": {"algorithm": ["ring", "single", "breaking"]},
}
study = bwbench.run(experiment)
cells = study.cells().set_index("arm")
assert dict(cells["status"]) == {"ring": "done", "single": "done", "breaking": "failed"}, cells["status"]
assert "it breaks on purpose" in cells.loc["breaking", "reason"]
assert len(study.evaluations()) and len(study.steps()) and len(study.compare("ring"))
assert len(study.plot("time-to-accuracy"))
assert "torch" not in sys.modules, "the parent has imported torch"
again = bwbench.run(experiment, only={"arm": ["ring", "single"]}, progress=False)
assert list(again.cells()["status"]) == ["done", "done"] and len(bwbench.load("results/tiny")) == 3
file = bwbench.run("tiny.yaml", override={"algorithm": "ring"}, progress=False)
assert list(file.cells()["status"]) == ["done"]
print(repr(study))
"""


def in_folder(folder: Path, program: str) -> list[str]:
    (folder / "program.py").write_text(program)
    return [sys.executable, "program.py"]


def test_cells_run_from_a_program_that_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text(BREAKING)
    (tmp_path / "tiny.yaml").write_text(TINY)
    done = subprocess.run(
        in_folder(tmp_path, PROGRAM), cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "<Study of tiny: 3 cells, 2 done, 1 failed>\n"
    assert "[1/3]" in done.stderr and "note: not done: breaking" in done.stderr
    assert 'Traceback (most recent call last):\n  File "program.py"' not in done.stderr


INTERRUPTED = """
import bwbench
try:
    bwbench.run("long.yaml")
except KeyboardInterrupt:
    print("interrupted")
    print(*bwbench.load("results").cells()["status"])
"""


def test_an_interruption_is_recorded_and_the_same_call_goes_on(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(TINY.replace("samples: 1280", "samples: 10000000"))
    process = subprocess.Popen(
        in_folder(tmp_path, INTERRUPTED), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        wait_for(lambda: [*tmp_path.glob("results/*/*/attempt-1/rank0.jsonl")], 120, "a training")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)  # twice, as terminals and impatient people do
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out == "interrupted\ninterrupted\n"


def outputs(notebook: dict[str, Any], kind: str) -> list[Any]:
    found = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [output["data"][kind] for output in found if kind in output.get("data", {})]


def test_the_notebook_of_the_docs_runs(tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="nbclient is not installed (extra [test])")
    script, out = ROOT / "docs" / "pictures" / "notebook_outputs.py", tmp_path / "notebook.ipynb"
    done = subprocess.run(
        [sys.executable, script, "--out", out], cwd=tmp_path, capture_output=True, text=True, timeout=800,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fresh, kept = (json.loads(file.read_text()) for file in (out, NOTEBOOK))
    assert [cell["source"] for cell in fresh["cells"]] == [cell["source"] for cell in kept["cells"]]
    for notebook in (fresh, kept):
        texts = ["".join(text) for text in outputs(notebook, "text/html")]
        assert "5 done of 5" in texts[0], "the progress at its end"
        assert "ring-fp16" in texts[1] and len(texts) == 6
        assert len(outputs(notebook, "image/png")) == 1
        said = [output for cell in notebook["cells"] for output in cell.get("outputs", []) if "text" in output]
        assert any("experiment['nodes']" in "".join(output["text"]) for output in said)
        assert str(Path.home()) not in json.dumps(notebook) and "/tmp" not in json.dumps(notebook)
