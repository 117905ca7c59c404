"""The commands of all nodes: started together, watched together, ended together; lines of several never mix."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from bwbench.cli.link.node_terminal import STDIN_FD, NodeStdin, NodeTerminal
from bwbench.network.network import Network, NodeProcess

GRACE_S = 3.0  # from the request to end until SIGKILL
KILL_LIMIT_S = 5.0
LOOK_S = 1.0  # how often to see how the link fares
LONGEST_LINE_BYTES = 65_536  # what is longer, or never ends its line, goes out in pieces
READ_BYTES = 65_536
MOST_READS = 16  # a pipe holds 64 kB, and 1 MB where somebody made it larger


@dataclass(frozen=True)
class NodeCommand:
    """What a node runs: words and whole environment."""

    argv: Sequence[str]
    environment: Mapping[str, str]


class NodeGroup:
    """One process a node; what they print goes line by line to ``out`` and ``err``, after ``[rank] `` if prefixed.

    Args:
        stdin: which node gets our standard input.
        before_output: called before lines of a node are passed on.
    """

    def __init__(
        self,
        network: Network,
        out: BinaryIO,
        err: BinaryIO,
        *,
        prefixed: bool,
        stdin: NodeStdin,
        before_output: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = network
        self._streams = (out, err)
        self._prefixed = prefixed
        self._stdin = stdin
        self._before_output = before_output
        self._terminal: NodeTerminal | None = None
        self._processes: dict[int, NodeProcess] = {}
        self._pipes: list[LinePipe] = []
        self._selector = selectors.DefaultSelector()
        self.returncodes: dict[int, int] = {}

    def start(self, commands: Sequence[NodeCommand]) -> None:
        """Start the command of every node; raises LaunchError where one cannot be."""
        if self._stdin.lends_terminal:
            self._terminal = NodeTerminal()
            for fd in self._terminal.fds:
                self._selector.register(fd, selectors.EVENT_READ, partial(self._terminal.carry, fd))
        for rank, command in enumerate(commands):
            self._start(rank, command, alone=len(commands) == 1)

    def _start(self, rank: int, command: NodeCommand, *, alone: bool) -> None:
        fds: dict[int, int] = {}
        pipes: list[LinePipe] = []
        lent = self._terminal if self._stdin.node == rank else None
        if self._stdin.node == rank:
            fds[0] = STDIN_FD if lent is None else lent.theirs
        prefix = b"[%d] " % rank if self._prefixed else b""
        for number, stream in enumerate(self._streams, start=1):
            if lent is not None and stream.isatty():
                fds[number] = lent.theirs
            elif alone or lent is not None:  # as it comes: nobody else writes there
                fds[number] = stream.fileno()
            else:
                line_end = b"\r\n" if self._terminal is not None and stream.isatty() else b"\n"
                pipes.append(LinePipe(stream, prefix, line_end))
                fds[number] = pipes[-1].write_fd
        self._pipes += pipes
        try:
            process = self._network.spawn(
                rank, command.argv, command.environment, pass_fds=fds, terminal=lent is not None
            )
        finally:
            for pipe in pipes:
                os.close(pipe.write_fd)  # without which the pipe would never end
            if lent is not None:
                lent.has_been_taken()
        for pipe in pipes:
            self._selector.register(pipe, selectors.EVENT_READ, partial(self._pass_on, pipe))
        self._processes[rank] = process
        self._selector.register(process, selectors.EVENT_READ, partial(self._note_end, rank))

    def _pass_on(self, pipe: LinePipe) -> bool:
        self._before_output()
        return pipe.pass_on()

    def _note_end(self, rank: int) -> bool:
        returncode = self._processes[rank].poll()
        self.returncodes[rank] = -signal.SIGKILL if returncode is None else returncode
        return False

    @property
    def running(self) -> list[int]:
        """Nodes whose command has not ended yet."""
        return [rank for rank in self._processes if rank not in self.returncodes]

    def end(self, politely: int) -> None:
        """Ask those that still run to end, by this signal; after a grace they are killed."""
        for number, limit_s in ((politely, GRACE_S), (signal.SIGKILL, KILL_LIMIT_S)):
            for rank in self.running:
                self._processes[rank].send_signal(number)
            if self._network.is_lost:  # nobody hears us; they end with the network
                return
            self.watch(limit_s, to_the_end=True)

    def give_terminal_back(self) -> None:
        """Make the terminal ours again, where it was a node's. Safe to call twice."""
        if self._terminal is not None:
            for fd in self._terminal.fds:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(fd)
            self._terminal.close()
            self._terminal = None

    def close(self) -> None:
        """Pass on what was printed last. What is still running is for the network to end."""
        self.give_terminal_back()
        self._selector.close()
        for pipe in self._pipes:
            pipe.finish()

    def watch(
        self, limit_s: float | None, *, to_the_end: bool = False, look: Callable[[], None] = lambda: None
    ) -> bool:
        """Pass on output until all have ended, or, unless ``to_the_end``, one has failed.

        Args:
            look: called every ``LOOK_S``.

        Returns False where that takes longer than ``limit_s``.
        """
        started_s = looked_s = time.monotonic()
        while self.running and (to_the_end or not any(self.returncodes.values())):
            now_s = time.monotonic()
            left_s = LOOK_S if limit_s is None else started_s + limit_s - now_s
            if left_s <= 0:
                return False
            if now_s - looked_s > LOOK_S:
                looked_s = now_s
                look()
            for key, _ in self._selector.select(min(left_s, LOOK_S)):
                if not key.data():
                    self._selector.unregister(key.fileobj)
        return True


class LinePipe:
    """A pipe into which a node writes, and out of which whole lines go to one of our own streams.

    Attributes:
        write_fd: the node's end; close ours once the node has it.
    """

    def __init__(self, out: BinaryIO, prefix: bytes, line_end: bytes = b"\n") -> None:
        self._out = out
        self._prefix = prefix
        self._line_end = line_end
        self._line = b""
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)

    def fileno(self) -> int:
        """The end that is read."""
        return self._read_fd

    def pass_on(self) -> bool:
        """Pass on what is there; False at the end of the pipe."""
        try:
            data = os.read(self._read_fd, READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._line = (self._line + data).split(b"\n")
        while len(self._line) > LONGEST_LINE_BYTES:
            lines.append(self._line[:LONGEST_LINE_BYTES])
            self._line = self._line[LONGEST_LINE_BYTES:]
        self._write(lines)
        return bool(data)

    def finish(self) -> None:
        """Pass on what can be read at once, a last line without its end too, and close the pipe. Safe to call twice."""
        if self._read_fd < 0:
            return
        with contextlib.suppress(BlockingIOError):  # something left behind by the node's command holds the other end …
            for _ in range(MOST_READS):  # … and may write for ever
                data = os.read(self._read_fd, READ_BYTES)
                if not data:
                    break
                self._line += data
        lines = self._line.split(b"\n")
        self._line = b""
        os.close(self._read_fd)
        self._read_fd = -1
        self._write(lines if lines[-1] else lines[:-1])

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self._out.write(b"".join(self._prefix + line + self._line_end for line in lines))
            self._out.flush()
