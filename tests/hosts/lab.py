"""Hosts of one's own: namespaces, each with its sshd, its interface and its home, and one more for the controller."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bwbench import emulate
from bwbench.network.emulate import Node, NodePopen, Nodes
from tests.e2e.program import BWBENCH, TAG, wait_for

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
PORT = 2222
START_LIMIT_S = 30.0  # of an sshd

_CONFIG = """
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
AcceptEnv {tag}
Subsystem sftp internal-sftp
"""


@dataclass
class Lab:
    """Hosts that ssh reaches, and a place from which it does.

    Attributes:
        hosts: the nodes.
        folder: with ``host0`` …, the homes of the hosts, and ``controller``.
    """

    folder: Path
    nodes: Nodes
    num_hosts: int
    sshds: dict[int, NodePopen] = field(default_factory=dict)
    mark: int = 0
    started: NodePopen | None = None  # last
    torchrun_folders: set[Path] = field(default_factory=lambda: _torchrun_folders())  # somebody else's

    @property
    def hosts(self) -> list[Node]:
        return list(self.nodes)[: self.num_hosts]

    @property
    def home(self) -> Path:
        """Of the controller."""
        return self.folder / "controller"

    def inventory(self) -> list[dict[str, object]]:
        """The hosts as an experiment file has them."""
        return [
            {"address": node.address, "port": PORT, "python": sys.executable, "interface": node.interface}
            for node in self.hosts
        ]

    def start_sshd(self, number: int) -> None:
        """On one host, for the first time or again."""
        own = self.folder / f"host{number}"
        command = in_own_proc(str(SSHD), "-D", "-e", "-f", str(own / ".ssh" / "sshd_config"))
        with (own / "sshd.log").open("wb") as log:
            self.sshds[number] = self.hosts[number].popen(command, stdout=log, stderr=log)

    def kill_sshd(self, number: int) -> None:
        """All of one host's, also those of connections that are open."""
        config = str(self.folder / f"host{number}" / ".ssh" / "sshd_config")
        first = [process for process in psutil.process_iter() if config in _words(process)]
        for process in first:
            for one in (*process.children(recursive=True), process):
                if one.name().startswith("sshd"):
                    one.kill()

    def in_mounts_of(self, number: int, *command: str) -> None:
        """Run a command that sees the files as one host does."""
        config = str(self.folder / f"host{number}" / ".ssh" / "sshd_config")
        of_host = [process for process in psutil.process_iter() if config in _words(process)]
        pid = max(of_host, key=lambda process: process.create_time()).pid
        subprocess.run(["nsenter", "-m", "-t", str(pid), "--", *command], timeout=60, check=True)

    def await_sshd(self, number: int) -> None:
        """Until it listens."""
        log = self.folder / f"host{number}" / "sshd.log"
        deadline = time.monotonic() + START_LIMIT_S
        while "listening" not in log.read_text():
            if time.monotonic() > deadline:
                raise AssertionError(log.read_text())
            time.sleep(0.1)

    def start(self, *arguments: str) -> NodePopen:
        """``bwbench ARGUMENTS`` where the controller is, its messages in the file ``messages``."""
        self.mark = len(self.messages)
        with (self.home / "messages").open("ab") as messages:
            self.started = self.nodes[self.num_hosts].popen(
                [*BWBENCH, *arguments],
                cwd=self.home,
                env={**self.environment, TAG: str(self.folder)},
                stdout=messages,
                stderr=messages,
            )
        return self.started

    def run(self, *arguments: str, limit_s: float = 200.0) -> tuple[int, str]:
        """The same to its end: exit status and what it said."""
        process = self.start(*arguments)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(self.said) from None
        return status, self.said

    @property
    def messages(self) -> str:
        file = self.home / "messages"
        return file.read_text() if file.exists() else ""

    @property
    def said(self) -> str:
        """By the program that was started last."""
        return self.messages[self.mark :]

    def train(self, file: str) -> NodePopen:
        """``bwbench run FILE`` up to its first evaluation; again where a busy machine made a link slower than allowed.

        Raises AssertionError where it comes to no evaluation.
        """
        for again in ((), ("--retry", "invalid")):
            process = self.start("run", file, *again)
            try:
                wait_for(lambda: self._trains() or self._ended(), 240, "the start of training")
            except AssertionError as error:
                raise AssertionError(f"{error}; it said: {self.said}") from None
            if ": invalid: " not in self.said:
                break
        assert self._trains() and "failed" not in self.said, self.said
        return process

    def _trains(self) -> bool:
        return " of training" in self.said

    def _ended(self) -> bool:
        return self.started is None or self.started.poll() is not None

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SSH_")}
        return {**kept, "HOME": str(self.home)}

    def left(self) -> list[list[str]]:
        """Command lines of what runs on the hosts, apart from sshd itself."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if any(
                    word.startswith("bwbench.running.launch") or word == "bwbench.training.loop.worker"
                    for word in words
                ):
                    if str(self.folder) in process.environ().get("HOME_OF_LAB", ""):
                        found.append(words)
            except psutil.Error:
                continue
        return found

    def shaping(self) -> list[str]:
        """What tc and ip show on each host: interfaces, qdiscs, and filters on what comes in."""
        script = (
            "ip -o link | cut -d: -f2 | cut -d@ -f1 | sort; tc qdisc show; tc filter show dev {0}; "
            "tc filter show dev {0} ingress 2>/dev/null"
        )
        found = []
        for node in self.hosts:
            done = node.run(["sh", "-c", script.format(node.interface)], capture_output=True, text=True, timeout=20)
            found.append(str(done.stdout))
        return found

    def leftovers(self) -> list[Path]:
        """Folders of runs on the hosts, and of torchrun where it puts them by itself."""
        return [*self.folder.glob("host*/.cache/bwbench/ssh/run-*"), *(_torchrun_folders() - self.torchrun_folders)]


def _torchrun_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("torchelastic_*"))


@contextmanager
def lab(folder: Path, num_hosts: int) -> Iterator[Lab]:
    """As many hosts, each with a home of its own, and the controller's keys and known hosts."""
    Path("/run/sshd").mkdir(exist_ok=True)
    home = folder / "controller"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    _key(home / ".ssh" / "id_ed25519")
    with emulate("unshaped", num_hosts + 1) as nodes:
        made = Lab(folder, nodes, num_hosts)
        known = []
        try:
            for number, node in enumerate(made.hosts):
                own = folder / f"host{number}"
                (own / ".ssh").mkdir(parents=True, mode=0o700)
                _key(own / ".ssh" / "host_key")
                shutil.copy(home / ".ssh" / "id_ed25519.pub", own / ".ssh" / "authorized_keys")
                config = own / ".ssh" / "sshd_config"
                text = _CONFIG.format(port=PORT, folder=own / ".ssh", tag=TAG)
                config.write_text(text + f"SetEnv HOME_OF_LAB={folder} HOME={own}\n")
                public = (own / ".ssh" / "host_key.pub").read_text().split()
                known.append(f"[{node.address}]:{PORT} {public[0]} {public[1]}\n")
                made.start_sshd(number)
            (home / ".ssh" / "known_hosts").write_text("".join(known))
            for number in range(num_hosts):
                made.await_sshd(number)
            yield made
        finally:
            for process in made.sshds.values():
                process.kill()


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def in_own_proc(*words: str) -> list[str]:
    """``words`` where /proc shows the processes of the node, as it does on a host."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t proc proc /proc && exec "$@"', "sh", *words]


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
