"""The process that takes a run back: at its deadline, when its owner ends before it should, when it is told to.

``guard.py`` starts it before anything is applied. It waits on a socket of its own, where the owner of a run that is
being applied or held keeps a connection open; the kernel closes that one however the owner ends. It never trusts that
somebody else will clean up: whenever it ends it has looked itself.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import syslog
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bwbench.base.errors import BwbenchError
from bwbench.network.interface.guard import OWNER, socket_name
from bwbench.network.interface.run_state import RunState, StateFolder, forget_state, now_s, read_state
from bwbench.network.namespaces import isolation

POLL_S = 0.5
OWNER_LIMIT_S = 3.0  # whoever applies or holds the run connects at once
TRIES = 30  # to take it back, a second apart
LOCK_LIMIT_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait, then take the run back."""
    parser = argparse.ArgumentParser(prog="bwbench.network.interface.revert")
    parser.add_argument("state_file", type=Path)
    parser.add_argument("run")
    parser.add_argument("--detach", action="store_true", help="go on as a daemon")
    options = parser.parse_args(arguments)
    state = _state_of(options.state_file, options.run)
    if state is None:  # started again after all was done
        return 0
    if options.detach:
        _detach()
    isolation.set_process_name("bwbench-revert")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _Watch.stop)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(socket_name(state.run))
        except OSError:  # another one guards this run
            return 0
        listener.listen()
        # Heavy (pyroute2), so not before it can be reached, which the owner waits for; nor later, when it may be gone.
        importlib.import_module("bwbench.network.interface.remove")
        reason = _Watch(listener, options.state_file, state).until_due()
        return 0 if _take_back(options.state_file, state, reason) else 1


class _Watch:
    stopped = False

    def __init__(self, listener: socket.socket, state_file: Path, state: RunState) -> None:
        self._listener, self._state_file, self._run = listener, state_file, state.run
        self._connections: list[socket.socket] = []
        self._owners: list[socket.socket] = []
        self._lost_owner = False
        self._started_s = time.monotonic()

    @classmethod
    def stop(cls, number: int, frame: FrameType | None) -> None:
        cls.stopped = True

    def until_due(self) -> str:
        """Returns why the time has come."""
        while True:
            if self.stopped:
                return "it was told to end"
            state = _state_of(self._state_file, self._run)
            if state is None:
                return "it was cleared"
            never_owned = not self._owners and time.monotonic() - self._started_s > OWNER_LIMIT_S
            if state.phase != "applied" and (never_owned or self._lost_owner):
                return "the process that applied it has ended"
            left_s = state.deadline_s - now_s()
            if left_s <= 0:
                return "its time is over"
            self._listen(min(left_s, POLL_S))

    def _listen(self, limit_s: float) -> None:
        ready, _, _ = select.select([self._listener, *self._connections], [], [], limit_s)
        for found in ready:
            if found is self._listener:
                self._connections.append(found.accept()[0])
                continue
            said = b""
            with contextlib.suppress(OSError):
                said = found.recv(len(OWNER))
            if said == OWNER:
                self._owners.append(found)
            elif not said:
                self._connections.remove(found)
                self._lost_owner |= found in self._owners
                found.close()


def _take_back(state_file: Path, state: RunState, reason: str) -> bool:
    """Whether nothing of the run is left."""
    for _ in range(TRIES):
        try:
            if _try_to_take_back(state_file, state, reason):
                return True
        except Exception as error:
            _log(state, f"could not be taken back yet: {error}")
        time.sleep(1.0)
    return False


def _try_to_take_back(state_file: Path, state: RunState, reason: str) -> bool:
    """False where another process holds the lock: it may be about to add to what was taken off just now."""
    from bwbench.network.interface.kernel import Kernel
    from bwbench.network.interface.remove import not_restored, remove

    with contextlib.ExitStack() as stack, Kernel() as kernel:
        alone = True
        try:
            stack.enter_context(StateFolder(state_file.parent).locked(LOCK_LIMIT_S))
        except (BwbenchError, OSError):  # the folder is gone, or somebody hangs
            alone = not state_file.parent.is_dir()
        now = _state_on_file(state_file)
        if now is not None and now.run != state.run and now.names.root == state.names.root:
            return True  # ours is gone, and its handle has been given to a new run
        removed = remove(kernel, state.dev, state.index, state.names, both=state.both)
        if not alone:
            return False
        if now is not None and now.run == state.run:
            forget_state(state_file)
        if removed:
            _log(state, f"taken back, because {reason}: {', '.join(removed)}")
            if difference := not_restored(kernel, state):
                _log(state, difference)
        return True


def _state_of(state_file: Path, run: str) -> RunState | None:
    state = _state_on_file(state_file)
    return state if state is not None and state.run == run else None


def _state_on_file(state_file: Path) -> RunState | None:
    try:
        return read_state(state_file)
    except (BwbenchError, OSError):  # somebody has meddled with it: as good as gone
        return None


def _detach() -> None:
    """Go on in a child that belongs to nobody and holds nothing open; the parent ends here."""
    if os.fork() > 0:
        os._exit(0)
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(devnull, number)


def _log(state: RunState, text: str) -> None:
    syslog.openlog("bwbench")
    syslog.syslog(syslog.LOG_NOTICE, f"link on {state.dev} (run {state.run}) {text}")


if __name__ == "__main__":
    sys.exit(main())
