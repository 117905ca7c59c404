"""One optimizer step, with every moment of it booked."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

from bwbench.methods.algorithms import ExchangeReport
from bwbench.training.loop.control import Stop
from bwbench.training.loop.evaluation import training_loss
from bwbench.training.loop.feed import BatchFeed
from bwbench.training.loop.ledger import StepLedger
from bwbench.training.loop.pacer import Pacer
from bwbench.training.loop.trial import Trial

PLAIN_BACKWARDS = 5  # measured without communication while warming up; their median is what overlap is judged by


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    Attributes:
        begin_mono_s: monotonic time at its begin.
        loss: mean over this rank's samples, before the update.
    """

    begin_mono_s: float
    loss: float
    lr: float
    exchange: ExchangeReport
    ledger: StepLedger


class Stepper:
    """Takes optimizer steps of a trial, one after the other."""

    def __init__(self, trial: Trial, feed: BatchFeed, pacer: Pacer) -> None:
        self._trial, self._feed, self._pacer = trial, feed, pacer
        self._control = trial.groups.control

    def step(self, number: int, samples: int, stop: Stop | None = None) -> StepResult:
        """One optimizer step.

        Args:
            number: of this step, from 1.
            samples: trained on so far, over all ranks; decides the learning rate.
            stop: this rank wants training to end after this step.
        """
        trial, algorithm = self._trial, self._trial.algorithm
        accumulate = trial.config.accumulate
        begin_mono_s = time.monotonic()
        ledger = StepLedger(trial.clock)
        last_step = algorithm.agreement_step(number)
        self._control.begin_step(number, last_step)
        if stop is not None:
            self._control.publish_stop(stop, last_step)
        lr = trial.schedule.lr_at(samples, trial.config.global_batch)
        for group in trial.optimizer.param_groups:
            group["lr"] = lr
        algorithm.clear_gradients()
        loss_sum = 0.0
        for micro_step in range(accumulate):
            last = micro_step == accumulate - 1
            inputs, targets = self._feed.next()
            ledger.lap("other_s")
            with algorithm.micro_step(last):
                loss = training_loss(algorithm.module(inputs), targets)
                loss_sum += loss.item()
                ledger.lap("compute_s")
                if not math.isfinite(loss_sum):
                    self._control.diverged(f"the loss is {loss_sum} after {samples} samples")
                if last:
                    ledger.lap("other_s")
                    self._pacer.pad(ledger.elapsed_s)
                    ledger.lap("pad_s")
                algorithm.backward(loss / accumulate if accumulate > 1 else loss)
                if last:
                    algorithm.check_gradients()
                backward_s = ledger.lap("compute_s")
        report = algorithm.finish()
        ledger.exchange(report)
        algorithm.update()
        optimizer_s = ledger.lap("optimizer_s")
        if (more := algorithm.after_update()) is not None:
            ledger.exchange(more)
            report = report.plus(more)
        self._pacer.observe(backward_s - report.hidden_s + optimizer_s)
        return StepResult(begin_mono_s, loss_sum / accumulate, lr, report, ledger)

    def measure_plain_backward(self) -> None:
        """Tell the algorithm what a backward pass takes without communication. Changes gradients, nothing else."""
        durations_s = []
        for _ in range(PLAIN_BACKWARDS):
            inputs, targets = self._feed.next()
            with self._trial.algorithm.micro_step(last=False):
                loss = training_loss(self._trial.algorithm.module(inputs), targets)
                begin_mono_s = time.monotonic()
                self._trial.algorithm.backward(loss)
                durations_s.append(time.monotonic() - begin_mono_s)
        self._trial.algorithm.plain_backward_s = statistics.median(durations_s)
        self._trial.algorithm.clear_gradients()
