"""Every method of the registry trains on one GPU that four ranks share, to the loss that the processor comes to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.method_names import PRESETS

RANKS = 4
LIMIT_S = float(os.environ.get("BWBENCH_GPU_LIMIT_S", "200"))  # for all of them
NAMES = [
    name
    for name, preset in PRESETS.items()
    if (kind := ALGORITHMS.load(preset.algorithm)).needs_peers and kind.missing() is None
]
NAMES.sort(key=lambda name: PRESETS[name].collective == "torch")  # torch's own last: what hangs there keeps nobody else
Results = dict[tuple[str, str], dict[str, Any]]
ROOT = Path(__file__).parents[2]


def run_ranks(
    folder: Path, kinds: str, names: list[str], num_ranks: int = RANKS, collective: Any = None
) -> tuple[Results, str]:
    """All trainings in the same processes: what there is of them after the time limit, and the last words of all."""
    processes = []
    for rank in range(num_ranks):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(num_ranks),
            "OMP_NUM_THREADS": "2",
            "GLOO_SOCKET_IFNAME": "lo",
            "COLLECTIVE": json.dumps(collective),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }
        with (folder / f"rank{rank}.log").open("w") as log:
            command = [sys.executable, "-m", "tests.gpu.ranks", str(folder), kinds, *names]
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log))
    deadline = time.monotonic() + LIMIT_S
    try:
        for process in processes:
            process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            process.kill()
            process.wait()
    file = folder / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    words = "\n".join((folder / f"rank{rank}.log").read_text()[-2000:] for rank in range(num_ranks))
    return {(row["name"], row["device"]): row for row in rows}, words


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Results, str]]:
    folder = tmp_path_factory.mktemp("ranks")
    results, words = run_ranks(folder, "cpu,cuda", NAMES)
    if kept := os.environ.get("BWBENCH_GPU_RECORD"):  # what a machine has shown, for docs/gpus.md
        name = torch.cuda.get_device_name(0)
        rows = [json.dumps(row) for row in results.values()]
        head = f'{{"gpu": {json.dumps(name)}, "torch": {json.dumps(torch.__version__)}, "ranks": {RANKS}, "rows": [\n'
        Path(kept).write_text(head + ",\n".join(rows) + "\n]}\n")
    yield results, words


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_to_the_loss_of_the_processor(name: str, trained: tuple[Results, str]) -> None:
    results, words = trained
    assert (name, "cuda") in results, f"not reached: {words}"
    there, here = results[name, "cpu"], results[name, "cuda"]
    assert "error" not in there and "error" not in here, f"{there.get('error')} {here.get('error')}\n{words}"
    close(there["losses"], here["losses"], by_time=PRESETS[name].algorithm == "async" or name.startswith("overlapped"))


def close(expected: list[float], found: list[float], *, by_time: bool) -> None:
    """Losses that go the same way: sums in another order, and now and then another entry that is sent."""
    assert found[0] == pytest.approx(expected[0], rel=1e-3), "replicas begin alike"
    assert expected[-1] < 0.9 * expected[0] and found[-1] < 0.9 * found[0], f"{expected}\n{found}"
    tolerance = 0.15 if by_time else 0.05
    assert found[-1] == pytest.approx(expected[-1], abs=tolerance * expected[0]), f"{expected}\n{found}"
