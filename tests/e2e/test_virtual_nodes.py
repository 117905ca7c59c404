"""Virtual nodes as a user meets them: cells of them, composed sweeps, what is refused, and what ends them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.e2e.program import TINY, family, run, start, status_of, wait_for

VIRTUAL = TINY.replace("link: {bandwidth: 100 Mbit/s, latency: 1 ms}", "link: unshaped\ncompute: {virtual: true}")
ENDLESS = VIRTUAL.replace("{samples: 1280}", "{samples: 100000000}").replace("640 samples", "1000000 samples")
STEPS = 600
PROCESS = "bwbench.training.loop.virtual_worker"


def experiment(folder: Path, text: str) -> Path:
    file = folder / "tiny.yaml"
    file.write_text(text)
    return file


def environment_of(cell: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((cell / "attempt-1" / "environment.json").read_text())
    return found


def test_a_cell_of_virtual_nodes_has_the_records_of_workers_and_no_times(tmp_path: Path) -> None:
    experiment(tmp_path, VIRTUAL + "algorithm: ring\n")
    assert run("run", "tiny.yaml", cwd=tmp_path).returncode == 0
    (cell,) = (tmp_path / "results" / "tiny").glob("*-*/")
    assert environment_of(cell)["virtual"] is True
    assert {file.name for file in (cell / "attempt-1").glob("rank*")} == {
        f"rank{rank}.{ending}" for rank in range(2) for ending in ("jsonl", "log")
    }
    assert run("verify", "results", cwd=tmp_path).returncode == 0

    plain = VIRTUAL.replace("compute: {virtual: true}\n", "") + "algorithm: ring\n"
    experiment(tmp_path, plain)
    (planned,) = json.loads(run("plan", "tiny.yaml", "--json", cwd=tmp_path).stdout)["cells"]
    assert planned["id"] == cell.name.rpartition("-")[2]
    assert "virtual nodes so far" in planned["why"]
    assert run("run", "tiny.yaml", cwd=tmp_path).returncode == 0
    measured = json.loads((cell / "attempt-2" / "environment.json").read_text())
    assert "virtual" not in measured
    ends = [json.loads((cell / f"attempt-{n}" / "rank1.jsonl").read_text().splitlines()[-1]) for n in (1, 2)]
    assert ends[0]["replica_sha256"] == ends[1]["replica_sha256"]

    experiment(tmp_path, VIRTUAL + "algorithm: ring\n")
    (planned,) = json.loads(run("plan", "tiny.yaml", "--json", cwd=tmp_path).stdout)["cells"]
    assert planned["why"] == "done"


def test_convergence_runs_have_virtual_nodes_where_the_method_allows_it(tmp_path: Path) -> None:
    text = TINY.replace("1280", "12800") + "mode: composed\nwhole: {share: 0, at_least: 0}\ntiming: {runs: 1}\n"
    experiment(tmp_path, text + "algorithm: top-k\n")
    assert run("run", "tiny.yaml", cwd=tmp_path).returncode == 0
    (cell,) = (tmp_path / "results" / ".convergence").glob("*-*/")
    assert environment_of(cell)["virtual"] is True
    assert [status["status"] for status in status_of(tmp_path / "results").values()] == ["done"]


def test_what_virtual_nodes_cannot_do_is_refused_with_its_line(tmp_path: Path) -> None:
    for change, said in (
        ("algorithm: async", "depends on the link"),
        ("algorithm: {local-sgd: {overlap: auto}}", "as soon as the link has brought it"),
        ("limit: {samples: 1280, time: 3 s}", "limit.time"),
        ("link: {bandwidth: 100 Mbit/s}", "no link between them"),
        ("compute: {virtual: true, step_time: 5 ms}", "step_time"),
        ("nodes: 300", "out of range"),
    ):
        key = change.partition(":")[0]
        lines = [line for line in VIRTUAL.splitlines() if not line.startswith(f"{key}:")] + [change]
        experiment(tmp_path, "\n".join(lines) + "\n")
        result = run("plan", "tiny.yaml", cwd=tmp_path)
        assert result.returncode == 2, change
        assert "tiny.yaml:" in result.stderr and said in result.stderr.replace("\n", " "), result.stderr
    experiment(tmp_path, VIRTUAL.replace("compute: {virtual: true}\n", "").replace("nodes: 2", "nodes: 256"))
    assert "virtual: true" in run("plan", "tiny.yaml", cwd=tmp_path).stderr


def test_a_killed_process_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    experiment(tmp_path, ENDLESS + "algorithm: ring\n")
    program = start("run", "tiny.yaml", cwd=tmp_path)
    worker = wait_for(lambda: [p for p in family(tmp_path) if PROCESS in p.cmdline()], 60, "the process")[0]
    wait_for(lambda: list(tmp_path.glob("results/tiny/*/attempt-1/rank1.jsonl")), 60, "records")
    os.kill(worker.pid, signal.SIGKILL)
    program.wait(60)
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "failed" and "killed by SIGKILL" in status["reason"]
    assert not family(tmp_path)


def test_ctrl_c_and_kill_take_the_process_along(tmp_path: Path) -> None:
    experiment(tmp_path, ENDLESS + "algorithm: ring\n")
    for number in (signal.SIGINT, signal.SIGKILL):
        program = start("run", "tiny.yaml", cwd=tmp_path)
        wait_for(lambda: [p for p in family(tmp_path) if PROCESS in p.cmdline()], 60, "the process")
        program.send_signal(number)
        program.wait(60)
        wait_for(lambda: not family(tmp_path), 10, "the end of all processes")
    (status,) = [json.loads(file.read_text()) for file in tmp_path.glob("results/*/*/status.json")] or [{}]
    assert status.get("status", "interrupted") == "interrupted"


def test_a_sweep_trains_as_many_cells_at_once_as_there_are_processors(tmp_path: Path) -> None:
    experiment(tmp_path, ENDLESS.replace("1000000 samples", "6400 samples") + "repeats: 4\nalgorithm: ring\n")
    program = start("run", "tiny.yaml", cwd=tmp_path)
    num_processors = min(4, len(os.sched_getaffinity(0)))

    def trained() -> list[Path]:
        files = tmp_path.glob("results/tiny/*/attempt-1/rank1.jsonl")
        return [file.parent.parent for file in files if file.stat().st_size]

    def training() -> bool:
        return len([one for one in family(tmp_path) if PROCESS in one.cmdline()]) == num_processors

    wait_for(training, 60, "a process for every processor")
    wait_for(lambda: len(trained()) == num_processors, 60, "records of all of them")
    assert training()
    program.send_signal(signal.SIGINT)
    assert program.wait(60) == 130
    wait_for(lambda: not family(tmp_path), 10, "the end of all processes")
    for cell in trained():
        assert json.loads((cell / "status.json").read_text())["status"] == "interrupted"
        assert f"process {program.pid} of" not in str(environment_of(cell)["others"]), "nobody meets itself"
    assert len(list(tmp_path.glob("results/tiny/*/status.json"))) == num_processors
    assert not list(tmp_path.glob("results/tiny/*/.claim"))


def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    folders = whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in folders:
        folder.mkdir()
        experiment(folder, VIRTUAL.replace("samples: 1280", f"samples: {64 * STEPS}") + "algorithm: top-k\n")
    assert run("run", "tiny.yaml", cwd=whole).returncode == 0

    first = start("run", "tiny.yaml", cwd=cut, BWBENCH_CHECKPOINT_INTERVAL_S="0.1")
    wait_for(lambda: any(cut.rglob("checkpoint-[1-9]*")), 60, "a checkpoint")
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    assert any(cut.rglob("checkpoint-[1-9]*")), "it is kept"
    result = run("run", "tiny.yaml", cwd=cut)
    assert result.returncode == 0, result.stderr

    (undisturbed,), (done,) = (status_of(folder / "results").values() for folder in folders)
    assert done["resumed_from"]["attempt"] == 1 and 0 < done["resumed_from"]["step"] < STEPS
    for key in ("status", "reason", "steps", "samples", "final_metric", "test_metric", "payload_bytes"):
        assert done[key] == undisturbed[key], key
    for rank in (0, 1):
        records = [sorted(folder.rglob(f"rank{rank}.jsonl"))[-1].read_text().splitlines() for folder in folders]
        events = [[json.loads(line) for line in lines] for lines in records]
        losses = [[event["loss"] for event in one if event["event"] == "step"] for one in events]
        assert losses[0] == losses[1] and len(losses[0]) == STEPS
        assert events[0][-1]["replica_sha256"] == events[1][-1]["replica_sha256"]
    assert not list(cut.rglob("*checkpoint*"))


def test_a_loss_that_becomes_nan_on_one_rank_is_told_of_it(tmp_path: Path) -> None:
    (tmp_path / "sick.py").write_text(
        "import threading\n"
        "from bwbench.base.registry import MODELS\n"
        "from bwbench.training.models.mlp import Logistic\n\n\n"
        "class Sick(Logistic):\n"
        "    def build(self, spec):\n"
        "        model, passes = super().build(spec), []\n\n"
        "        def spoil(module, inputs, logits):\n"
        "            if module.training and threading.current_thread().name == 'bwbench-rank-1':\n"
        "                passes.append(1)\n"
        "            return logits * float('nan') if len(passes) == 30 else logits\n\n"
        "        model.register_forward_hook(spoil)\n"
        "        return model\n\n\n"
        "MODELS.register('sick', Sick, 'the loss of one rank is nan in one step')\n"
    )
    text = ENDLESS.replace("model: logistic", "model: sick") + "plugins: [sick.py]\n"
    experiment(tmp_path, text + "algorithm: {local-sgd: {period: 8}}\n")
    result = run("run", "tiny.yaml", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "diverged"
    assert "the loss is nan" in status["reason"] and "on rank 1" in status["reason"]
    ends = [json.loads(file.read_text().splitlines()[-1]) for file in tmp_path.rglob("rank?.jsonl")]
    assert [end["status"] for end in ends] == ["diverged"] * 2 and len({end["step"] for end in ends}) == 1


def test_a_rank_that_raises_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from bwbench.base.registry import COMPRESSIONS\n"
        "from bwbench.methods.compression.codec import NoCompression\n\n\n"
        "class Broken(NoCompression):\n"
        "    def prepare(self, shapes, rank=0, bucket=0):\n"
        "        self.rank = rank\n"
        "        super().prepare(shapes, rank, bucket)\n\n"
        "    def encode(self, x):\n"
        "        if self.rank == 1:\n"
        "            raise RuntimeError('encoder on fire')\n"
        "        return super().encode(x)\n\n\n"
        "COMPRESSIONS.register('broken', Broken, 'raises')\n"
    )
    experiment(tmp_path, VIRTUAL + "compression: broken\ncollective: all-gather\nplugins: [broken.py]\n")
    result = run("run", "tiny.yaml", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "failed"
    assert "rank 1 has failed" in status["reason"] and "encoder on fire" in status["reason"]
    assert "last lines of rank1.log" in status["reason"]
