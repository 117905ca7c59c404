"""The parent's side of a network: open it, start processes in its nodes, read its counters, close it.

with open_network(link, num_nodes=4) as network:
    process = network.spawn(0, ["ping", "-c1", network.nodes[1].data_address], stdout=1)
    process.wait(timeout_s=5)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from bwbench.base.errors import ConfigError, LinkError, Problem
from bwbench.base.explain import explain
from bwbench.base.ownership import owned
from bwbench.base.start_module import module_command
from bwbench.network.link import Link
from bwbench.network.link.dilation import cannot_dilate
from bwbench.network.link.link_checks import unknown_nodes
from bwbench.network.link.named_links import OF_JITTER, on_top
from bwbench.network.namespaces import agent_protocol as protocol
from bwbench.network.namespaces.addresses import MAX_NODES, NodeAddresses, node_addresses
from bwbench.network.namespaces.agent_protocol import AnswerT
from bwbench.network.namespaces.backend import WireCounters

__all__ = ["Network", "NodeAddresses", "NodeProcess", "open_network"]

OPEN_LIMIT_S = 240.0  # 254 nodes on a busy machine take a minute
REQUEST_LIMIT_S = 15.0
CLOSE_LIMIT_S = 5.0
LOOK_S = 1.0  # how often to see, while it does not answer, whether the agent is stopped
STOPPED_LIMIT_S = 4.0  # somebody who stops it for a moment and lets it go on ends nothing


class _Stopped(TimeoutError):
    """The agent does not run: a signal has stopped it."""


@contextmanager
def open_network(link: Link, num_nodes: int, *, control_path: bool = False, dilation: float = 1.0) -> Iterator[Network]:
    """A network of ``num_nodes`` nodes with ``link`` between them, for as long as the block lasts.

    Everything that it makes (processes, namespaces, interfaces) ends with the block, and with this process however it
    ends, SIGKILL included. Call it from the main thread: the kernel's notice of a parent's death is bound to the thread
    that started a child, so from another thread the end of a socket has to do, which a forked copy of this process
    would hold open.

    Args:
        control_path: whether nodes have a second interface, which nothing shapes (``addresses.control_address``): for
            what an experiment says beside its training. Without it there is no way round the link.
        dilation: emulated time runs so many times slower than the machine's: ``link``, which is in emulated time, is
            made as ``link.dilated(dilation)``.

    Raises:
        UnfitMachineError: no rights to make namespaces, or the kernel lacks what the link needs.
        ConfigError: the link asks for a back end that cannot carry it, or ``num_nodes`` is out of range; the link is
            unshaped, or its congestion control has clocks of its own, where there is a dilation.
    """
    network = Network(link, num_nodes, control_path=control_path, dilation=dilation)
    try:
        yield network
    finally:
        network.close()


class Network:
    """An open network; made by ``open_network``. Its methods may be called from any thread.

    Attributes:
        nodes: the nodes' addresses and interfaces.
        backend: what carries the link: ``relay``, ``netem`` or ``unshaped``.
        backend_reason: why this one was chosen.
        applied: the parameters really set, in the machine's time, as ``link.json`` has them.
        dilation: so many times slower than the machine's time the emulated one runs.
        link: as it is asked now, in emulated time.
    """

    def __init__(self, link: Link, num_nodes: int, *, control_path: bool = False, dilation: float = 1.0) -> None:
        if not 1 <= num_nodes <= MAX_NODES:
            raise ConfigError(f"nodes: {num_nodes} is out of range: 1 to {MAX_NODES} on one machine")
        if wrong := unknown_nodes(link, num_nodes):
            raise ConfigError([Problem(f"link.{key}: {text}") for key, text in wrong])
        _check_dilated(link, dilation)
        self.dilation = dilation
        self.link = self._first_link = link
        self._changes: dict[str, Any] = {}
        self._agent = AgentClient()
        try:
            keys = link.model_dump(mode="json", by_alias=True)
            opened = self._agent.request(protocol.Open(keys, num_nodes, control_path, dilation), OPEN_LIMIT_S)
        except BaseException:
            self._agent.close()
            raise
        self.nodes = tuple(node_addresses(node) for node in range(num_nodes))
        self.backend = opened.backend
        self.backend_reason = opened.backend_reason
        self.applied: Mapping[str, Any] = opened.applied

    def spawn(
        self,
        node: int,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Mapping[int, int] | None = None,
        *,
        few_rights: bool = False,
        terminal: bool = False,
    ) -> NodeProcess:
        """Start a process in a node, in a session of its own.

        Args:
            node: number of the node, from 0.
            argv: program and arguments; the program is looked up in ``env``'s PATH.
            env: its whole environment; None passes on ours.
            cwd: its working directory; None passes on ours.
            stdout, stderr: file descriptors of ours; None is /dev/null, as its standard input always is.
            pass_fds: descriptor numbers in the child to descriptors of ours.
            few_rights: it goes without most capabilities, whoever we are (``namespaces/rights.py``).
            terminal: its descriptor 0 is a terminal that becomes its session's own, with Ctrl-C and job control.

        Raises LaunchError where the program cannot be started.
        """
        fds = dict(pass_fds or {})
        fds.update({number: fd for number, fd in ((1, stdout), (2, stderr)) if fd is not None})
        exit_read, exit_write = os.pipe()
        try:
            spawn = protocol.Spawn(
                node=node,
                argv=[os.fspath(word) for word in argv],
                env=dict(os.environ if env is None else env),
                cwd=os.fspath(cwd) if cwd is not None else os.getcwd(),
                targets=list(fds),
                few_rights=few_rights,
                terminal=terminal,
            )
            spawned = self._agent.request(spawn, REQUEST_LIMIT_S, [exit_write, *fds.values()])
        except BaseException:
            os.close(exit_read)
            raise
        finally:
            os.close(exit_write)

        def send_signal(number: int) -> None:
            self._agent.request(protocol.Signal(spawned.child, number), REQUEST_LIMIT_S)

        return NodeProcess(spawned.pid, exit_read, send_signal)

    def counters(self) -> WireCounters:
        """What has crossed the link so far, pair by pair."""
        return WireCounters.from_json(self._agent.request(protocol.Count(), REQUEST_LIMIT_S).rows)

    def health(self) -> dict[str, Any]:
        """How well the back end keeps up: ``{"backend", "alive", "lateness_p99_s", "cpu_s", "drops", …}``."""
        return self._agent.request(protocol.AskHealth(), REQUEST_LIMIT_S).health

    def looked_outside(self) -> list[int]:
        """Nodes in which a program has asked for an address that is no node's, and to which no way leads."""
        attempts = self._agent.request(protocol.AskUnroutable(), REQUEST_LIMIT_S).attempts
        return [node for node, number in enumerate(attempts) if number]

    def play(self, at_s: float = 0.0) -> None:
        """Let what varies about the link (traces, outages) begin now, or go on from ``at_s``; a second call likewise.

        ``at_s`` is of emulated time, as the traces' and outages' own times in the link that was asked.

        Before that, and after ``hold``, the link is steady, so that it can be measured: traces are at their mean rates,
        and there are no outages. Nothing happens on a link that is constant.
        """
        self._agent.request(protocol.Play(at_s * self.dilation), REQUEST_LIMIT_S)

    def hold(self) -> None:
        """Make the link steady again; see ``play``."""
        self._agent.request(protocol.Play(None), REQUEST_LIMIT_S)

    def change(self, /, **keys: Any) -> Link:
        """Make the link another one while it runs: ``change(bandwidth="5 Mbit/s", loss=0.01)``.

        What waits in a queue stays there and goes on at the new rate; frames under way keep their time. A queue that
        was asked for as a time or as bandwidth-delay products becomes as long as the new rate makes it. Of loss and
        jitter the value alone changes: bursts, kind and distribution stay, also where it was 0 meanwhile.

        Args:
            keys: of ``CHANGEABLE``, as a link has them; what is not named stays.

        Returns the link that it is now, in emulated time.

        Raises ConfigError for a key that cannot be changed, a value that is none, a rate that a trace drives, and a
        back end that cannot.
        """
        replaced = ("up", "down") if "bandwidth" in keys else ()
        changes = {**{key: value for key, value in self._changes.items() if key not in replaced}, **keys}
        link = changed_link(self._first_link, changes if keys else {})
        told = link.model_dump(mode="json", by_alias=True)
        self.applied = {
            **self.applied,
            **self._agent.request(protocol.Change(told, self.dilation), REQUEST_LIMIT_S).applied,
        }
        self.link, self._changes = link, changes
        return link

    @property
    def is_lost(self) -> bool:
        """Whether its agent has stopped answering: nothing can be asked of it any more, but ``close`` ends it."""
        return self._agent.lost is not None

    def close(self) -> None:
        """End everything in the network. Safe to call twice."""
        self._agent.close()


