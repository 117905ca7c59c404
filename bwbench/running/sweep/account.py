"""What a sweep has come to: who is told, what is counted, which cells are not worth running any more, how long the
others will take."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.errors import RecordError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.calibration import Forecast
from bwbench.records.schema import Status
from bwbench.running.run_cell import RunObserver, ended_since
from bwbench.running.sweep.stopped_arms import StoppedArms

NOTIFY_LIMIT_S = 30.0
_LONGEST = 4000  # characters of a value: an environment has a limit
FEW = 500  # cells that are predicted anew whenever one has finished …
REFRESHED_S = 10.0  # … more of them only now and then: it would keep a processor busy that cells run on


class SweepObserver(RunObserver, Protocol):
    """Told what happens in a sweep; the command line shows it."""

    def cell_elsewhere(self, item: PlannedCell, status: Status) -> None:
        """Another process has ended a cell that was to run here."""

    def cell_skipped(self, item: PlannedCell, why: str) -> None:
        """A cell is left out; nothing is recorded of it."""

    def waiting(self, items: Sequence[PlannedCell]) -> None:
        """Nothing is left to do but these cells, which other processes run: should those die, they run here."""

    def note(self, text: str) -> None:
        """Something that whoever watches should know."""


@dataclass
class Tally:
    """How many cells have each status: those that ran now, those that had ended before or elsewhere, those left out."""

    now: dict[str, int] = field(default_factory=dict)
    earlier: dict[str, int] = field(default_factory=dict)
    skipped: int = 0

    @property
    def all_done(self) -> bool:
        """Whether every cell is done, those of earlier runs included."""
        return not self.skipped and not (self.now.keys() | self.earlier.keys()) - {"done"}

    @property
    def counts(self) -> dict[str, int]:
        """All cells by status."""
        counts = {name: self.now.get(name, 0) + self.earlier.get(name, 0) for name in {**self.now, **self.earlier}}
        return {**counts, **({"skipped": self.skipped} if self.skipped else {})}


class Account:
    """What a sweep has come to: counts, tells, and says which cells are not worth running any more.

    Args:
        selected: cells to run, and cells that are only counted, which is done here.
        tally: is counted up while cells end, so that the caller knows what was reached should the sweep raise.
        fail_fast: leave out what remains once a cell has failed.
    """

    def __init__(
        self,
        selected: Sequence[PlannedCell],
        observer: SweepObserver,
        notifier: Notifier,
        tally: Tally | None = None,
        *,
        fail_fast: bool = False,
    ) -> None:
        self.observer, self.tally = observer, tally if tally is not None else Tally()
        self._notifier, self._fail_fast = notifier, fail_fast
        self._arms = StoppedArms()
        self._failed: PlannedCell | None = None
        self._total = sum(item.runs for item in selected)
        self._asks_parts = any(item.part for item in selected)  # by themselves, with no cell to tell how they ended
        self._numbers: dict[tuple[str, str], int] = {}
        for item in (item for item in selected if not item.runs):
            if item.status in ("missing", "interrupted"):  # of an arm that was stopped in an earlier run
                self._skip(item, item.why)
            else:
                self.tally.earlier[item.status] = self.tally.earlier.get(item.status, 0) + 1

    def settled(self, item: PlannedCell) -> bool:
        """Whether a cell need not run any more, which is told: it is left out, or another process has ended it."""
        why = self._arms.why_not(item)
        if self._fail_fast and self._failed is not None:
            why = f"--fail-fast: {self._failed.cell.slug} failed"
        if item.part and not self._asks_parts:
            return why is not None or self._is_made(item)
        if why is not None:
            return self._skip(item, why)
        try:
            recorded = ended_since(item)
        except RecordError as error:
            return self._skip(item, str(error))
        if recorded is not None:
            self.tally.earlier[recorded.status] = self.tally.earlier.get(recorded.status, 0) + 1
            if not item.part:
                self._arms.note(item, recorded)
            self.observer.cell_elsewhere(item, recorded)
            return True
        return False

    def begin(self, item: PlannedCell) -> None:
        """Tell that a cell begins, for the first time or once more; or a run that cells are composed from."""
        if item.part and not self._asks_parts:
            self.observer.cell_started(item, 0, self._total)
            return
        number = self._numbers.setdefault((item.cell.experiment, item.cell.id), len(self._numbers) + 1)
        self.observer.cell_started(item, number, self._total)

    def ended(self, item: PlannedCell, status: Status) -> None:
        """Take in how a cell that began here has ended. How a part has ended, the cells composed from it will tell."""
        if item.part and not self._asks_parts:
            self.observer.cell_finished(item, status)
            return
        self.tally.now[status.status] = self.tally.now.get(status.status, 0) + 1
        self.observer.cell_finished(item, status)
        if not item.part:  # arms of several experiments share such runs
            self._arms.note(item, status)
        if status.status != "done":
            self._failed = self._failed or item
            self._notifier.cell_failed(item, status)

    def _is_made(self, part: PlannedCell) -> bool:
        """Whether a run that cells are composed from has ended elsewhere; what is wrong with it, they will say."""
        try:
            return ended_since(part) is not None
        except RecordError:
            return True

    def _skip(self, item: PlannedCell, why: str) -> Literal[True]:
        self.tally.skipped += 1
        self.observer.cell_skipped(item, why)
        return True


class Notifier:
    """Runs ``sh -c command`` with what happened in its environment, and waits for it, ``limit_s`` at most.

    Values reach the command as environment variables alone and never become part of what the shell reads; names are in
    docs/sweeps.md. A command that fails, or takes too long, is said and changes nothing else.

    Args:
        say: called with what went wrong.
    """

    def __init__(self, command: str | None, say: Callable[[str], None], limit_s: float = NOTIFY_LIMIT_S) -> None:
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


class TimeLeft:
    """Is told which cells begin and end, and how those fared that finished.

    Args:
        forecast: of all these cells; learns from those that finish.
        todo: the cells that are to come.
    """

    def __init__(self, forecast: Forecast, todo: Sequence[PlannedCell]) -> None:
        self._forecast = forecast
        self._waiting = {_key(item): item for item in todo}
        self._predict_anew()
        self._running: dict[tuple[str, str], tuple[PlannedCell, float]] = {}
        self._known, self._refreshed_s = forecast.num_cells, time.monotonic()

    @property
    def is_measured(self) -> bool:
        """Whether any cell has been measured: without one, times are what cells take at most."""
        return self._forecast.num_cells > 0

    @property
    def may_end_sooner(self) -> bool:
        """Whether a cell that is to come or running may be at its target long before what it is predicted to take."""
        running = (self._forecast.predict(item).may_end_sooner for item, _ in self._running.values())
        return bool(self._sooner) or any(running)

    def cell_s(self, item: PlannedCell) -> float:
        """Seconds from the start of a cell to its end."""
        return self._forecast.predict(item).total_s

    def start(self, item: PlannedCell) -> None:
        """A cell begins."""
        self.drop(item)
        self._running[_key(item)] = item, time.monotonic()

    def finish(self, item: PlannedCell, status: Status) -> None:
        """A cell has ended with this."""
        self._forecast.note(item, status)
        self.drop(item)

    def drop(self, item: PlannedCell) -> None:
        """A cell is neither to come nor running any more."""
        self._running.pop(_key(item), None)
        self._sooner.discard(_key(item))
        if self._waiting.pop(_key(item), None) is not None:
            self._total_s -= self._seconds.pop(_key(item))

    def left_s(self) -> float:
        """Seconds until all have ended. Several cells that run at a time go on doing so."""
        now_s, known = time.monotonic(), self._forecast.num_cells
        if known != self._known and (len(self._waiting) <= FEW or now_s - self._refreshed_s > REFRESHED_S):
            self._known, self._refreshed_s = known, now_s
            self._predict_anew()
        left_s = [max(0.0, self.cell_s(item) - (now_s - began_s)) for item, began_s in self._running.values()]
        return max((max(0.0, self._total_s) + sum(left_s)) / max(1, len(left_s)), *left_s, 0.0)

    def _predict_anew(self) -> None:
        """All cells that are to come."""
        predicted = {key: self._forecast.predict(item) for key, item in self._waiting.items()}
        self._seconds = {key: one.total_s for key, one in predicted.items()}
        self._sooner = {key for key, one in predicted.items() if one.may_end_sooner}
        self._total_s = sum(self._seconds.values())


def _key(item: PlannedCell) -> tuple[str, str]:
    return item.cell.experiment, item.cell.id
