"""The commands of all nodes: started together, watched together, ended together; lines of several never mix."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from bwbench.base.errors import LinkError
from bwbench.network.network import Network, NodeProcess

GRACE_S = 3.0  # from the request to end until SIGKILL
KILL_LIMIT_S = 5.0
LOOK_S = 2.0  # how often to ask whether the emulator is alive
LONGEST_LINE_BYTES = 65_536  # what is longer, or never ends its line, goes out in pieces
READ_BYTES = 65_536
MOST_READS = 16  # a pipe holds 64 kB, and 1 MB where somebody made it larger


class NodeGroup:
    """One process a node; what they print goes line by line to ``out`` and ``err``, after ``[rank] `` if prefixed."""

    def __init__(self, network: Network, out: BinaryIO, err: BinaryIO, *, prefixed: bool) -> None:
        self._network = network
        self._streams = (out, err)
        self._prefixed = prefixed
        self._processes: dict[int, NodeProcess] = {}
        self._pipes: list[LinePipe] = []
        self._selector = selectors.DefaultSelector()
        self.returncodes: dict[int, int] = {}

    def start(self, commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        """Start the command (words and environment) of every node; raises LaunchError where one cannot be."""
        if len(commands) == 1:  # as it comes: nobody else writes, and a terminal stays one
            out, err = (stream.fileno() for stream in self._streams)
            self._add(0, self._network.spawn(0, *commands[0], None, out, err))
            return
        for rank, command in enumerate(commands):
            prefix = b"[%d] " % rank if self._prefixed else b""
            pipes = [LinePipe(stream, prefix) for stream in self._streams]
            self._pipes += pipes
            try:
                out, err = (pipe.write_fd for pipe in pipes)
                process = self._network.spawn(rank, *command, None, out, err)
            finally:
                for pipe in pipes:
                    os.close(pipe.write_fd)  # without which the pipe would never end
            for pipe in pipes:
                self._selector.register(pipe, selectors.EVENT_READ, pipe)
            self._add(rank, process)

    def _add(self, rank: int, process: NodeProcess) -> None:
        self._processes[rank] = process
        self._selector.register(process, selectors.EVENT_READ, rank)

    @property
    def running(self) -> list[int]:
        """Nodes whose command has not ended yet."""
        return [rank for rank in self._processes if rank not in self.returncodes]

    def end(self, politely: int) -> None:
        """Ask those that still run to end, by this signal; after a grace they are killed."""
        for number, limit_s in ((politely, GRACE_S), (signal.SIGKILL, KILL_LIMIT_S)):
            for rank in self.running:
                self._processes[rank].send_signal(number)
            self.watch(limit_s, to_the_end=True)

    def close(self) -> None:
        """Pass on what was printed last. What is still running is for the network to end."""
        self._selector.close()
        for pipe in self._pipes:
            pipe.finish()

    def watch(self, limit_s: float | None, *, to_the_end: bool = False) -> bool:
        """Pass on output until all have ended, or, unless ``to_the_end``, one has failed.

        Returns False where that takes longer than ``limit_s``. Raises LinkError where the emulator of the link has
        ended.
        """
        started_s = looked_s = time.monotonic()
        while self.running and (to_the_end or not any(self.returncodes.values())):
            now_s = time.monotonic()
            left_s = LOOK_S if limit_s is None else started_s + limit_s - now_s
            if left_s <= 0:
                return False
            if now_s - looked_s > LOOK_S:
                looked_s = now_s
                if self._network.health().get("alive") is False:
                    raise LinkError("the emulator of the link has ended; the commands were ended too")
            for key, _ in self._selector.select(min(left_s, LOOK_S)):
                if isinstance(key.data, LinePipe):
                    if key.data.pass_on():
                        continue
                else:
                    returncode = self._processes[key.data].poll()
                    self.returncodes[key.data] = -signal.SIGKILL if returncode is None else returncode
                self._selector.unregister(key.fileobj)
        return True


class LinePipe:
    """A pipe into which a node writes, and out of which whole lines go to one of our own streams.

    Attributes:
        write_fd: the node's end; close ours once the node has it.
    """

    def __init__(self, out: BinaryIO, prefix: bytes) -> None:
        self._out = out
        self._prefix = prefix
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
            self._out.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._out.flush()
