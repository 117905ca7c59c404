"""One optimizer step, with every moment of it booked."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

import torch

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
        trial, method = self._trial, self._trial.method
        accumulate = trial.config.accumulate
        begin_mono_s = time.monotonic()
        ledger = StepLedger(trial.clock)
        last_step = method.agreement_step(number)
        self._control.begin_step(number, last_step)
        if stop is not None:
            self._control.publish_stop(stop, last_step)
        lr = trial.schedule.lr_at(samples, trial.config.global_batch)
        for group in trial.optimizer.param_groups:
            group["lr"] = lr
        method.begin_step()
        loss_sum = 0.0
        for micro_step in range(accumulate):
            last = micro_step == accumulate - 1
            inputs, targets = self._feed.next()
            ledger.lap("other_s")
            with method.micro_step(last):
                loss = training_loss(method.module(inputs), targets)
                loss_sum += loss.item()
                ledger.lap("compute_s")
                if not math.isfinite(loss_sum):
                    self._control.diverged(f"the loss is {loss_sum} after {samples} samples")
                if last:
                    ledger.lap("other_s")
                    self._pacer.pad(ledger.elapsed_s)
                    ledger.lap("pad_s")
                backward_began_mono_s = time.monotonic()
                torch.autograd.backward(loss / accumulate if accumulate > 1 else loss)
                if last:
                    method.gradients_ready(backward_began_mono_s)
                backward_s = ledger.lap("compute_s")
        report = method.finish()
        ledger.exchange(report)
        method.update()
        optimizer_s = ledger.lap("optimizer_s")
        if (more := method.after_update()) is not None:
            ledger.exchange(more)
            report = report.plus(more)
        self._pacer.observe(backward_s - report.hidden_s + optimizer_s)
        return StepResult(begin_mono_s, loss_sum / accumulate, lr, report, ledger)

    def plain_backward_s(self) -> float:
        """Measure what a backward pass takes without communication. Changes gradients, nothing else."""
        method = self._trial.method
        durations_s = []
        for _ in range(PLAIN_BACKWARDS):
            inputs, targets = self._feed.next()
            with method.micro_step(last=False):
                loss = training_loss(method.module(inputs), targets)
                begin_mono_s = time.monotonic()
                torch.autograd.backward(loss)
                durations_s.append(time.monotonic() - begin_mono_s)
        method.begin_step()
        return statistics.median(durations_s)