def _check_dilated(link: Link, dilation: float) -> None:
    """Raise ConfigError where this link cannot be made slower or faster than it was asked."""
    if link.dilation != 1:
        raise ValueError("a network takes the link that was asked, and its dilation beside it")
    try:
        link.dilated(dilation)
    except ValueError as error:
        raise ConfigError(f"dilation: {error}") from None
    if dilation != 1 and (why := cannot_dilate(link.tcp.congestion_control)):
        raise ConfigError(f"link.tcp.congestion_control: {why}")


CHANGEABLE = ("bandwidth", "up", "down", "latency", "jitter", "loss")


def changed_link(link: Link, keys: Mapping[str, Any]) -> Link:
    """``link`` with ``keys`` on top, as they go on top of a named link; raises ConfigError.

    Rates are refused where a trace drives that direction. What jitter is like stays where nodes have one of their own.
    """
    if not keys:
        raise ConfigError(f"nothing is to be changed; name one of {', '.join(CHANGEABLE)}")
    for key in keys:
        if key not in CHANGEABLE:
            raise ConfigError(f"{key!r} cannot be changed while the link runs. Can be: {', '.join(CHANGEABLE)}")
    if not link.shaped:
        raise ConfigError("an unshaped link has nothing that could be changed")
    traced = [name for name in ("up", "down") if link.trace is not None and getattr(link.trace, name) is not None]
    for key in keys:
        if key in traced or (key == "bandwidth" and traced):
            free = " or ".join(f"'{name}'" for name in ("up", "down") if name not in traced)
            instead = f"change {free} alone" if free else "begin without the trace to change rates by hand"
            raise ConfigError(f"{key!r} cannot be changed: a trace drives the rate {' and '.join(traced)}; {instead}")
    kept = {key: value for key, value in link.model_dump(mode="json", by_alias=True).items() if value is not None}
    try:
        made = on_top(kept, keys)
        if any(override.jitter_s for override in link.overrides.values()):
            made |= {key: kept[key] for key in OF_JITTER}
        return Link.model_validate(made)
    except ValidationError as error:
        raise ConfigError("; ".join(message for _, message in explain(error, Link))) from None


