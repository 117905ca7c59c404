"""The process that makes the namespaces, supervises what runs in them, and takes all of it with it when it ends.

Two processes: the outer one enters the isolation and waits; its child is process 1 of the new PID namespace, lives in
the air namespace, and serves the parent's requests. Whichever way the parent dies, the outer one gets SIGKILL from the
kernel (PR_SET_PDEATHSIG) or the inner one reads the end of its control socket; with process 1 the kernel ends every
process of the PID namespace, and with the last process the anonymous network namespaces.

Started by ``open_network`` as ``python -m bwbench.network.agent``; single-threaded, as a user namespace requires.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from bwbench.base.errors import BwbenchError, ConfigError, LaunchError, LinkError, UnfitMachineError
from bwbench.network import namespaces
from bwbench.network.addresses import node_addresses
from bwbench.network.backend import AbstractBackend
from bwbench.network.backend_choice import choose
from bwbench.network.children import Children
from bwbench.network.control_socket import ControlSocket
from bwbench.network.link import Link
from bwbench.network.netem.check import netem_available
from bwbench.network.topology import Topology

# Errors that cross to the parent as themselves; anything else arrives as a LinkError with the traceback's last line.
ERRORS: dict[str, type[BwbenchError]] = {
    "LinkError": LinkError,
    "LaunchError": LaunchError,
    "UnfitMachineError": UnfitMachineError,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Enter the isolation, start process 1 in it, wait for it."""
    parser = argparse.ArgumentParser(prog="bwbench.network.agent")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--no-death-signal", action="store_true", help="the starting thread may end before the process")
    options = parser.parse_args(arguments)
    control = ControlSocket(socket.socket(fileno=options.socket_fd))
    control.connection.set_inheritable(False)
    if not options.no_death_signal:
        _die_with(options.parent_pid)
    try:
        namespaces.enter_isolation()
    except UnfitMachineError as error:
        control.send({"error": "UnfitMachineError", "message": str(error)})
        return
    if not options.no_death_signal:
        _die_with(options.parent_pid)  # entering a user namespace may have cleared it
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _first_process(control)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    control.close()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _die_with(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies; end now where it has died already."""
    namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def _first_process(control: ControlSocket) -> None:
    namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != 0:  # 0: the outer process is alive, outside this PID namespace; an orphan would have been killed
        raise RuntimeError("not the first process of a PID namespace")
    namespaces.set_process_name("bwbench-agent")
    Agent(control).serve()


class Agent:
    """Serves requests until the parent says ``close`` or is gone."""

    def __init__(self, control: ControlSocket) -> None:
        self._control = control
        self._children = Children()
        self._topology: Topology | None = None
        self._backend: AbstractBackend | None = None
        self._operations = {
            "open": self._open,
            "spawn": self._spawn,
            "signal": self._signal,
            "counters": self._counters,
            "health": self._health,
            "play": self._play,
            "hold": self._hold,
        }

    def serve(self) -> None:
        """Answer requests one by one, reaping children meanwhile; returns when the parent has gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._control.connection.fileno(), wake_read], [], [])
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                self._children.reap()
            if self._control.connection.fileno() in ready:
                message = self._control.receive()
                if message is None or message[0]["op"] == "close":
                    self._close()
                    return
                self._answer(*message)

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        reply: dict[str, Any] = {}
        try:
            reply = self._operations[request["op"]](request, fds)
        except BwbenchError as error:
            kind = next((name for name, known in ERRORS.items() if type(error) is known), "LinkError")
            reply = {"error": "ConfigError" if isinstance(error, ConfigError) else kind, "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": "LinkError", "message": f"{request['op']} failed: {type(error).__name__}: {error}"}
        self._control.send({"id": request["id"], **reply})

    def _open(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        link = Link.model_validate(request["link"])
        num_nodes = int(request["num_nodes"])
        name, reason = choose(link, _netem_available(link))
        self._topology = Topology(link, num_nodes, name)
        self._backend = _backend_class(name)(link, self._topology.ports)
        self._backend.start()
        nodes = [vars(node_addresses(node)) for node in range(num_nodes)]
        applied = {**self._topology.settings, **self._backend.applied}
        return {"backend": name, "backend_reason": reason, "applied": applied, "nodes": nodes}

    def _spawn(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        assert self._topology is not None
        pipe, *passed = fds
        try:
            namespace_fd = self._topology.node_fds[request["node"]]
            targets = dict(zip(request["targets"], passed, strict=True))
            inner, outer = self._children.spawn(
                namespace_fd, request["argv"], request["env"], request["cwd"], targets, pipe
            )
        finally:
            for fd in passed:
                os.close(fd)
        return {"child": inner, "pid": outer}

    def _signal(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self._children.reap()
        self._children.signal(request["child"], request["number"])
        return {}

    def _counters(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        assert self._backend is not None
        return {"counters": self._backend.counters().to_json()}

    def _health(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        assert self._backend is not None
        return {"health": self._backend.health()}

    def _play(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        assert self._backend is not None
        self._backend.play(request["at_s"])
        return {}

    def _hold(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        assert self._backend is not None
        self._backend.hold()
        return {}

    def _close(self) -> None:
        if self._backend is not None:
            with contextlib.suppress(Exception):  # the namespaces are about to take all of it with them anyway
                self._backend.stop()


def _backend_class(name: str) -> type[AbstractBackend]:
    """The class of a back end; imported when it is needed, as only one ever is."""
    if name == "relay":
        from bwbench.network.relay.backend import RelayBackend

        return RelayBackend
    if name == "netem":
        from bwbench.network.netem.backend import NetemBackend

        return NetemBackend
    from bwbench.network.bridge import UnshapedBackend

    return UnshapedBackend


def _netem_available(link: Link) -> bool:
    """Whether this kernel has netem; asked only where the answer matters."""
    if not link.shaped or link.backend == "relay" or link.medium == "shared":
        return False
    return netem_available()


if __name__ == "__main__":
    main()
