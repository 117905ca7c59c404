"""The process that makes the namespaces, supervises what runs in them, and takes all of it with it when it ends.

Two processes: the outer one enters the isolation and waits; its child is process 1 of the new PID namespace, lives in
the air namespace, and serves the parent's requests. Whichever way the parent dies, the outer one gets SIGKILL from the
kernel (``base/die_with_parent.py``) or the inner one reads the end of its control socket; with process 1 the kernel
ends every process of the PID namespace, and with the last process the anonymous network namespaces.

What runs in the nodes is started and reaped here too, as process 1 has to. Started by ``open_network`` as ``python -m
bwbench.network.namespaces.agent``; single-threaded, as a user namespace requires.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import termios
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.errors import BwbenchError, LaunchError, UnfitMachineError
from bwbench.network.backend_choice import choose
from bwbench.network.link import Link
from bwbench.network.namespaces import agent_protocol as protocol
from bwbench.network.namespaces import isolation, machine_files
from bwbench.network.namespaces.addresses import node_addresses
from bwbench.network.namespaces.backend import AbstractBackend
from bwbench.network.namespaces.rights import give_up_rights
from bwbench.network.namespaces.wiring import Wiring
from bwbench.network.netem.kernel_backends import NetemBackend, UnshapedBackend
from bwbench.network.netem.netem_check import netem_available
from bwbench.network.relay.relay_backend import RelayBackend

_BACKENDS: dict[str, type[AbstractBackend]] = {
    kind.name: kind for kind in (RelayBackend, NetemBackend, UnshapedBackend)
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Enter the isolation, start process 1 in it, wait for it."""
    parser = argparse.ArgumentParser(prog="bwbench.network.namespaces.agent")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--no-death-signal", action="store_true", help="the starting thread may end before the process")
    options = parser.parse_args(arguments)
    control = protocol.ControlSocket(socket.socket(fileno=options.socket_fd))
    control.connection.set_inheritable(False)
    if not options.no_death_signal:
        die_with_parent(options.parent_pid)
    try:
        isolation.enter_isolation()
    except UnfitMachineError as error:
        control.send({"error": "UnfitMachineError", "message": str(error)})
        return
    if not options.no_death_signal:
        die_with_parent(options.parent_pid)  # entering a user namespace may have cleared it
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent()
            if os.getppid() != 0:  # 0: the outer process is alive, outside this PID namespace; else we had been killed
                raise RuntimeError("not the first process of a PID namespace")
            isolation.set_process_name("bwbench-agent")
            Agent(control).serve()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    control.close()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


class Agent:
    """Serves requests until the parent says ``close`` or is gone."""

    def __init__(self, control: protocol.ControlSocket) -> None:
        self._control = control
        self._children = Children()
        self._wiring: Wiring | None = None
        self._backend: AbstractBackend | None = None

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
                if message is None or message[0].get("op") == "close":
                    if self._backend is not None:
                        with contextlib.suppress(Exception):  # the namespaces take all of it with them anyway
                            self._backend.stop()
                    return
                self._answer(*message)

    def _answer(self, message: dict[str, Any], fds: list[int]) -> None:
        number, op = message.pop("id"), message.pop("op")
        try:
            reply: Mapping[str, object] = vars(self._do(protocol.REQUESTS[op](**message), fds))
        except BwbenchError as error:
            names = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in protocol.ERRORS]
            reply = {"error": names[0] if names else "LinkError", "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": "LinkError", "message": f"{op} failed: {type(error).__name__}: {error}"}
        self._control.send({"id": number, **reply})

    def _do(self, request: protocol.Request[Any], fds: list[int]) -> protocol.Done:
        if isinstance(request, protocol.Open):
            return self._open(Link.model_validate(request.link).dilated(request.dilation), request)
        if isinstance(request, protocol.Spawn):
            return self._spawn(request, fds)
        if isinstance(request, protocol.Signal):
            self._children.reap()
            self._children.signal(request.child, request.number)
            return protocol.Done()
        assert self._backend is not None and self._wiring is not None
        if isinstance(request, protocol.AskUnroutable):
            return protocol.Unroutable(self._wiring.unroutable())
        if isinstance(request, protocol.Count):
            return protocol.Counted(self._backend.counters().to_json())
        if isinstance(request, protocol.AskHealth):
            return protocol.Healthy(self._backend.health())
        if isinstance(request, protocol.Change):
            self._backend.change(Link.model_validate(request.link).dilated(request.dilation))
            return protocol.Changed(self._backend.applied)
        if isinstance(request, protocol.Play):
            self._backend.play(request.at_s)
        return protocol.Done()

    def _open(self, link: Link, request: protocol.Open) -> protocol.Opened:
        # Whether this kernel has netem is asked only where the answer matters.
        may_be_netem = link.shaped and link.backend != "relay" and link.medium != "shared" and not link.sites
        name, reason = choose(link, netem_available=may_be_netem and netem_available())
        self._wiring = Wiring(link, request.num_nodes, name, control_path=request.control_path)
        machine_files.hide_outside([node_addresses(node).data_address for node in range(request.num_nodes)])
        self._backend = _BACKENDS[name](link, self._wiring.ports)
        self._backend.start()
        return protocol.Opened(name, reason, {**self._wiring.settings, **self._backend.applied})

    def _spawn(self, request: protocol.Spawn, fds: list[int]) -> protocol.Spawned:
        assert self._wiring is not None
        pipe, *passed = fds
        try:
            namespace_fd = self._wiring.node_fds[request.node]
            targets = dict(zip(request.targets, passed, strict=True))
            return self._children.spawn(namespace_fd, request, targets, pipe)
        finally:
            for fd in passed:
                os.close(fd)


