"""Whose our standard input is while programs run in nodes, and how a program gets a terminal of its own.

A program that has our terminal to itself gets a new one, which is the terminal of its session: Ctrl-C, Ctrl-Z, job
control and the size of the window are then its own. Ours is raw meanwhile and passes bytes on, as with ssh.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import termios
import tty
from dataclasses import dataclass
from types import FrameType

from bwbench.base.errors import ConfigError

STDIN_FD, STDOUT_FD = 0, 1
_READ_BYTES = 65_536
_MOST_READS = 64


@dataclass(frozen=True)
class NodeStdin:
    """Which node our standard input goes to, None for nobody; and whether it is a terminal that is lent with it."""

    node: int | None
    lends_terminal: bool = False

    @classmethod
    def of(cls, asked: str | None, num_nodes: int) -> NodeStdin:
        """What ``--stdin`` asks for; by default node 0, but a terminal only where it is the one node.

        Raises ConfigError for what is no node.
        """
        if asked is not None and asked != "none" and not (asked.isdecimal() and int(asked) < num_nodes):
            raise ConfigError(f"--stdin {asked!r}: give a node, 0 to {num_nodes - 1}, or 'none'")
        if asked == "none" or sys.stdin is None:
            return cls(None)
        node = 0 if asked is None else int(asked)
        if not os.isatty(STDIN_FD):
            return cls(node)
        if (asked is None and num_nodes > 1) or not _in_foreground():
            return cls(None)
        return cls(node, lends_terminal=os.isatty(STDOUT_FD))


def _in_foreground() -> bool:
    """Whether the terminal is ours to read: a shell that has put us into the background reads it itself."""
    try:
        return os.tcgetpgrp(STDIN_FD) == os.getpgrp()
    except OSError:  # it is nobody's, as far as we can see
        return True


class NodeTerminal:
    """A terminal for a program, behind which ours is; ``close`` makes ours what it was.

    Attributes:
        theirs: descriptor of the program's side.
        fds: those that ``carry`` waits for.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.fds = (STDIN_FD, self._ours)
        self._before = termios.tcgetattr(STDIN_FD)
        termios.tcsetattr(self.theirs, termios.TCSANOW, self._before)
        self._resize()
        self._handler = signal.signal(signal.SIGWINCH, self._resize)
        tty.setraw(STDIN_FD)

    def has_been_taken(self) -> None:
        """The program has its side; without ours of it we notice when it leaves."""
        os.close(self.theirs)

    def carry(self, fd: int) -> bool:
        """Pass on what has come at ``fd``; False at its end."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # EIO: nobody holds the other side any more
            return False
        if fd == STDIN_FD:
            with contextlib.suppress(OSError):  # full: a terminal drops what nobody reads
                os.write(self._ours, data)
        else:
            _write_all(data)
        return bool(data)

    def close(self) -> None:
        """Pass on what was printed last, and make our terminal what it was."""
        for _ in range(_MOST_READS):
            try:
                _write_all(os.read(self._ours, _READ_BYTES))
            except OSError:
                break
        signal.signal(signal.SIGWINCH, self._handler)
        with contextlib.suppress(termios.error):  # it has gone
            termios.tcsetattr(STDIN_FD, termios.TCSADRAIN, self._before)
        os.close(self._ours)

    def _resize(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(STDIN_FD, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(STDOUT_FD, data) :]