class NodeProcess:
    """A started process. Its methods may be called from any thread.

    Attributes:
        pid: process id as we see it (the process itself sees another one).
        returncode: exit status, negative for the signal that ended it; None while it runs.
    """

    def __init__(self, pid: int, exit_pipe: int, send_signal: Callable[[int], None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._exit_pipe = exit_pipe
        self._send_signal = send_signal
        self._lock = threading.Lock()
        self._cpu_time_s = 0.0

    def fileno(self) -> int:
        """Becomes readable when the process has ended: for ``select``, until ``poll`` has returned a status."""
        return self._exit_pipe

    def poll(self) -> int | None:
        """The return code; None while the process runs."""
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> int | None:
        """The return code once the process has ended; None where that takes longer than ``timeout_s``."""
        with self._lock:
            if self.returncode is None:
                waiter = select.poll()  # select.select refuses descriptors from 1024 on
                waiter.register(self._exit_pipe, select.POLLIN)
                if waiter.poll(max(0.0, timeout_s) * 1e3):
                    line = os.read(self._exit_pipe, 64)
                    self.returncode = int(line) if line else -signal.SIGKILL  # the network ended, and it too
                    os.close(self._exit_pipe)
            return self.returncode

    def kill(self) -> None:
        """SIGKILL to the process and the children in its group; nothing happens where it has ended."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process and its group; nothing happens where it has ended."""
        if self.returncode is None:
            with contextlib.suppress(LinkError):  # the network is closed: so is the process
                self._send_signal(number)

    def cpu_time_s(self) -> float:
        """CPU time that the process has used so far (the last figure known once it has ended)."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{self.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            self._cpu_time_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return self._cpu_time_s

    def __del__(self) -> None:
        if getattr(self, "returncode", 0) is None:
            with contextlib.suppress(OSError):
                os.close(self._exit_pipe)


class AgentClient:
    """A running agent. Requests may come from any thread, one at a time.

    Attributes:
        lost: why it answers no longer, once that is known; it is not asked again then.
    """

    def __init__(self) -> None:
        self.lost: str | None = None
        ours, theirs = socket.socketpair()
        self._control = protocol.ControlSocket(ours)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._errors_fd = os.memfd_create("agent-stderr")  # not a pipe: nobody has to read it; no disk that can be full
        arguments = ["--socket-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())]
        if threading.current_thread() is not threading.main_thread():
            arguments.append("--no-death-signal")
        try:
            self._process = subprocess.Popen(
                [*module_command("bwbench.network.namespaces.agent"), *arguments],
                cwd="/",  # the user's folder may be on a disk that goes away; what runs in the nodes names its own
                env=owned(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors_fd,
                start_new_session=True,  # Ctrl-C in the terminal is for us to handle, not for it
            )
        except BaseException:
            self._control.close()
            os.close(self._errors_fd)
            raise
        finally:
            theirs.close()

    def request(self, request: protocol.Request[AnswerT], limit_s: float, fds: Sequence[int] = ()) -> AnswerT:
        """Have the agent do something, and return its answer.

        Raises the error that the agent reports; LinkError where it is gone, stopped, or takes longer than ``limit_s``.
        """
        with self._lock:
            if self.lost is not None:
                raise LinkError(self.lost)
            number = next(self._numbers)
            try:
                self._control.connection.settimeout(limit_s)
                self._control.send({"id": number, "op": request.op, **vars(request)}, fds)
                reply = self._reply(number, limit_s)
            except TimeoutError as error:
                why = str(error) if isinstance(error, _Stopped) else f"did not answer {request.op!r} in {limit_s:.0f} s"
                self.lost = f"the network's agent {why}"
                raise LinkError(self.lost) from error
            except OSError as error:
                self.lost = f"the network's agent is gone ({request.op!r} was asked of it){self._last_words()}"
                raise LinkError(self.lost) from error
        if "error" in reply:
            raise protocol.ERRORS.get(reply["error"], LinkError)(reply["message"])
        reply.pop("id", None)
        return cast("AnswerT", request.answer(**reply))

    def _reply(self, number: int, limit_s: float) -> dict[str, Any]:
        """The answer to request ``number``; raises TimeoutError where it does not come, OSError at the end."""
        started_s = time.monotonic()
        stopped_since_s: float | None = None
        while (waited_s := time.monotonic() - started_s) < limit_s:
            self._control.connection.settimeout(min(LOOK_S, limit_s - waited_s))
            try:
                message = self._control.receive()
            except TimeoutError:
                pid = self._stopped_process()
                if pid is None:
                    stopped_since_s = None
                elif stopped_since_s is None:
                    stopped_since_s = waited_s
                elif waited_s - stopped_since_s > STOPPED_LIMIT_S:
                    raise _Stopped(f"is stopped (process {pid}; somebody has sent it SIGSTOP)") from None
                continue
            if message is None:
                raise ConnectionError
            if message[0].get("id", number) == number:  # else: the reply to a request that was interrupted
                return message[0]
        raise TimeoutError

    def _stopped_process(self) -> int | None:
        """The process of the agent that a signal has stopped, if one has."""
        import psutil  # inside: wanted only where something is wrong

        with contextlib.suppress(psutil.Error):
            outer = psutil.Process(self._process.pid)
            for process in (outer, *outer.children()):
                if process.status() == psutil.STATUS_STOPPED:
                    return process.pid
        return None

    def close(self) -> None:
        """End the agent and everything that it holds. Safe to call twice."""
        if self._process.returncode is None:
            if self.lost is not None:  # it would not hear us; with process 1 the kernel ends all the others
                import psutil

                with contextlib.suppress(psutil.Error):
                    for inner in psutil.Process(self._process.pid).children():
                        inner.kill()
                    self._process.send_signal(signal.SIGCONT)
            with contextlib.suppress(OSError):
                self._control.connection.settimeout(CLOSE_LIMIT_S)
                self._control.send({"id": 0, "op": "close"})
            self._control.close()
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(CLOSE_LIMIT_S)
            finally:  # interrupted or not
                if self._process.poll() is None:
                    self._process.kill()
                    self._process.wait(CLOSE_LIMIT_S)
            with contextlib.suppress(OSError):
                os.close(self._errors_fd)

    def _last_words(self) -> str:
        """The end of what the agent wrote to stderr."""
        with contextlib.suppress(OSError):
            text = os.pread(self._errors_fd, 1 << 20, 0).decode(errors="replace").strip()
            if text:
                return ":\n" + "\n".join(text.splitlines()[-8:])
        return ""
