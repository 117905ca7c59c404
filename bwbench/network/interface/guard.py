"""Arming the revert before anything is applied: a process of its own that outlives the session.

Where systemd runs it is a transient service, which survives a logout and is started again when it is killed; elsewhere
a daemon in a session of its own. Either is there once it answers on its socket (``revert.py``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import bwbench
from bwbench.base.errors import UnfitMachineError

ARM_LIMIT_S = 30.0  # a Python has to start, on a machine that may be busy
OWNER = b"owner\n"
_POLL_S = 0.02
_MODULE = "bwbench.network.interface.revert"


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
                env={**os.environ, "PYTHONPATH": _python_path()},
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
        return connection.connect_ex(socket_name(run)) == 0


def _ways(state_file: Path, run: str) -> list[tuple[str, list[str]]]:
    python = [sys.executable, "-m", _MODULE, str(state_file), run]
    ways = [("a daemon", [*python, "--detach"])]
    if _under_systemd():
        unit = f"bwbench-revert-{run}"
        options = ["--quiet", "--collect", f"--unit={unit}", "--description=takes back what bwbench link apply did"]
        options += [f"--setenv=PYTHONPATH={_python_path()}"]
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


def _python_path() -> str:
    """So that it finds this very bwbench, installed or not."""
    folder = str(Path(bwbench.__file__).resolve().parents[1])
    return os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def _connect(run: str) -> socket.socket:
    end_s = time.monotonic() + ARM_LIMIT_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            connection.connect(socket_name(run))
            connection.sendall(OWNER)
            return connection
        connection.close()
        if time.monotonic() >= end_s:
            raise TimeoutError(f"it does not answer within {ARM_LIMIT_S:g} s")
        time.sleep(_POLL_S)
