"""What a plan says that cells of real size take of the memory, against what their workers take at their peak."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bwbench.base.model_shapes import Layer, ModelShapes, to_json
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.real_size import SHARED_BYTES, WORKER_BYTES, memory_need
from tests.e2e.program import end_started, family, start, status_of

NODES = 3
# 176 MB: a layer that is large by itself, as VGG16 has one, and buckets of 32 MB and of 16.
LARGE = (Layer("large", ((4096, 4096),), 1.0),)
MIDDLE = tuple(Layer(f"fc{number}", ((2048, 4096),), 1.0) for number in range(2))
SMALL = tuple(Layer(f"small{number}", ((1024, 4096),), 1.0) for number in range(3))
MODEL = ModelShapes("mine", (*SMALL, *LARGE, *MIDDLE))
EXPERIMENT = f"""\
name: memory
nodes: {NODES}
link: unshaped
model: {{shapes: mine.json}}
batch_size: 1
compute: {{step_time: 200 ms}}
limit: {{steps: 4}}
"""
LOOSEST = 1.45  # times what is taken may be said
TRIES = 3  # a busy machine overlaps less of what may be in memory at once, and never more
METHODS = [
    "algorithm: ring",
    "algorithm: ring-fp16",
    "algorithm: ddp",
    "algorithm: every-step\ncollective: parameter-server",
    "algorithm: bytegrad",
    "algorithm: every-step\ncollective: all-gather\ncompression: {dgc: {momentum: 0}}",
    "algorithm: low-precision-decentralized",
    "algorithm: {diloco: {period: 2}}\noptimizer: adam",
]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    end_started()


def peaks_of(folder: Path) -> list[float]:
    """The most that each worker of a run has had in memory, in bytes, largest first."""
    found: dict[int, float] = {}
    program = start("run", "memory.yaml", cwd=folder)
    while program.poll() is None:
        for child in family(folder):
            try:
                if any("loop.worker" in word for word in child.cmdline()):
                    lines = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines()
                    found[child.pid] = next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
            except (psutil.Error, OSError, StopIteration):
                continue
        time.sleep(0.1)
    (status,) = status_of(folder / "results").values()
    # A busy machine makes it invalid, which takes as much memory.
    assert status["status"] in ("done", "invalid"), (folder / "messages").read_text(encoding="utf-8")
    return sorted(found.values(), reverse=True)


@pytest.fixture(scope="module")
def base_bytes(tmp_path_factory: pytest.TempPathFactory) -> float:
    """What a worker takes with next to no model."""
    nothing = ModelShapes("mine", (Layer("fc", ((8, 8),), 1.0),))
    folder = written(tmp_path_factory.mktemp("base"), nothing, "algorithm: ring")
    return max(peaks_of(folder))


def written(folder: Path, model: ModelShapes, method: str) -> Path:
    (folder / "mine.json").write_text(json.dumps(to_json(model)))
    (folder / "memory.yaml").write_text(EXPERIMENT + method + "\n")
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_says_how_much_memory_workers_take_at_most(method: str, base_bytes: float, tmp_path: Path) -> None:
    config = load_experiment(written(tmp_path, MODEL, method) / "memory.yaml").points[0].config
    said = memory_need(config, MODEL).total_bytes - SHARED_BYTES - NODES * WORKER_BYTES
    most = 0.0
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        peaks = peaks_of(written(folder, MODEL, method))
        assert len(peaks) == NODES
        taken = sum(peaks) - NODES * base_bytes
        assert taken <= said, f"{said / 1e6:.0f} MB said, {taken / 1e6:.0f} MB taken by {peaks}"
        most = max(most, taken)
        if said <= LOOSEST * most:
            return
    pytest.fail(f"{said / 1e6:.0f} MB said, {most / 1e6:.0f} MB taken at most in {TRIES} runs")
