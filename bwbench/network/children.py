"""Starting and reaping processes inside the nodes' namespaces: the agent's work as process 1 of its PID namespace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Mapping, Sequence

from bwbench.base.errors import LaunchError
from bwbench.network import namespaces

FIRST_SPARE_FD = 256  # above every descriptor number that a child is to find something under


class Children:
    """The processes that were started for the parent; each reports its exit status through a pipe of its own."""

    def __init__(self) -> None:
        self._exit_pipes: dict[int, int] = {}

    def spawn(
        self,
        namespace_fd: int,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: Mapping[int, int],
        pipe: int,
    ) -> tuple[int, int]:
        """Start ``argv`` in a session of its own inside ``namespace_fd``.

        Args:
            fds: descriptor numbers in the child to descriptors here; 0, 1 and 2 not named are /dev/null.
            pipe: gets the return code as a line once the process has ended (negative: the signal); owned from now on.

        Returns:
            The process id here and, as the parent's PID namespace sees it, there. Raises LaunchError where it cannot be
            started.
        """
        report_read, report_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(report_read)
            _become(namespace_fd, argv, env, cwd, fds, report_write)
        os.close(report_write)
        self._exit_pipes[pid] = pipe
        with open(report_read, "rb") as report:
            outer, _, failure = report.read().partition(b"\n")
        if failure:
            raise LaunchError(f"cannot start {argv[0]!r} in a node: {failure.decode(errors='replace')}")
        return pid, int(outer or pid)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a started process and its group; nothing happens where it has ended."""
        if pid in self._exit_pipes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def reap(self) -> None:
        """Take in all processes that have ended, orphans of theirs included, and report those that we started."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            pipe = self._exit_pipes.pop(pid, None)
            if pipe is not None:
                with contextlib.suppress(OSError):  # the parent has stopped listening to this one
                    os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(pipe)


def _become(
    namespace_fd: int, argv: Sequence[str], env: Mapping[str, str], cwd: str, fds: Mapping[int, int], report: int
) -> None:
    """In the forked child: turn into ``argv``, or report why not. Never returns."""
    try:
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, FIRST_SPARE_FD)
        os.write(report, _outer_pid().encode() + b"\n")
        os.setsid()
        namespaces.setns(namespace_fd)
        namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
        _place_descriptors(fds)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))
    except BaseException as error:  # noqa: B036 - nothing may escape into the agent's own code
        with contextlib.suppress(OSError):
            os.write(report, str(error).encode())
    finally:
        os._exit(127)


def _outer_pid() -> str:
    """This process's id as the PID namespace sees it that /proc belongs to: the parent's."""
    try:
        return os.readlink("/proc/self")
    except OSError:
        return str(os.getpid())


def _place_descriptors(fds: Mapping[int, int]) -> None:
    """Put each descriptor under its number: first out of the way of all numbers, then into place."""
    devnull = os.open(os.devnull, os.O_RDWR)
    spare = {
        target: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, FIRST_SPARE_FD)
        for target, source in {0: devnull, 1: devnull, 2: devnull, **fds}.items()
    }
    for target, source in spare.items():
        os.dup2(source, target, inheritable=True)
