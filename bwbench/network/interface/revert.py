"""The process that takes a run back: at its deadline, when its owner ends before it should, when it is told to.

``arm`` starts it before anything is applied, so that it outlives the session: where systemd runs as a transient
service, which survives a logout and is started again when it is killed; elsewhere as a daemon in a session of its own.
It waits on a socket, where the owner of a run that is being applied or held keeps a connection open; the kernel closes
that one however the owner ends. It never trusts that somebody else will clean up: when it ends it has looked itself.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import select
import socket
import struct
import subprocess
import sys
import syslog
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bwbench.base.errors import BwbenchError, UnfitMachineError
from bwbench.base.interruption import ENDING, handle
from bwbench.base.ownership import owned_by_nobody
from bwbench.base.start_module import module_command
from bwbench.network.interface.run_state import RunState, StateFolder, forget_state, now_s, read_state
from bwbench.network.namespaces import isolation

ARM_LIMIT_S = 30.0  # a Python has to start, on a machine that may be busy
OWNER = b"owner\n"
POLL_S = 0.5
_CONNECT_POLL_S = 0.02
_MODULE = "bwbench.network.interface.revert"
OWNER_LIMIT_S = 3.0  # whoever applies or holds the run connects at once
TRIES = 30  # to take it back, a second apart
LOCK_LIMIT_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait, then take the run back."""
    parser = argparse.ArgumentParser(prog=_MODULE)
    parser.add_argument("state_file", type=Path)
    parser.add_argument("run")
    parser.add_argument("--detach", action="store_true", help="go on as a daemon")
    options = parser.parse_args(arguments)
    state = _state_on_file(options.state_file)
    if state is None or state.run != options.run:  # started again after all was done
        return 0
    if options.detach:
        # Go on in a child that belongs to nobody and holds nothing open; the parent ends here.
        if os.fork() > 0:
            os._exit(0)
        devnull = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(devnull, number)
    isolation.set_process_name("bwbench-revert")
    handle(ENDING, _Watch.stop)
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
            state = _state_on_file(self._state_file)
            if state is None or state.run != self._run:
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
                connection = found.accept()[0]
                if _is_trusted(connection):
                    self._connections.append(connection)
                else:  # another user, who has no say in it
                    connection.close()
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


def _is_trusted(connection: socket.socket) -> bool:
    """Whether root or our own user is at the other end: an abstract socket has no owner, and anybody reaches it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return user in (0, os.geteuid())


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


def _state_on_file(state_file: Path) -> RunState | None:
    try:
        return read_state(state_file)
    except (BwbenchError, OSError):  # somebody has meddled with it: as good as gone
        return None


def _log(state: RunState, text: str) -> None:
    syslog.openlog("bwbench")
    syslog.syslog(syslog.LOG_NOTICE, f"link on {state.dev} (run {state.run}) {text}")


def socket_name(run: str) -> str:
    """The abstract socket (of this network namespace alone) on which the revert of a run answers."""
    return f"\0bwbench-revert-{run}"


class Guard:
    """A connection to the armed revert. While it is held open the run has an owner; a context manager.

    Attributes:
        how: by what it was armed, for people.
    """

    def __init__(self, connection: socket.socket, how: str) -> None:
        self._connection, self.how = connection, how

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def alive(self) -> bool:
        """Whether the revert is still there."""
        try:
            return self._connection.recv(1, socket.MSG_DONTWAIT) != b""  # it never says anything; an end is its end
        except BlockingIOError:
            return True
        except OSError:
            return False


def arm(state_file: Path, run: str) -> Guard:
    """Start the revert of the run in ``state_file`` and wait until it answers.

    Raises UnfitMachineError where it does not; nothing must be applied then.
    """
    failures = []
    for how, command in _ways(state_file, run):
        try:
            started = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=owned_by_nobody(),
                cwd="/",
                start_new_session=True,
                timeout=ARM_LIMIT_S,
                check=False,
            )
            if started.returncode == 0:
                return Guard(_connect(run), how)
            failures.append(f"{how}: {started.stderr.decode(errors='replace').strip() or started.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            failures.append(f"{how}: {error}")
    raise UnfitMachineError(f"what takes it back could not be started ({'; '.join(failures)}), so nothing was applied")


def answers(run: str) -> bool:
    """Whether the revert of a run is there."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(socket_name(run)) == 0 and _is_trusted(connection)


def _ways(state_file: Path, run: str) -> list[tuple[str, list[str]]]:
    python = [*module_command(_MODULE), str(state_file), run]
    ways = [("a daemon", [*python, "--detach"])]
    if _under_systemd():
        unit = f"bwbench-revert-{run}"
        options = ["--quiet", "--collect", f"--unit={unit}", "--description=takes back what bwbench link apply did"]
        options += [f"--setenv={name}={os.environ[name]}" for name in ("PYTHONPATH",) if os.environ.get(name)]
        options += [f"--property={setting}" for setting in ("Type=exec", "Restart=on-failure", "OOMScoreAdjust=-900")]
        ways.insert(0, (f"systemd unit {unit}", ["systemd-run", *options, *python]))
    return ways


def _under_systemd() -> bool:
    """Whether systemd runs here, and in the very namespaces that we are in: elsewhere it would see other interfaces."""
    if not Path("/run/systemd/system").is_dir():
        return False
    try:
        kinds = ("net", "mnt", "pid", "user")
        return all(os.readlink(f"/proc/self/ns/{kind}") == os.readlink(f"/proc/1/ns/{kind}") for kind in kinds)
    except OSError:
        return False


def _connect(run: str) -> socket.socket:
    end_s = time.monotonic() + ARM_LIMIT_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            connection.connect(socket_name(run))
            if _is_trusted(connection):
                connection.sendall(OWNER)
                return connection
        connection.close()
        if time.monotonic() >= end_s:
            raise TimeoutError(f"it does not answer within {ARM_LIMIT_S:g} s")
        time.sleep(_CONNECT_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
