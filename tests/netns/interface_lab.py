"""A machine with a "real" interface, wan0, and other machines behind it; all in namespaces that end with the test.

The machine is a network, mount and PID namespace of its own, with an empty /run. Behind wan0 there is one namespace
with the addresses of two machines, so that some traffic can be shaped and other traffic left alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
HERE, PEER, OTHER = "10.9.0.1", "10.9.0.2", "10.9.0.3"
HERE_6, PEER_6, OTHER_6 = "fd09::1", "fd09::2", "fd09::3"
PORT, OTHER_PORT = 5001, 6001
LIMIT_S = 30.0

# Process 1 ends with its standard input, which is ours; with it ends everything in its PID namespace.
_MACHINE = f"""
set -e
mount -t tmpfs tmpfs /run
unshare --net sleep 1000 & behind=$!
while [ "$(readlink /proc/$behind/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
ip link add wan0 type veth peer name eth0 netns $behind
ip link set lo up
ip addr add {HERE}/24 dev wan0; ip addr add {HERE_6}/64 dev wan0 nodad; ip link set wan0 up
inside="nsenter -t $behind -n"
for host in {PEER}/24 {OTHER}/24; do $inside ip addr add $host dev eth0; done
for host in {PEER_6}/64 {OTHER_6}/64; do $inside ip addr add $host dev eth0 nodad; done
$inside ip link set eth0 up; $inside ip link set lo up
$inside "$@" 2>&1 &
echo $behind
read end || true
"""
# Tells the rate of what it gets, or sends: "up" and "down" are seen from the machine.
_SERVER = """
import socket, sys, threading, time
def serve(connection):
    stream = connection.makefile("rwb")
    way, size = stream.readline().split()
    if way == b"down":
        stream.write(bytes(int(size)))
    else:
        start = None
        while size := stream.read1(1 << 16):
            total = total + len(size) if start else 0
            start, end = start or time.monotonic(), time.monotonic()
        stream.write(b"%f" % (8 * total / max(end - start, 1e-6)))
    stream.flush()
    connection.close()
for port in map(int, sys.argv[1:]):
    server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    def accept(server=server):
        while True:
            threading.Thread(target=serve, args=server.accept()[:1]).start()
    threading.Thread(target=accept).start()
print("ready", flush=True)
"""
_CLIENT = """
import socket, sys, time
address, port, way, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
connection = socket.create_connection((address, port), timeout=20)
connection.sendall(f"{way} {size}\\n".encode())
if way == "up":
    connection.sendall(bytes(size))
    connection.shutdown(socket.SHUT_WR)
    print(connection.makefile().read())
else:
    start = None
    while got := connection.recv(1 << 16):
        total = total + len(got) if start else 0
        start, end = start or time.monotonic(), time.monotonic()
    print(8 * total / max(end - start, 1e-6))
"""


class Machine:
    """The machine; a context manager."""

    def __init__(self) -> None:
        rootless = os.geteuid() != 0
        flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        server = [sys.executable, "-c", _SERVER, str(PORT), str(OTHER_PORT)]
        self._outer = subprocess.Popen(
            [
                "unshare",
                *(["--user", "--map-root-user"] if rootless else []),
                *flags,
                "sh",
                "-c",
                _MACHINE,
                "-",
                *server,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._outer.stdout is not None
        said = {self._outer.stdout.readline().strip() for _ in range(2)}
        assert "ready" in said, said
        (self._behind,) = said - {"ready"}
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        enter = ["--user", "--preserve-credentials"] if rootless else []
        self._enter = ["nsenter", "-t", children[0], *enter, "--net", "--mount", "--pid"]

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._outer.stdin is not None and self._outer.stdout is not None
        self._outer.stdin.close()
        self._outer.wait(LIMIT_S)
        self._outer.stdout.close()

    @staticmethod
    def words(program: str, *arguments: str) -> list[str]:
        """A command with ``python`` and ``bwbench`` replaced by ours."""
        if program == "bwbench":
            return [sys.executable, "-m", "bwbench.cli.main", *arguments]
        return [sys.executable if program == "python" else program, *arguments]

    def start(self, *words: str, behind: bool = False, **environment: str) -> subprocess.Popen[str]:
        """Start a program on the machine, or behind it; ``python`` and ``bwbench`` stand for ours."""
        further = ["nsenter", "-t", self._behind, "--net"] if behind else []
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "XDG_"))}
        return subprocess.Popen(
            [*self._enter, *further, *self.words(*words)],
            cwd=REPOSITORY,
            env={**known, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
        """Send a signal to a program that ``start`` has started, which is a child of nsenter."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), number)

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        with self.start(*words, **options) as process:
            output, errors = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def output_of(self, *words: str, check: bool = True, **options: Any) -> str:
        """What a program prints, which ends well unless that is not to be checked."""
        result = self.run(*words, **options)
        assert result.returncode == 0 or not check, result.stderr
        return result.stdout

    def apply(self, *words: str, dev: str = "wan0", peer: str = PEER, rate: str = "8 Mbit/s", **options: Any) -> str:
        """``bwbench link apply``, which succeeds."""
        return self.output_of(*applying(*words, dev=dev, peer=peer, rate=rate), **options)

    def clear(self, dev: str = "wan0") -> list[str]:
        """``bwbench link clear``, which succeeds: what was removed."""
        return list(json.loads(self.output_of("bwbench", "link", "clear", "--dev", dev, "--json"))["removed"])

    def rate_bps(self, way: str, address: str = PEER, port: int = PORT, size: int = 500_000) -> float:
        """TCP goodput between the machine and ``address``, as the receiver sees it."""
        return float(self.output_of("python", "-c", _CLIENT, address, str(port), way, str(size)))

    def state(self) -> dict[str, Any]:
        """All that a run could leave behind: interfaces, qdiscs, filters, state files, processes."""
        return {
            "interfaces": sorted(line.split()[1] for line in self.output_of("ip", "-o", "link").splitlines()),
            "qdiscs": self.output_of("tc", "qdisc", "show").splitlines(),
            "ingress": self.output_of("tc", "filter", "show", "dev", "wan0", "ingress"),
            "files": self.output_of("find", "/run", "-type", "f").splitlines(),
            "reverts": len(self.reverts()),
        }

    def reverts(self) -> list[int]:
        """Processes that wait to take a run back, by their number on the machine."""
        listed = self.output_of("ps", "-eo", "pid,args").splitlines()
        return [int(line.split()[0]) for line in listed if "-m bwbench.network.interface.revert" in line]


def applying(*words: str, dev: str = "wan0", peer: str = PEER, rate: str = "8 Mbit/s") -> tuple[str, ...]:
    """The words of ``bwbench link apply``."""
    return ("bwbench", "link", "apply", "--dev", dev, "--peer", peer, "--bandwidth", rate, *words)


def wait_for(reached: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Whether it came true within the limit."""
    end_s = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True
