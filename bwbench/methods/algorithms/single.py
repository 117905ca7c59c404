"""What other arms are compared with: one node alone, and averages that cost nothing."""

from __future__ import annotations

from typing import ClassVar

from bwbench.base import emulated_time
from bwbench.methods.algorithms import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.buckets import RunningLocally
from bwbench.methods.buffers import give_back, on_host
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.roles import Role


class Single(AbstractAlgorithm):
    """Plain training on one node: is a second one worth it at all?"""

    needs_peers = False
    sends = False
    steps_alike = True
    virtual = True
    role: ClassVar[Role] = "reference"
    copies = 1.0  # gradients: nobody steps with them

    def takes_gradients_as_sent(self, collective: AbstractCollective) -> bool:
        """Nobody looks at them at all."""
        return True

    def attach(self, context: Context) -> AbstractRunning:
        """Put the gradients into flat buffers."""
        return RunningLocally(context)


class NoCommunication(Single):
    """The exact mean of all gradients in every step, formed on the control path while the training clock stands still.

    The headroom that a perfect network would give. Waiting for the slowest peer stays on the clock: no network takes
    that away. Nothing crosses the data network.
    """

    needs_peers = True
    role = "headroom"
    mean_of = "gradients"

    def takes_gradients_as_sent(self, collective: AbstractCollective) -> bool:
        """They are averaged where they are."""
        return False

    def attach(self, context: Context) -> AbstractRunning:
        """Put the gradients into flat buffers."""
        return RunningOffTheClock(context)


class RunningOffTheClock(RunningLocally):
    """One rank of ``no-communication``."""

    @property
    def averages_gradients(self) -> bool:
        """Always."""
        return True

    def finish(self) -> ExchangeReport:
        """Wait for the peers on the clock, then average off the clock."""
        control = self._context.control
        ready_mono_s = emulated_time.monotonic()
        waited_s = control.meet(self._context.clock)
        with self._context.clock.held():
            for gradients in self._gradients.flat:
                values = on_host(gradients)
                control.average(values)
                give_back(values, gradients)
            control.barrier()  # all clocks go on at the same time
        return ExchangeReport(ready_mono_s=ready_mono_s, exposed_s=waited_s)
