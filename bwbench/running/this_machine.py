"""This machine as an executor: one cell after another, and several at once where all of them have virtual nodes.

Virtual nodes take turns on one processor, and nobody asks for their times. So as many such cells as there are
processors share the machine's turn, one at a time of those that compute on GPUs, whose memory nobody divides. Whatever
is timed has the machine to itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from bwbench.base.errors import BwbenchError, CellTakenError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.composing import WHOLE
from bwbench.records.schema import Status
from bwbench.running.composed import run_item
from bwbench.running.executor import Finished, Machine, Report, TakenElsewhere
from bwbench.running.machine_turn import SharedTurn, turn_is_awaited
from bwbench.running.run_cell import BeginCell, CellObserver, CellRun, RunCell, begin_cell

ROUND_S = 0.2  # in which every cell of virtual nodes is looked at once
_Started = tuple[PlannedCell, float, CellObserver]


class ThisMachine:
    """Cells run in this process, while somebody waits for their reports.

    Args:
        run: runs one cell to its end.
        begin: begins one of virtual nodes.
        num_processors: that this process may use.
    """

    def __init__(
        self, run: RunCell = run_item, begin: BeginCell = begin_cell, num_processors: int | None = None
    ) -> None:
        self.cells_per_machine = num_processors or len(os.sched_getaffinity(0))
        self._run, self._begin = run, begin
        self._machine = Machine("here", "here", "", float(self.cells_per_machine), shared=True)
        self._timed: tuple[int, _Started] | None = None
        self._virtual: dict[int, CellRun] = {}
        self._turn = SharedTurn()
        self._look_s = ROUND_S / self.cells_per_machine
        self._keys = 0

    def machines(self) -> Sequence[Machine]:
        """This one."""
        return [self._machine]

    @property
    def is_asking(self) -> bool:
        """Nothing has to be asked."""
        return False

    def takes(self, item: PlannedCell, running: Sequence[PlannedCell]) -> bool:
        """Anything while nothing runs; beside virtual nodes others, up to the processors, unless the turn is due.

        Of those that compute on GPUs one at a time.
        """
        if not running:
            return True
        cells = [item, *running]
        if sum(one.cell.config.compute.device != "cpu" for one in cells) > 1:
            return False
        num_threads = sum(one.cell.config.compute.threads for one in cells)
        return all(map(_is_virtual, cells)) and num_threads <= self.cells_per_machine and not turn_is_awaited()

    def start(self, machine: Machine, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> int:
        """Keep the cell for the next call of ``reports``."""
        self._keys += 1
        if _is_virtual(item):
            self._virtual[self._keys] = self._begin(item, wall_limit_s, observer, self._turn.held, self._look_s)
        else:
            self._timed = self._keys, (item, wall_limit_s, observer)
        return self._keys

    def reports(self, limit_s: float) -> list[Report]:
        """Run a timed cell to its end, or look once at every other.

        Raises what ``run_item`` raises but CellTakenError: where this machine is unfit there is no other one.
        """
        if self._timed is not None:
            (key, started), self._timed = self._timed, None
            try:
                return [Report(key, Finished(self._run(*started)))]
            except CellTakenError:
                return [Report(key, TakenElsewhere())]
        if not self._virtual:
            time.sleep(limit_s)
        looked = [(key, self._look(key)) for key in list(self._virtual)]
        return [Report(key, end) for key, end in looked if end is not None]

    def _look(self, key: int) -> Finished | TakenElsewhere | None:
        """How a cell of virtual nodes has ended; None while it runs."""
        try:
            next(self._virtual[key])
        except StopIteration as end:
            status: Status = end.value
            del self._virtual[key]
            return Finished(status)
        except CellTakenError:
            del self._virtual[key]
            return TakenElsewhere()
        return None

    def close(self) -> None:
        """Interrupt what still runs, as Ctrl-C does; it is recorded so."""
        for one in self._virtual.values():
            with contextlib.suppress(KeyboardInterrupt, BwbenchError):  # what has gone wrong before is on its way up
                one.throw(KeyboardInterrupt())
        self._virtual.clear()


def _is_virtual(item: PlannedCell) -> bool:
    """Whether running a cell is nothing but a training of virtual nodes."""
    return item.cell.config.compute.virtual and item.way == WHOLE
