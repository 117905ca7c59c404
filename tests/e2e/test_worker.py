"""The worker started by hand on loopback, as a user would to debug one cell."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from bwbench.experiment.config import CellConfig
from bwbench.experiment.plan.cell import Cell
from bwbench.records import read_events
from bwbench.records.cell_identity import identity

BASE = {
    "link": "unshaped",
    "model": "logistic",
    "dataset": "digits",
    "batch_size": 16,
    "optimizer": {"name": "sgd", "lr": 0.1},
    "evaluate": {"every": "320 samples"},
    "limit": {"samples": 1280},
    "stop": "limit",
    "target": {"accuracy": 0.99},
    "seed": 5,
}
SINGLE = {"nodes": 1, "algorithm": "single", "collective": "none", "compression": "none"}


def every_step(collective, compression="none", nodes=2):
    return {"nodes": nodes, "algorithm": "every-step", "collective": collective, "compression": compression}


class Workers:
    """The workers of one cell, their records and what they printed."""

    def __init__(self, folder, overrides, num_workers=None, channels=False):
        self.folder = folder
        config = CellConfig.model_validate({**BASE, **overrides})
        self.cell_file = folder / "cell.json"
        self.cell_file.write_text(json.dumps(Cell(identity(config), "slug", "test", "arm", 0, config).to_json()))
        self.parents, self.processes = [], []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        num_workers = num_workers or config.nodes
        for rank in range(num_workers):
            variables = {**os.environ, "OMP_NUM_THREADS": "1"}
            if num_workers > 1:
                variables.update(RANK=str(rank), WORLD_SIZE=str(config.nodes), MASTER_PORT=str(port))
                variables.update(BWBENCH_DATA_INTERFACE="lo", BWBENCH_CONTROL_INTERFACE="lo")
            worker_end = None
            if channels:
                parent_end, worker_end = socket.socketpair()
                self.parents.append(parent_end)
                variables["BWBENCH_CHANNEL_FD"] = str(worker_end.fileno())
            self.processes.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-W",
                        "error::FutureWarning",
                        "-m",
                        "bwbench.training.loop.worker",
                        str(self.cell_file),
                    ],
                    env=variables,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    pass_fds=[worker_end.fileno()] if worker_end else [],
                )
            )
            if worker_end:
                worker_end.close()

    def finish(self, timeout_s=240):
        """Exit statuses; ends whoever is left."""
        try:
            self.outputs = [process.communicate(timeout=timeout_s)[0] for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
            for parent in self.parents:
                parent.close()
        return [process.returncode for process in self.processes]

    def events(self, rank=0, kind=None):
        found = [event.to_json() for event in read_events(self.folder / "attempt-1" / f"rank{rank}.jsonl")]
        return [event for event in found if kind is None or event["event"] == kind]


def train(folder, overrides, **options):
    workers = Workers(folder, overrides, **options)
    statuses = workers.finish()
    assert statuses == [0] * len(statuses), "\n".join(workers.outputs)
    return workers


def test_one_rank_without_any_environment(tmp_path):
    workers = train(tmp_path, {**SINGLE, "compute": {"step_time": "5 ms"}, "target": None})
    kinds = [event["event"] for event in workers.events()]
    assert kinds[:3] == ["start", "eval", "step"]
    assert kinds[-2:] == ["eval", "end"]
    start, end = workers.events()[0], workers.events()[-1]
    assert start["num_parameters"] == 650
    assert (start["num_train"], start["num_validation"], start["num_test"]) == (1295, 143, 359)
    steps = workers.events(kind="step")
    assert [step["step"] for step in steps] == list(range(1, 81))
    assert steps[-1]["samples"] == end["samples"] == 1280
    for step in steps:
        assert sum(step["ledger"].values()) == pytest.approx(step["duration_s"], rel=0.02)
    assert 0.0045 < min(step["duration_s"] for step in steps) < 0.008  # a busy machine makes steps longer, not shorter
    evaluations = workers.events(kind="eval")
    assert [e["samples"] for e in evaluations] == [0, 320, 640, 960, 1280, 1280]
    assert [e["split"] for e in evaluations] == ["validation"] * 5 + ["test"]
    assert evaluations[0]["clock_s"] == 0.0
    assert evaluations[-1]["mean"]["accuracy"] > 0.8
    assert sum(step["duration_s"] for step in steps) <= end["clock_s"]
    assert (end["status"], end["reason"], end["payload_bytes"]) == ("done", "samples", 0)
    assert end["ledger_error"] < 0.02


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    return train(tmp_path_factory.mktemp("ring"), every_step("ring"))


@pytest.mark.main_job
def test_replicas_are_bit_equal_and_every_step_counts_its_bytes(ring):
    first, second = ring.events(0, "end")[0], ring.events(1, "end")[0]
    assert first["replica_sha256"] == second["replica_sha256"]
    assert first["step"] == second["step"] == 40
    for rank in (0, 1):
        assert {step["payload_bytes"] for step in ring.events(rank, "step")} == {650 * 4}
        for step in ring.events(rank, "step"):
            assert sum(step["ledger"].values()) == pytest.approx(step["duration_s"], rel=0.02)
            assert step["mono_s"] <= step["ready_mono_s"]


@pytest.mark.parametrize(
    ("overrides", "payload_bytes"),
    [
        (every_step("torch"), 2600),
        (every_step("parameter-server"), 2600),
        ({"nodes": 2, "algorithm": "no-communication", "collective": "none", "compression": "none"}, 0),
    ],
    ids=["torch", "parameter-server", "no-communication"],
)
def test_all_exact_methods_train_alike(ring, tmp_path, overrides, payload_bytes):
    workers = train(tmp_path, overrides)
    ours = [step["loss"] for step in ring.events(1, "step")]
    theirs = [step["loss"] for step in workers.events(1, "step")]
    assert theirs == pytest.approx(ours, rel=1e-4)
    assert {step["payload_bytes"] for step in workers.events(1, "step")} == {payload_bytes}
    assert len({workers.events(rank, "end")[0]["replica_sha256"] for rank in (0, 1)}) == 1


def test_one_node_with_the_whole_batch_trains_alike(ring, tmp_path):
    workers = train(tmp_path, {**SINGLE, "batch_size": 16, "accumulate": 2})
    both = zip(ring.events(0, "step"), ring.events(1, "step"), strict=True)
    means = [(a["loss"] + b["loss"]) / 2 for a, b in both]
    assert [step["loss"] for step in workers.events(0, "step")] == pytest.approx(means, rel=1e-3)


def test_the_parent_is_asked_before_and_after_and_sees_progress(tmp_path):
    workers = Workers(tmp_path, {**every_step("ring", "fp16"), "target": None}, channels=True)
    received = [[] for _ in workers.parents]

    def answer(rank):
        for line in workers.parents[rank].makefile():
            event = json.loads(line)
            received[rank].append(event)
            if event.get("phase") in ("training", "drained"):
                workers.parents[rank].sendall(b'{"ok":true}\n')

    threads = [threading.Thread(target=answer, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    statuses = [process.wait(60) for process in workers.processes]
    for thread in threads:
        thread.join(5)
    workers.finish()
    assert statuses == [0, 0], "\n".join(workers.outputs)
    for events in received:
        order = [event.get("phase") or event["event"] for event in events]
        assert order == ["ready", "training", "start"] + ["eval"] * 5 + ["drained", "eval", "ending", "end"]


def test_the_time_limit_ends_all_ranks_at_the_same_step(tmp_path):
    limits = {"limit": {"samples": 10**9, "time": "0.5 s"}, "compute": {"step_time": "20 ms"}}
    workers = train(tmp_path, {**every_step("ring"), **limits})
    ends = [workers.events(rank, "end")[0] for rank in range(2)]
    assert {(end["status"], end["reason"]) for end in ends} == {("done", "time")}
    assert len({end["step"] for end in ends}) == 1
    assert all(0.5 <= end["clock_s"] < 2.0 for end in ends)


def test_divergence_ends_all_ranks_alike_and_is_no_crash(tmp_path):
    workers = train(tmp_path, {**every_step("all-gather", "threshold"), "optimizer": {"name": "sgd", "lr": 3e38}})
    ends = [workers.events(rank, "end")[0] for rank in (0, 1)]
    assert [end["status"] for end in ends] == ["diverged", "diverged"]
    assert ends[0]["step"] == ends[1]["step"] < 10
    assert "loss is nan" in ends[0]["reason"] or "loss is inf" in ends[0]["reason"]
    assert ends[0]["reason"] == ends[1]["reason"]


def test_reaching_the_target_ends_the_run(tmp_path):
    workers = train(tmp_path, {**SINGLE, "stop": "target", "target": {"accuracy": 0.5}})
    end, evaluations = workers.events(kind="end")[0], workers.events(kind="eval")
    assert (end["status"], end["reason"]) == ("done", "target")
    assert end["samples"] < 1280
    assert evaluations[-2]["target_met"]
    assert not evaluations[0]["target_met"]
    assert [e["split"] for e in evaluations].count("test") == 1, "the arrival is the end"


def test_a_killed_peer_is_an_error_and_not_a_hang(tmp_path):
    workers = Workers(tmp_path, {**every_step("ring"), "limit": {"samples": 10**9}})
    deadline = time.monotonic() + 60
    while not workers.events(1, "step") and time.monotonic() < deadline:
        time.sleep(0.1)
    workers.processes[1].kill()
    statuses = workers.finish(timeout_s=20)
    assert statuses == [1, -9], "\n".join(workers.outputs)
    error = workers.events(0, "error")[0]
    assert error["message"]
    assert "Traceback" in workers.outputs[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({**SINGLE, "batch_size": 5000}, "batch_size 5000 is more than the 1295"),
        (every_step("ring"), "the cell is for 2 nodes, WORLD_SIZE is 1"),
    ],
    ids=["batch too large", "one worker for two nodes"],
)
def test_what_the_user_can_mend_is_said_without_a_traceback(tmp_path, overrides, message):
    workers = Workers(tmp_path, overrides, num_workers=1)
    assert workers.finish() == [2]
    assert message in workers.outputs[0]
    assert "Traceback" not in workers.outputs[0]
