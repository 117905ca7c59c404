"""A case in real processes, one a rank: how each of them ended, and what it found.

Processes are forked off this one, which has imported everything and runs no threads, so that they start at once. They
end as scripts do, by what libraries have registered for the end and by the C library's ``exit``, but for the clearing
away of Python's own objects, which takes two seconds.
"""

from __future__ import annotations

import atexit
import ctypes
import datetime
import faulthandler
import logging
import logging.handlers
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from library_table_parts.rig import TIMEOUT_S, TRUTH, Case, Rig

LIMIT_S = 60.0


@dataclass(frozen=True)
class Report:
    """What a process says of itself.

    Attributes:
        found: values to compare, by name; None where it raised.
        error: what it raised: the class, and the words.
        warnings: that were issued, those of the log among them.
    """

    found: dict[str, torch.Tensor] | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """How a process ended.

    Attributes:
        report: None where it did not come to it.
        killed_by: the signal; none where it ended by itself.
        hung: it had to be killed.
        last_words: the end of its standard error.
    """

    report: Report | None
    killed_by: str
    hung: bool
    last_words: str


def run(case: Case, arm: str, num_ranks: int, limit_s: float = LIMIT_S) -> list[End]:
    """One end a rank; a single one for the truth."""
    folder = Path(tempfile.mkdtemp(prefix="library_table_"))
    sys.stdout.flush()
    pids = []
    for rank in range(1 if arm == TRUTH else num_ranks):
        pid = os.fork()
        if pid == 0:
            _be(case, arm, rank, num_ranks, folder)
        pids.append(pid)
    hung, codes = _wait(pids, time.monotonic() + limit_s)
    ends = [_end(folder, rank, codes[pid], hung=pid in hung) for rank, pid in enumerate(pids)]
    shutil.rmtree(folder, ignore_errors=True)
    return ends


def _wait(pids: Sequence[int], until_s: float) -> tuple[set[int], dict[int, int]]:
    """Those that hung, and exit codes."""
    codes: dict[int, int] = {}
    hung: set[int] = set()
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until_s and not hung:
            hung = set(pids) - set(codes)
            for sent in (signal.SIGUSR1, signal.SIGKILL):  # the first one shows where it stands
                for pid in hung:
                    os.kill(pid, sent)
                time.sleep(0.5)
        time.sleep(0.01)
    return hung, codes


def _end(folder: Path, rank: int, code: int, *, hung: bool) -> End:
    file, words = folder / f"report{rank}", (folder / f"words{rank}").read_text(errors="replace").strip()
    report = pickle.loads(file.read_bytes()) if file.exists() else None
    return End(report, signal.Signals(-code).name if code < 0 and not hung else "", hung, words[-3000:])


def _be(case: Case, arm: str, rank: int, num_ranks: int, folder: Path) -> NoReturn:
    """The life of one rank, from its birth to its end."""
    words = os.open(folder / f"words{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(words, 1)
    os.dup2(words, 2)
    faulthandler.register(signal.SIGUSR1)
    torch.manual_seed(rank)
    rig = Rig(case, arm, rank, num_ranks)
    if arm != TRUTH:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=num_ranks,
            timeout=datetime.timedelta(seconds=TIMEOUT_S),
        )  # fmt: skip
    said_in_the_log = logging.handlers.BufferingHandler(10_000)
    logging.getLogger("bwbench").addHandler(said_in_the_log)
    failed: Exception | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            case.work(rig)
        except Exception as error:
            failed = error
    found = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    found += [f"log: {each.getMessage()}" for each in said_in_the_log.buffer if each.levelno >= logging.WARNING]
    issued = tuple(dict.fromkeys(found))
    said = f"{type(failed).__name__}: {failed}" if failed is not None else ""
    scratch = folder / f"scratch{rank}"
    scratch.write_bytes(pickle.dumps(Report(None if failed is not None else rig.found, said, issued)))
    scratch.rename(folder / f"report{rank}")
    if failed is None:
        if rig.handle is not None:
            rig.handle.close()
        if arm != TRUTH and dist.is_initialized():
            dist.destroy_process_group()
    else:  # as the interpreter has it when a script ends with an error
        sys.last_value = failed
        traceback.print_exception(failed)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.PyDLL(None).exit(1 if failed is not None else 0)
    os._exit(70)  # never reached