class Children:
    """The processes that were started for the parent; each reports its exit status through a pipe of its own."""

    def __init__(self) -> None:
        self._exit_pipes: dict[int, int] = {}

    def spawn(self, namespace_fd: int, asked: protocol.Spawn, fds: Mapping[int, int], pipe: int) -> protocol.Spawned:
        """Start what is asked for in a session of its own inside ``namespace_fd``.

        Args:
            fds: descriptor numbers in the child to descriptors here; 0, 1 and 2 not named are /dev/null.
            pipe: gets the return code as a line once the process has ended (negative: the signal); owned from now on.

        Raises LaunchError where it cannot be started.
        """
        report_read, report_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(report_read)
            _become(namespace_fd, asked, fds, report_write)
        os.close(report_write)
        self._exit_pipes[pid] = pipe
        with open(report_read, "rb") as report:
            outer, told, failure = report.read().partition(b"\n")
        failure = failure if told else outer
        if failure:
            raise LaunchError(f"cannot start {asked.argv[0]!r} in a node: {failure.decode(errors='replace')}")
        return protocol.Spawned(pid, int(outer or pid))

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a started process and its group; nothing happens where it has ended."""
        if pid in self._exit_pipes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def reap(self) -> None:
        """Take in all processes that have ended, orphans of theirs included, and report those that we started."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            pipe = self._exit_pipes.pop(pid, None)
            if pipe is not None:
                with contextlib.suppress(OSError):  # the parent has stopped listening to this one
                    os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(pipe)


def _become(namespace_fd: int, asked: protocol.Spawn, fds: Mapping[int, int], report: int) -> None:
    """In the forked child: turn into what is asked for, or report why not. Never returns."""
    try:
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, _first_spare(fds))
        outer_pid = str(os.getpid())
        with contextlib.suppress(OSError):  # as the PID namespace sees it that /proc belongs to: the parent's
            outer_pid = os.readlink("/proc/self")
        os.write(report, outer_pid.encode() + b"\n")
        os.setsid()
        isolation.setns(namespace_fd)
        machine_files.be_node(asked.node)
        die_with_parent()
        _place_descriptors(fds)
        if asked.few_rights:
            give_up_rights()
        if asked.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.chdir(asked.cwd)
        os.execvpe(asked.argv[0], list(asked.argv), dict(asked.env))
    except BaseException as error:  # noqa: B036 - nothing may escape into the agent's own code
        with contextlib.suppress(OSError):
            os.write(report, str(error).encode())
    finally:
        os._exit(127)


def _first_spare(fds: Mapping[int, int]) -> int:
    """The first number above those that the child is to find something under; a limit of open files may be low."""
    return 1 + max((2, *fds))


def _place_descriptors(fds: Mapping[int, int]) -> None:
    """Put each descriptor under its number: first out of the way of all numbers, then into place."""
    devnull = os.open(os.devnull, os.O_RDWR)
    spare = {
        target: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _first_spare(fds))
        for target, source in {0: devnull, 1: devnull, 2: devnull, **fds}.items()
    }
    for target, source in spare.items():
        os.dup2(source, target, inheritable=True)


if __name__ == "__main__":
    main()
