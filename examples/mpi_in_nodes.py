"""Open MPI between the nodes of ``bwbench link run``: mpirun in node 0, its daemons in the others.

mpirun starts its daemons on other hosts by ssh, which no node listens for. Here every other node listens for one
command, and this program takes ssh's place.

    bwbench link run --nodes 2 --bandwidth '10 Mbit/s' --latency '5 ms' -- \
        python mpi_in_nodes.py [OPTION of mpirun...] PROGRAM...
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time

PORT = 22  # of a node that waits for its command, where an sshd would listen
START_S = 60.0  # for a node to listen


def listen(node: int) -> None:
    """Wait for the one command that mpirun has for this node, run it and tell its status; or end with mpirun."""
    with socket.create_server((f"node{node}", PORT)) as server:
        connection, _ = server.accept()
    with connection, connection.makefile("r") as request:
        command = request.read()
        status = subprocess.run(["/bin/sh", "-c", command], check=False).returncode
        with contextlib.suppress(OSError):  # mpirun has ended already
            connection.sendall(str(status).encode())


def ask(node: str, command: str) -> int:
    """Have a node run a command, as soon as it listens; the status of the command."""
    until = time.monotonic() + START_S
    while True:
        try:
            with socket.create_connection((node, PORT)) as connection:
                connection.sendall(command.encode())
                connection.shutdown(socket.SHUT_WR)
                return int(connection.recv(16) or 1)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def start(num_nodes: int, words: list[str]) -> int:
    """mpirun, and in the end nothing for the nodes that it had no use for."""
    agent = f"{sys.executable} {os.path.abspath(__file__)} --instead-of-ssh"
    # The names of version 5 and of those before. Whoever starts a link is root in its nodes, and nowhere else.
    settings = {"PRTE_MCA_plm_ssh_agent": agent, "OMPI_MCA_plm_rsh_agent": agent}
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    hosts = [f"node{node}" for node in range(num_nodes)]
    status = subprocess.run(["mpirun", "--host", ",".join(hosts), *words], env={**os.environ, **settings, **allowed})
    for host in hosts[1:]:
        try:
            socket.create_connection((host, PORT), timeout=1.0).close()
        except OSError:  # it had its command
            continue
    return status.returncode


def main(words: list[str]) -> int:
    """What a node does, or what mpirun asks of its agent: ``--instead-of-ssh NODE COMMAND...``."""
    if words[:1] == ["--instead-of-ssh"]:
        return ask(words[1], " ".join(words[2:]))
    if node := int(os.environ["BWBENCH_RANK"]):
        listen(node)
        return 0
    if shutil.which("mpirun") is None:
        print("mpirun is not installed; 'apt install openmpi-bin' brings it", file=sys.stderr)
        return 127
    return start(int(os.environ["BWBENCH_NODES"]), words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
