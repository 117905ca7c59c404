"""One optimizer step: every moment of it booked, and padded to the duration that the experiment declares."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

import torch

from bwbench.base import emulated_time
from bwbench.experiment.config.step_trace import Asked
from bwbench.methods.algorithms import ExchangeReport
from bwbench.methods.devices import HOST, Device, device_of
from bwbench.methods.phases import PLAIN_BACKWARDS
from bwbench.records.schema import LedgerParts
from bwbench.training.loop.clock import TrainingClock
from bwbench.training.loop.control import Stop
from bwbench.training.loop.evaluation import training_loss
from bwbench.training.loop.feed import AnyFeed
from bwbench.training.loop.trial_parts import Trial

REMEMBERED_STEPS = 21  # enough for a steady median, few enough to follow a machine that slows down
PARTS = tuple(LedgerParts.model_fields)


class StepLedger:
    """Books the time of one step, in training seconds.

    ``lap`` books all the time since the lap before, so that no moment is lost or counted twice. Only ``exchange`` takes
    over figures that were measured elsewhere; ``error_s`` says how well they fit.

    Args:
        device: that computes; a lap ends when it has done what it was told, so that times are of finished work.
    """

    def __init__(self, clock: TrainingClock, device: Device = HOST) -> None:
        self._clock, self._device = clock, device
        self.begin_s = self._last_s = clock.now_s()
        self.parts = dict.fromkeys(PARTS, 0.0)

    def lap(self, part: str) -> float:
        """Book the time since the last lap under ``part``; returns it."""
        self._device.finish()
        emulated_time.catch_up()
        now_s = self._clock.now_s()
        lap_s, self._last_s = now_s - self._last_s, now_s
        self.parts[part] += lap_s
        return lap_s

    def exchange(self, report: ExchangeReport) -> None:
        """Book the time since the last lap as the algorithm reports it; what it does not explain is ``other_s``."""
        begin_s = self._last_s
        self.lap("other_s")
        explained_s = report.exposed_s - report.hidden_s + report.codec_s
        self.parts["other_s"] -= min(explained_s, self._last_s - begin_s)
        self.parts["compute_s"] -= report.hidden_s
        self.parts["exposed_s"] += report.exposed_s
        self.parts["codec_s"] += report.codec_s

    @property
    def elapsed_s(self) -> float:
        """Training seconds since the step began."""
        return self._clock.now_s() - self.begin_s

    @property
    def duration_s(self) -> float:
        """From the begin of the step to the last lap."""
        return self._last_s - self.begin_s

    @property
    def error_s(self) -> float:
        """How far the parts are from adding up, in seconds."""
        return abs(self.duration_s - sum(self.parts.values()))


class Pacer:
    """Sleeps before the last backward pass of a step, so that nodes that share cores look like devices of that speed.

    There, and not at the end of the step: gradients then appear at the same pace as on the slower device that is
    imitated, and communication overlaps with the backward pass as it would there. What backward and optimizer will
    take is the median of the steps before, but for what a backward pass is declared to take.

    Args:
        asked: what each step shall take, in training seconds; None pads nothing.

    Attributes:
        step_time_s: what the present step shall take; None where nothing is asked.
    """

    def __init__(self, asked: Asked | None) -> None:
        self._asked = asked
        self.step_time_s: float | None = None
        self._tails_s: deque[float] = deque(maxlen=REMEMBERED_STEPS)

    def begin_step(self, number: int, clock_s: float) -> None:
        """A step begins at this training second, whose time is now asked for."""
        self.step_time_s = None if self._asked is None else self._asked(number, clock_s)

    def observe(self, tail_s: float) -> None:
        """Take in what a step computed after its padding, and was not declared: backward and optimizer, no waiting."""
        self._tails_s.append(tail_s)

    def missing_s(self, elapsed_s: float, declared_s: float = 0.0) -> float:
        """How long to sleep in a step that has taken ``elapsed_s`` so far; 0 where no step time is declared.

        Args:
            declared_s: of what still comes in this very step: a backward pass that waits and does not compute.
        """
        if self.step_time_s is None:
            return 0.0
        tail_s = statistics.median(self._tails_s) if self._tails_s else 0.0
        return max(0.0, self.step_time_s - elapsed_s - declared_s - tail_s)

    def pad(self, elapsed_s: float, declared_s: float = 0.0) -> None:
        """Sleep for what is missing."""
        missing_s = self.missing_s(elapsed_s, declared_s)
        if missing_s > 0.0:
            emulated_time.sleep(missing_s)


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

    def __init__(self, trial: Trial, feed: AnyFeed, pacer: Pacer) -> None:
        self._trial, self._feed, self._pacer = trial, feed, pacer
        self._control = trial.groups.control
        self._device = device_of(next(trial.model.parameters()))

    def step(self, number: int, samples: int, stop: Stop | None = None) -> StepResult:
        """One optimizer step.

        Args:
            number: of this step, from 1.
            samples: trained on so far, over all ranks; decides the learning rate.
            stop: this rank wants training to end after this step.
        """
        trial, method = self._trial, self._trial.method
        accumulate = trial.config.accumulate
        begin_mono_s = emulated_time.monotonic()
        ledger = StepLedger(trial.clock, self._device)
        self._pacer.begin_step(number, ledger.begin_s)
        if trial.shapes is not None:
            trial.shapes.begin_step(self._pacer.step_time_s)
        declared_s = trial.declared_backward_s
        last_step = method.agreement_step(number)
        self._control.begin_step(number, last_step)
        if stop is not None:
            self._control.publish_stop(stop, last_step)
        lr = trial.schedule.set_rate(trial.optimizer, samples, trial.config.global_batch)
        method.begin_step()
        loss_sum = 0.0
        for micro_step in range(accumulate):
            last = micro_step == accumulate - 1
            inputs, targets = self._feed.next()
            ledger.lap("other_s")
            with method.micro_step(last=last):
                loss = training_loss(method.module(inputs), targets)
                loss_sum += loss.item()
                ledger.lap("compute_s")
                if not math.isfinite(loss_sum):
                    self._control.diverged(f"the loss is {loss_sum} after {samples} samples")
                if last:
                    ledger.lap("other_s")
                    self._pacer.pad(ledger.elapsed_s, declared_s)
                    ledger.lap("pad_s")
                backward_began_mono_s = emulated_time.monotonic()
                torch.autograd.backward(loss / accumulate if accumulate > 1 else loss)
                if last:
                    method.gradients_ready(backward_began_mono_s)
                backward_s = ledger.lap("compute_s")
        report = method.finish()
        ledger.exchange(report)
        with emulated_time.work_on_vectors():
            method.update()
        optimizer_s = ledger.lap("optimizer_s")
        if (more := method.after_update()) is not None:
            ledger.exchange(more)
            report = report.plus(more)
        if trial.averaged is not None:
            ledger.lap("other_s")
            trial.averaged.take_in(samples + trial.config.global_batch, trial.config.global_batch)
            optimizer_s += ledger.lap("optimizer_s")
        self._pacer.observe(backward_s - declared_s - report.hidden_s + optimizer_s)
        return StepResult(begin_mono_s, loss_sum / accumulate, lr, report, ledger)

    def plain_backward_s(self) -> float:
        """Measure what a backward pass takes without communication. Changes gradients, nothing else.

        One of a model of shapes is enough: it takes what it is declared to.
        """
        method = self._trial.method
        durations_s = []
        for _ in range(PLAIN_BACKWARDS if self._trial.shapes is None else 1):
            inputs, targets = self._feed.next()
            with method.micro_step(last=False):
                loss = training_loss(method.module(inputs), targets)
                self._device.finish()
                emulated_time.catch_up()
                begin_mono_s = emulated_time.monotonic()
                torch.autograd.backward(loss)
                self._device.finish()
                emulated_time.catch_up()
                durations_s.append(emulated_time.monotonic() - begin_mono_s)
        method.begin_step()
        return statistics.median(durations_s)
