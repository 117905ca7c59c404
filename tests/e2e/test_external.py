"""``launcher: external``: torchrun or Slurm starts the workers, on hosts with interfaces and folders of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bwbench import emulate
from bwbench.methods.native import are_compiled
from bwbench.network.emulate import NodePopen, Nodes
from tests.e2e.program import TAG, TINY, family, run, status_of, wait_for
from tests.hosts.lab import in_own_proc

pytestmark = [pytest.mark.netns, pytest.mark.timeout(400)]

EXTERNAL = TINY.replace("nodes: 2", "nodes: 4").replace(
    "link: {bandwidth: 100 Mbit/s, latency: 1 ms}", "link: unshaped"
)
EXTERNAL += "launcher: external\nalgorithm: ring-fp16\n"
LONG = EXTERNAL.replace("samples: 1280", "samples: 2000000")
PORT = 29477


def scripted(folder: Path, text: str, *options: str) -> str:
    (folder / "tiny.yaml").write_text(text)
    made = run("launch-script", *options, "tiny.yaml", cwd=folder)
    assert made.returncode == 0, made.stderr
    return made.stdout


@contextmanager
def hosts(folder: Path, script: str, num_hosts: int, **environment: str) -> Iterator[tuple[Nodes, list[NodePopen]]]:
    """A host each for the agents of torchrun, with a folder of its own that nobody else sees records in."""
    with emulate("unshaped", num_nodes=num_hosts) as nodes:
        started = []
        for number, node in enumerate(nodes):
            own = folder / f"host{number}"
            own.mkdir()
            (own / "job.sh").write_text(script)
            variables = {
                "HEAD": nodes[0].address,
                "NODE": str(number),
                "OWN": node.address,
                TAG: str(folder),
                **environment,
            }
            with (own / "messages").open("wb") as messages:
                started.append(
                    node.popen(
                        in_own_proc("bash", "job.sh"),
                        cwd=own,
                        env={**os.environ, **variables},
                        stdout=messages,
                        stderr=messages,
                    )
                )
        try:
            yield nodes, started
        finally:
            for process in started:
                process.kill()


def messages(folder: Path) -> str:
    return "\n".join(f"--- {file}\n{file.read_text()}" for file in sorted(folder.glob("host*/messages")))


def records(folder: Path) -> list[Path]:
    return list(folder.glob("host*/results/*/*/status.json"))


def test_four_hosts_train_as_the_local_launcher_does(tmp_path: Path) -> None:
    script = scripted(tmp_path, EXTERNAL)
    with hosts(tmp_path, script, 4) as (_, started):
        assert [process.wait(200) for process in started] == [0] * 4, messages(tmp_path)
    (file,) = records(tmp_path)
    status = json.loads(file.read_text())
    assert (status["status"], status["reason"]) == ("done", "samples") and file.is_relative_to(tmp_path / "host0")
    assert status["replicas_identical"] is True and status["payload_bytes"] > 0
    link = json.loads((file.parent / "attempt-1" / "link.json").read_text())
    assert link["backend"] == "none" and link["wire"]["ratio"] > 1
    for when in ("achieved_before", "achieved_after"):
        pairs = link[when]["pairs"]
        assert [(pair["src"], pair["dst"]) for pair in pairs] == [(0, 1), (1, 2), (2, 3), (3, 0)]
        assert all(pair["achieved_goodput_bps"] > 1e6 and 0 < pair["achieved_rtt_s"] < 1 for pair in pairs)
    environment = json.loads((file.parent / "attempt-1" / "environment.json").read_text())
    assert len({host["address"] for host in environment["hosts"]}) == 4
    assert {host["compiled_codecs"] for host in environment["hosts"]} == {are_compiled()}
    assert len(list((file.parent / "attempt-1").glob("rank*.jsonl"))) == 4
    assert not family(tmp_path)

    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "tiny.yaml").write_text(EXTERNAL.replace("launcher: external", "launcher: local"))
    assert run("run", "tiny.yaml", cwd=tmp_path / "here").returncode == 0
    local = status_of(tmp_path / "here" / "results")["ring-fp16"]
    for same in ("samples", "steps", "final_metric", "test_metric", "payload_bytes"):
        assert status[same] == local[same], same
    assert status["id"] != local["id"]

    again = run("status", str(tmp_path / "host0" / "results"), "--json", cwd=tmp_path)
    (cell,) = json.loads(again.stdout)["cells"]
    assert cell["status"] == "done" and cell["config"]["launcher"] == "external"
    assert run("report", str(tmp_path / "host0" / "results"), cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("collective", ["hierarchical", "sharded"])
def test_two_hosts_of_two_workers_average_inside_of_each_first(collective: str, tmp_path: Path) -> None:
    """What docs/tutorials/two-offices.md does: the ranks of a host are consecutive, as these collectives take them."""
    inside_first = EXTERNAL.replace("algorithm: ring-fp16", f"collective: {{{collective}: {{workers_per_host: 2}}}}")
    inside_first = inside_first.replace("model: logistic", "model: {name: cnn, hidden: 200}")  # payload, not headers
    by_leaders = collective == "hierarchical"
    script = scripted(tmp_path, inside_first, *([] if by_leaders else ["--per-host", "2"]))
    with hosts(tmp_path, script, 2, **({"WORKERS": "2"} if by_leaders else {})) as (nodes, started):
        assert [process.wait(200) for process in started] == [0] * 2, messages(tmp_path)
        addresses = [nodes[0].address] * 2 + [nodes[1].address] * 2
    (file,) = records(tmp_path)
    status = json.loads(file.read_text())
    assert (status["status"], status["replicas_identical"]) == ("done", True)
    environment = json.loads((file.parent / "attempt-1" / "environment.json").read_text())
    assert [host["address"] for host in environment["hosts"]] == addresses
    ends = [json.loads(log.read_text().splitlines()[-1]) for log in sorted(file.parent.glob("attempt-1/rank*.jsonl"))]
    sent = [end["payload_bytes"] for end in ends]
    if by_leaders:
        assert sent[1] == sent[3] == 0 and sent[0] == sent[2] > 0, "leaders alone cross the link"
    else:
        assert min(sent) > 0.9 * max(sent), "each carries its part"
    wire = json.loads((file.parent / "attempt-1" / "link.json").read_text())["wire"]
    assert 1 < wire["ratio"] < 1.6, "the interface of a host counts once, whatever the number of its ranks"


def test_agents_meet_by_c10d_too(tmp_path: Path) -> None:
    script = scripted(tmp_path, EXTERNAL)
    cell = re.search(r"<<'END_OF_CELL'\n(.*)\nEND_OF_CELL", script)
    assert cell is not None
    job = (
        f"echo '{cell[1]}' > cell.json; exec {sys.executable} -m torch.distributed.run --nnodes=4 --nproc-per-node=1 "
        f"--rdzv-backend=c10d --rdzv-endpoint=$HEAD:{PORT} --rdzv-id=x "
        f"--local-addr=$OWN --rdzv-conf=is_host=$((NODE == 0)) -m bwbench.training.loop.worker cell.json"
    )
    with hosts(tmp_path, job, 4) as (_, started):
        assert [process.wait(200) for process in started] == [0] * 4, messages(tmp_path)
    (file,) = tmp_path.glob("host*/status.json")
    assert json.loads(file.read_text())["status"] == "done"


@pytest.mark.parametrize("rank, shares_disk", [(0, False), (2, False), (2, True)])
def test_a_killed_worker_ends_the_cell_with_its_rank_named(tmp_path: Path, rank: int, shares_disk: bool) -> None:
    script = scripted(tmp_path, LONG, *(["--results", str(tmp_path / "host0" / "results")] if shares_disk else []))
    with hosts(tmp_path, script, 4) as (_, started):
        wait_for(lambda: " of training" in messages(tmp_path), 150, "the start of training")
        (worker,) = [
            process
            for process in family(tmp_path)
            if "bwbench.training.loop.worker" in process.cmdline()
            and "torch.distributed.run" not in process.cmdline()
            and process.environ().get("RANK") == str(rank)
        ]
        worker.send_signal(signal.SIGKILL)
        assert all(process.wait(60) != 0 for process in started), messages(tmp_path)
        wait_for(lambda: records(tmp_path), 15, "a record of the failure")
        (file,) = records(tmp_path)
        status = json.loads(file.read_text())
        assert status["status"] == "failed" and f"rank {rank} on" in status["reason"], status["reason"]
        killed = re.compile(rf"rank {rank} on \S+ was killed by SIGKILL \(from outside")
        assert killed.search((tmp_path / f"host{rank}" / "messages").read_text()), messages(tmp_path)
        assert killed.search(status["reason"]) or not (shares_disk or rank == 0), status["reason"]
        wait_for(lambda: not family(tmp_path), 15, "the end of all processes")


def test_ctrl_c_ends_the_file_without_a_traceback_and_the_cell_is_interrupted(tmp_path: Path) -> None:
    script = scripted(tmp_path, LONG.replace("nodes: 4", "nodes: 2") + "repeats: 2\n")
    with hosts(tmp_path, script, 2) as (_, started):
        wait_for(lambda: " of training" in messages(tmp_path), 150, "the start of training")
        for process in started:
            process.send_signal(signal.SIGINT)  # to all of its group, as a terminal sends it
        assert [process.wait(60) for process in started] == [130] * 2, messages(tmp_path)
        (file,) = records(tmp_path)  # by now, and of the first repeat alone
        status = json.loads(file.read_text())
        assert status["status"] == "interrupted" and "ended by SIGINT, as Ctrl-C" in status["reason"], status["reason"]
        said = messages(tmp_path)
        assert "Traceback" not in said and said.count("interrupted; start it again, on all hosts") == 2, said


def test_what_is_done_is_left_out_and_what_was_interrupted_runs_again(tmp_path: Path) -> None:
    script = scripted(
        tmp_path,
        TINY.replace("nodes: 2", "nodes: 1").replace("link: {bandwidth: 100 Mbit/s, latency: 1 ms}", "link: unshaped")
        + "algorithm: single\nlauncher: external\n",
    )
    (tmp_path / "job.sh").write_text(script)
    for said in ("done: ", "done already"):
        ended = subprocess.run(["bash", "job.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 0 and said in ended.stderr, ended.stderr
    assert status_of(tmp_path / "results")["single"]["attempt"] == 1


def test_srun_needs_no_torchrun(tmp_path: Path) -> None:
    """The batch file runs under stand-ins of Slurm's programs, which start as many tasks as they are asked for."""
    two = EXTERNAL.replace("nodes: 4", "nodes: 2")
    (tmp_path / "job.sh").write_text(scripted(tmp_path, two, "--slurm"))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "scontrol").write_text("#!/bin/sh\necho localhost\necho other\n")
    (programs / "srun").write_text(
        "#!/bin/bash\n"
        'while [ "${1#--}" != "$1" ]; do case $1 in --ntasks=*) n=${1#*=};; esac; shift; done\n'
        'for ((i = 0; i < n; i++)); do SLURM_PROCID=$i SLURM_NTASKS=$n "$@" & pids="$pids $!"; done\n'
        "for pid in $pids; do wait $pid || exit 1; done\n"
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "n[0-1]",
        "SLURM_JOB_ID": "42",
    }
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        environment.pop(name, None)
    ended = subprocess.run(
        ["bash", str(tmp_path / "job.sh")], cwd="/", env=environment, capture_output=True, text=True, timeout=150
    )
    assert ended.returncode == 0, ended.stderr
    assert status_of(tmp_path / "results")["ring-fp16"]["status"] == "done"


def test_run_says_how_to_start_it_and_a_shaped_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(EXTERNAL)
    refused = run("run", "tiny.yaml", cwd=tmp_path)
    assert refused.returncode == 2 and "bwbench launch-script tiny.yaml" in refused.stderr
    assert not (tmp_path / "results").exists()
    shaped = run("plan", "tiny.yaml", "--set", "link.bandwidth=10 Mbit/s", cwd=tmp_path)
    assert shaped.returncode == 2 and "write 'link: unshaped'" in shaped.stderr
