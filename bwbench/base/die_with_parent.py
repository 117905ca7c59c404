"""Ending with the process that started this one, however that ends: nothing of ours is left running by a ``kill -9``.

The kernel sends a signal to a process that has asked for it (PR_SET_PDEATHSIG) when its parent ends. What to know of
it:

- It comes when the *thread* that started the process ends, not only when the parent does. So such a process is started
  from the main thread, or does without.
- A parent that has ended before the process could ask tells nobody any more; hence the look at who the parent is now.
- ``fork`` does not hand it on, ``exec`` keeps it, and a change of credentials (a user namespace, a set-user-ID program)
  takes it back: ask again afterwards.
- It belongs on the outermost process of a tree. With ``unshare --kill-child`` alone 4 of 4 processes survived a ``kill
  -9`` of the parent; with this on ``unshare`` itself none did, as process 1 of a PID namespace takes all along.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends; raises OSError.

    Args:
        parent_pid: who the parent should be. Where that has ended already, this process ends here. None does not look:
            for a process whose parent takes the whole PID namespace along, or is not known.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def prctl(option: int, value: int) -> int:
    """What one prctl with an integer argument returns; raises OSError."""
    zero = ctypes.c_ulong(0)
    result: int = _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl: {os.strerror(code)}")
    return result
