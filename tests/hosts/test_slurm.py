"""The batch file of ``bwbench launch-script --slurm`` under a real Slurm: a controller and two nodes, in namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from bwbench import emulate
from bwbench.network.emulate import Node
from tests.e2e.program import BWBENCH, TINY, run, status_of, wait_for

DAEMONS = [
    shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    for name in ("slurmctld", "slurmd", "munged")
]
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(None in DAEMONS, reason="there is no Slurm (Debian: slurm-wlm munge)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd and host names of its own take root"),
    pytest.mark.timeout(450),
]

NUM_NODES = 2
CONTENT: dict[str, Any] = yaml.safe_load(TINY) | {"link": "unshaped", "algorithm": "ring-fp16", "nodes": NUM_NODES}
CONFIG = """
ClusterName=test
SlurmctldHost=n0({controller})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
{nodes}
PartitionName=all Nodes=n[1-{num}] Default=YES
"""


class Cluster:
    """Slurm on nodes 1 and 2, its controller on node 0."""

    def __init__(self, folder: Path, nodes: list[Node]) -> None:
        self._folder, self._nodes = folder, nodes
        names = "".join(f"{node.address} n{number}\n" for number, node in enumerate(nodes))
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        listed = [f"NodeName=n{number} NodeAddr={node.address} CPUs=1" for number, node in enumerate(nodes) if number]
        content = CONFIG.format(controller=nodes[0].address, folder=folder, nodes="\n".join(listed), num=len(nodes) - 1)
        (folder / "slurm.conf").write_text(content)
        (folder / "state").mkdir()

    def words(self, number: int, *words: str) -> list[str]:
        """A command where /proc, the name of the host and those of the others are as on a machine of its own."""
        alone = f"hostname n{number} && mount -t proc proc /proc && mount --bind {self._folder}/hosts /etc/hosts"
        script = f'{alone} && exec "$@"'
        return ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self._folder / "slurm.conf")}

    def daemon(self, number: int, program: str, stack: ExitStack) -> None:
        """Until the test ends."""
        with (self._folder / f"{Path(program).name}-{number}.log").open("wb") as log:
            command = self.words(number, program, "-D", "-f", str(self._folder / "slurm.conf"))
            process = self._nodes[number].popen(command, env=self.environment, stdout=log, stderr=log)
        stack.callback(process.kill)

    def ask(self, *words: str, cwd: Path | None = None) -> str:
        """What one of Slurm's commands answers to the user of node 0."""
        done = self._nodes[0].run(
            self.words(0, *words), env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.logs())
        return str(done.stdout)

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}" for path in self._folder.glob("*.log")
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    controller, worker, munged = map(str, DAEMONS)
    folder = tmp_path / "slurm"
    folder.mkdir()
    with emulate("unshaped", NUM_NODES + 1) as nodes, ExitStack() as stack:
        made = Cluster(folder, list(nodes))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        own = [f"--{what}={folder}/munge.{ending}" for what, ending in
               (("socket", "socket"), ("key-file", "key"), ("pid-file", "pid"), ("seed-file", "seed"))]  # fmt: skip
        with (folder / "munged.log").open("wb") as log:
            guard = subprocess.Popen([munged, "--foreground", "--force", *own], stdout=log, stderr=log)
        stack.callback(guard.wait)
        stack.callback(guard.kill)
        wait_for(lambda: (folder / "munge.socket").exists(), 20, "munged")
        made.daemon(0, controller, stack)
        for number in range(1, NUM_NODES + 1):
            made.daemon(number, worker, stack)
        wait_for(lambda: _idle(made) == NUM_NODES, 150, f"the nodes: {made.logs()}")
        yield made


def _idle(made: Cluster) -> int:
    try:
        return made.ask("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").count("n")
    except AssertionError:  # the controller does not answer yet
        return 0


def test_the_batch_file_trains_under_slurm_as_locally(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps({**CONTENT, "launcher": "external"}))
    made = subprocess.run(
        [*BWBENCH, "launch-script", "--slurm", "tiny.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert made.returncode == 0, made.stderr
    (tmp_path / "train.sh").write_text(made.stdout)
    cluster.ask("sbatch", f"--output={tmp_path}/job.log", "train.sh", cwd=tmp_path)
    deadline = time.monotonic() + 180
    while cluster.ask("squeue", "-h").strip() and time.monotonic() < deadline:
        time.sleep(1)
    said = (tmp_path / "job.log").read_text()
    found = status_of(tmp_path / "results").get("ring-fp16")
    assert found is not None and found["status"] == "done", (said, cluster.logs())
    (file,) = (tmp_path / "results").glob("*/*/attempt-1/environment.json")
    assert [host["host"] for host in json.loads(file.read_text())["hosts"]] == ["n1", "n2"]
    folder = tmp_path / "local"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(json.dumps({**CONTENT, "launcher": "local"}))
    assert run("run", "tiny.yaml", cwd=folder).returncode == 0
    local = status_of(folder / "results")["ring-fp16"]
    for same in ("samples", "final_metric", "test_metric", "payload_bytes"):
        assert found[same] == local[same], same
