"""Commands run as the console script runs them, in this process: hundreds of them in the time of one start."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bwbench.base.interruption import ENDING
from bwbench.cli.main import main

HANGS_AFTER_S = 30.0  # of wall time: a machine may be busy
MOST_CPU_S = 5.0


class Hangs(BaseException):
    """No ``except Exception`` of a command may take it for its own."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    exit_code: int
    out: str
    err: str


def bwbench(*arguments: object) -> Outcome:
    """Run a command. Raises what no command may raise, and Hangs where it does not end."""
    begun = (sys.argv, sys.stdout, sys.stderr)
    handlers = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGALRM)}
    sys.argv, sys.stdout, sys.stderr = ["bwbench", *map(str, arguments)], io.StringIO(), io.StringIO()
    out, err, code, cpu_s = sys.stdout, sys.stderr, 0, time.process_time()
    signal.signal(signal.SIGALRM, _hangs)
    timer = signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER_S)
    try:
        main()
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.argv, sys.stdout, sys.stderr = begun
    assert time.process_time() - cpu_s < MOST_CPU_S, arguments
    return Outcome(code, out.getvalue(), err.getvalue())


def _hangs(_number: int, _frame: FrameType | None) -> None:
    raise Hangs


def everything_in(folder: Path) -> set[str]:
    """All names below a folder; links are not followed."""
    return {os.path.join(root, name) for root, folders, files in os.walk(folder) for name in [*folders, *files]}
