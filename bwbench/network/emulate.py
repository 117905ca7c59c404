"""Any programs on a shaped link, from Python.

import subprocess, time
from bwbench import Link, emulate

if __name__ == "__main__":
    with emulate(Link(bandwidth="10 Mbit/s", latency="5 ms"), num_nodes=2) as nodes:
        server = nodes[0].popen(["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        client = nodes[1].run(["iperf3", "--client", nodes[0].address], capture_output=True, text=True)
        print(client.stdout, nodes.counters().total())
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import IO, Any, overload

from bwbench.network.link import Link
from bwbench.network.link.trace_file import freeze_link
from bwbench.network.namespaces.addresses import node_environment
from bwbench.network.namespaces.backend import WireCounters
from bwbench.network.network import Network, NodeProcess, open_network
from bwbench.network.probe.verification import LinkMeasurement, verify

KILL_LIMIT_S = 5.0
LOOK_S = 0.1  # how long a wait keeps other threads from looking

Stream = int | IO[Any] | None  # as subprocess takes them: PIPE, DEVNULL, a descriptor, an open file; None is ours


@contextlib.contextmanager
def emulate(link: Link | Mapping[str, object] | str, num_nodes: int, dilation: float = 1.0) -> Iterator[Nodes]:
    """Nodes with ``link`` between them, for as long as the block lasts; what still runs in them ends with it.

    The nodes are network namespaces on this machine and see only each other. Needs no root where the kernel lets users
    make namespaces. Call it from the main thread; see ``open_network``.

    Args:
        link: a ``Link``, its keys as in an experiment file, or the name of a preset. Traces are relative to the working
            directory. What varies over time (traces, outages) stands still until ``play``.
        num_nodes: 1 to 254.
        dilation: so many times slower than the machine's time the link's runs: its rates are divided, its times
            multiplied.

    Raises:
        pydantic.ValidationError (a ValueError): the keys make no link.
        ConfigError: a trace cannot be read, the back end that was asked for cannot carry the link, or there is no
            such slow motion of it.
        UnfitMachineError: no rights to make namespaces, or the kernel lacks what the link needs.
    """
    if not isinstance(link, Link):
        named = isinstance(link, str) and link != "unshaped"
        link = Link.model_validate({"preset": link} if named else link)
    link = freeze_link(link, Path.cwd())
    with open_network(link, num_nodes, dilation=dilation) as network:
        yield Nodes(network, link)


class Node:
    """One node: a place to start processes in.

    Attributes:
        rank: its number, from 0.
        address: IPv4 address on the shaped network.
        interface: name of its shaped interface.
        environment: BWBENCH_RANK, BWBENCH_NODES, BWBENCH_ADDRESS, and the interface for gloo and NCCL, which ``popen``
            adds to our own environment.
    """

    def __init__(self, network: Network, rank: int) -> None:
        self._network = network
        self.rank = rank
        self.address = network.nodes[rank].data_address
        self.interface = network.nodes[rank].data_interface
        self.environment = node_environment(rank, network.nodes)

    def popen(
        self,
        args: Sequence[str | os.PathLike[str]],
        *,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> NodePopen:
        """Start a program in this node, as ``subprocess.Popen`` would; raises LaunchError where that fails.

        ``env`` is its whole environment; None is ours and ``environment``.
        """
        env = {**os.environ, **self.environment} if env is None else env
        return NodePopen(
            lambda words, fds: self._network.spawn(self.rank, words, env, cwd, pass_fds=fds),
            args,
            (stdin, stdout, stderr),
            text=text,
        )

    def run(
        self,
        args: Sequence[str | os.PathLike[str]],
        *,
        input: Any = None,
        capture_output: bool = False,
        timeout: float | None = None,
        check: bool = False,
        **options: Any,
    ) -> CompletedProcess[Any]:
        """Run a program in this node to its end, as ``subprocess.run`` would; ``options`` are those of ``popen``."""
        if input is not None:
            options["stdin"] = PIPE
        if capture_output:
            options.update(stdout=PIPE, stderr=PIPE)
        process = self.popen(args, **options)
        try:
            out, err = process.communicate(input, timeout)
        except TimeoutExpired as error:
            process.kill()
            error.stdout, error.stderr = process.communicate(timeout=KILL_LIMIT_S)
            raise
        except BaseException:
            process.kill()
            raise
        returncode = process.wait()
        if check and returncode:
            raise CalledProcessError(returncode, process.args, out, err)
        return CompletedProcess(process.args, returncode, out, err)


class Nodes(Sequence[Node]):
    """All nodes of a network.

    Attributes:
        network: what lies below, with ``backend``, ``applied`` and ``health()``.
        link: as asked, with its traces read.
    """

    def __init__(self, network: Network, link: Link) -> None:
        self.network = network
        self.link = link
        self._nodes = tuple(Node(network, rank) for rank in range(len(network.nodes)))

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | Sequence[Node]:
        return self._nodes[index]

    def verify(self, tolerance: float = 0.05) -> LinkMeasurement:
        """Measure the link between neighbours, which takes seconds and wants it idle; see ``probe.verify``.

        Asked and achieved are both of the machine's time.
        """
        return verify(self.network, self.link.dilated(self.network.dilation), len(self), tolerance)

    def counters(self) -> WireCounters:
        """What has crossed the link so far, pair by pair; ``counters().total()`` is the sum."""
        return self.network.counters()

    def play(self) -> None:
        """Let traces and outages begin now."""
        self.network.play()

    def hold(self) -> None:
        """Make the link steady again: mean rates, no outage."""
        self.network.hold()

    def change(self, **keys: Any) -> None:
        """Make the link another one while it runs: ``nodes.change(bandwidth="5 Mbit/s")``; see ``Network.change``."""
        self.link = self.network.change(**keys)


class NodePopen:
    """What ``subprocess.Popen`` is, for a process in a node; it ends with the network at the latest.

    Two things differ: standard input is /dev/null unless it is given, and signals reach the process's whole group, so
    that ``kill`` takes the children of a shell too.

    Attributes:
        args: program and arguments.
        pid: process id as we see it.
        stdin, stdout, stderr: file objects where ``PIPE`` was given, else None.
    """

    def __init__(
        self,
        spawn: Callable[[list[str], Mapping[int, int]], NodeProcess],
        args: Sequence[str | os.PathLike[str]],
        streams: Sequence[Stream],
        *,
        text: bool,
    ) -> None:
        """``spawn`` starts a program with descriptors of ours under the numbers that it is told."""
        self.args = [os.fspath(word) for word in args]
        self._threads: list[threading.Thread] = []
        self._read: dict[int, object] = {}
        with contextlib.ExitStack() as opened, contextlib.ExitStack() as theirs:
            fds: dict[int, int] = {}  # those missing are /dev/null
            files: list[IO[Any] | None] = [None, None, None]
            for number, stream in enumerate(streams):
                if stream is None and number:
                    (sys.stdout if number == 1 else sys.stderr).flush()
                    fds[number] = number
                elif stream == PIPE:
                    read, write = os.pipe()
                    ours, fds[number] = (read, write) if number else (write, read)
                    theirs.callback(os.close, fds[number])
                    mode = ("r" if number else "w") + ("" if text else "b")
                    files[number] = opened.enter_context(os.fdopen(ours, mode))
                elif stream == STDOUT and 1 in fds:
                    fds[number] = fds[1]
                elif stream not in (None, DEVNULL, STDOUT):
                    fds[number] = stream if isinstance(stream, int) else stream.fileno()
            self._process = spawn(self.args, fds)
            opened.pop_all()  # they stay open: it has started
        self.stdin, self.stdout, self.stderr = files
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for the signal that ended it; None until ``poll`` or ``wait`` has seen the end."""
        return self._process.returncode

    def poll(self) -> int | None:
        """The return code; None while the process runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """The return code once the process has ended; raises ``subprocess.TimeoutExpired``."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = LOOK_S if until_s is None else until_s - time.monotonic()
            returncode = self._process.wait(max(0.0, min(left_s, LOOK_S)))
            if returncode is not None:
                return returncode
            if left_s <= 0:
                raise TimeoutExpired(self.args, timeout or 0.0)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Send ``input``, read both outputs to their ends, wait; what came from ``PIPE``s, else None.

        Raises ``subprocess.TimeoutExpired``; nothing is lost, and it can be called again.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        if not self._threads:
            files = ((0, self.stdin), (1, self.stdout), (2, self.stderr))
            work = [(self._carry, (number, file, input)) for number, file in files if file is not None]
            self._threads = [threading.Thread(target=target, args=args, daemon=True) for target, args in work]
            for thread in self._threads:
                thread.start()
        for thread in self._threads:
            thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                raise TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return self._read.get(1), self._read.get(2)

    def _carry(self, number: int, file: IO[Any], content: Any) -> None:
        with contextlib.suppress(BrokenPipeError), file:  # it need not read all of its input
            if number:
                self._read[number] = file.read()
            elif content:
                file.write(content)

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process and its group; nothing happens where it has ended."""
        self._process.send_signal(sig)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> NodePopen:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipes and wait, as subprocess does."""
        for file in (self.stdout, self.stderr, self.stdin):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()
        self.wait()
