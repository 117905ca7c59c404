"""The commands of all nodes: started together, watched together, ended together; lines of several never mix."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from bwbench.cli.link.line_pipe import LinePipe, Outlet
from bwbench.cli.link.node_terminal import STDIN_FD, NodeStdin, NodeTerminal
from bwbench.network.network import Network, NodeProcess

GRACE_S = 3.0  # from the request to end until SIGKILL
KILL_LIMIT_S = 5.0
LOOK_S = 1.0  # how often to see how the link fares


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
        self._outlets = (Outlet(out), Outlet(err))
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
        for number, outlet in enumerate(self._outlets, start=1):
            stream = outlet.stream
            if lent is not None and stream.isatty():
                fds[number] = lent.theirs
            elif alone or lent is not None:  # as it comes: nobody else writes there
                fds[number] = stream.fileno()
            else:
                line_end = b"\r\n" if self._terminal is not None and stream.isatty() else b"\n"
                pipes.append(LinePipe(outlet, prefix, line_end))
                fds[number] = pipes[-1].write_fd
        self._pipes += pipes
        try:
            process = self._network.spawn(
                rank, command.argv, command.environment, pass_fds=fds, terminal=lent is not None, few_rights=True
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

    def _outlive_terminal(self) -> None:
        """Who had our terminal has ended, and others have not: a raw one would send nobody's Ctrl-C to us."""
        self.give_terminal_back()
        others = ", ".join(map(str, self.running))
        print(f"node {self._stdin.node} has ended; node(s) {others} still run, and Ctrl-C ends them", file=sys.stderr)

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
        for outlet in self._outlets:
            outlet.until_s = None if limit_s is None else started_s + limit_s
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
            if self._terminal is not None and self._stdin.node in self.returncodes and self.running:
                self._outlive_terminal()
        return True
