"""``--notify CMD``: a command of the user's that hears when a cell has failed and when a sweep has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping

from bwbench.base.die_with_parent import die_with_parent
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.schema import Status

LIMIT_S = 30.0
_LONGEST = 4000  # characters of a value: an environment has a limit


class Notifier:
    """Runs ``sh -c command`` with what happened in its environment, and waits for it, ``limit_s`` at most.

    Values reach the command as environment variables alone and never become part of what the shell reads; names are in
    docs/sweeps.md. A command that fails, or takes too long, is said and changes nothing else.

    Args:
        say: called with what went wrong.
    """

    def __init__(self, command: str | None, say: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
        self._command, self._say, self._limit_s = command, say, limit_s

    def cell_failed(self, item: PlannedCell, status: Status) -> None:
        """A cell has ended, and not as done."""
        self._run(
            event="cell",
            status=status.status,
            reason=status.reason,
            experiment=item.cell.experiment,
            cell=item.folder.name,
            arm=item.cell.arm,
            folder=item.folder,
        )

    def ended(self, outcome: str, text: str, counts: Mapping[str, int]) -> None:
        """The sweep is over: ``done``, ``failed``, ``interrupted`` or ``unfit``; ``text`` says it in words."""
        done = counts.get("done", 0)
        self._run(event="end", status=outcome, reason=text, done=done, total=sum(counts.values()))

    def _run(self, **values: object) -> None:
        if self._command is None:
            return
        texts = {key: str("" if value is None else value) for key, value in values.items()}
        told = {f"BWBENCH_{key.upper()}": text.replace("\0", "")[:_LONGEST] for key, text in texts.items()}
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                env={**os.environ, **told},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            self._say(f"--notify could not be run: {error.strerror}")
            return
        try:
            returncode = process.wait(self._limit_s)
            if returncode:
                self._say(f"--notify ended with exit status {returncode}")
        except subprocess.TimeoutExpired:
            self._say(f"--notify was ended: it took longer than {self._limit_s:.0f} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with whatever it has left running
            process.wait()
