"""Averaging that costs nothing: the headroom that a perfect network would give."""

from __future__ import annotations

import time

from bwbench.methods.algorithms.base import Context, ExchangeReport
from bwbench.methods.algorithms.single import Single


class NoCommunication(Single):
    """The exact mean of all gradients in every step, formed on the control path while the training clock stands still.

    Waiting for the slowest peer stays on the clock: no network takes that away. Nothing crosses the data network.
    """

    needs_peers = True
    role = "headroom"
    mean_of = "gradients"

    def attach(self, context: Context) -> None:
        """Put the gradients into one buffer; remember control path and clock."""
        super().attach(context)
        self._control, self._clock = context.control, context.clock

    def finish(self) -> ExchangeReport:
        """Wait for the peers on the clock, then average off the clock."""
        ready_mono_s = time.monotonic()
        self._control.barrier()
        waited_s = time.monotonic() - ready_mono_s
        with self._clock.held():
            for flat in self._gradients.flat:
                self._control.average(flat)
            self._control.barrier()  # all clocks go on at the same time
        return ExchangeReport(ready_mono_s=ready_mono_s, exposed_s=waited_s)
