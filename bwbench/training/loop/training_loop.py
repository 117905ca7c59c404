"""The training loop: warm up off the clock, step on it, evaluate off it, end together."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from bwbench.experiment.config.step_trace import asked_of
from bwbench.methods.phases import WARM_UP_STEPS
from bwbench.records.environment import tcp_settings
from bwbench.records.schema import End, LedgerParts, Resume, Step, finite
from bwbench.training.loop.checkpoints import Checkpoints, Progress, SavedTrial, restore_trial, save_trial
from bwbench.training.loop.control import Stop
from bwbench.training.loop.evaluation import Evaluator
from bwbench.training.loop.feed import AnyFeed
from bwbench.training.loop.real_size import skipped_steps
from bwbench.training.loop.recorder import Channel, Recorder
from bwbench.training.loop.replica import copy_of, fingerprint, put_back
from bwbench.training.loop.step import Pacer, Stepper, StepResult
from bwbench.training.loop.trial_parts import Trial


class TrainingLoop:
    """Runs one trial on one rank, from its begin or from a checkpoint. All ranks do the same things in the same order.

    Args:
        checkpoints: takes them, and knows the one to go on from; None takes none and begins at step 0.
        between: called on all ranks after each evaluation but the last, off the clock, with what it stands at.
    """

    def __init__(
        self,
        trial: Trial,
        recorder: Recorder,
        channel: Channel,
        checkpoints: Checkpoints | None = None,
        between: Callable[[float], None] | None = None,
    ) -> None:
        self._trial, self._recorder, self._channel = trial, recorder, channel
        self._checkpoints, self._between = checkpoints, between
        self._clock, self._control = trial.clock, trial.groups.control
        self._progress = Progress(trial.config.global_batch)
        self._evaluator = Evaluator(trial, self._progress)
        self._feed: AnyFeed = trial.make_feed()
        self._plain_backward_s = 0.0  # measured while warming up: what overlap is judged by

    def run(self) -> None:
        """Train until the target, a limit or divergence; everything is recorded when this returns."""
        asked = asked_of(self._trial.config, self._control.rank)  # raises before anybody waits for anybody
        self._channel.phase("ready")
        self._warm_up()
        resumed = self._checkpoints.resumed() if self._checkpoints is not None else None
        stop = None
        if resumed is None:
            stop = self._begin()
        else:
            self._go_on(*resumed)
        pacer = Pacer(asked)
        pacer.observe(self._plain_backward_s - self._trial.declared_backward_s)
        stop = self._train(Stepper(self._trial, self._feed, pacer), stop)
        with self._clock.held():
            self._finish(stop)
        self._trial.method.close()

    def _warm_up(self) -> None:
        """Whole steps and the measurement that overlap is judged by, then everything as it was before."""
        trial = self._trial
        before = copy_of(trial.model, trial.optimizer) if trial.shapes is None else None
        stepper = Stepper(trial, trial.make_feed(), Pacer(None))
        trial.method.resume()
        for number in range(1, WARM_UP_STEPS + 1):
            stepper.step(number, samples=0)
        self._plain_backward_s = stepper.plain_backward_s()
        trial.method.rehearse(self._plain_backward_s)
        trial.method.drain()
        if before is not None:  # else nothing is learnt that would have to be undone
            put_back(before, trial.model, trial.optimizer)
        trial.method.reset()
        trial.method.pass_over(skipped_steps(trial.config, trial.model))
        if trial.averaged is not None:
            trial.averaged.reset()

    def _begin(self) -> Stop | None:
        """Score the initial replica, and start the clock at zero."""
        evaluation = self._evaluator.score("validation", clock_s=0.0)
        tested = [self._evaluator.score("test", clock_s=0.0)] if self._evaluator.looks_at_test(evaluation) else []
        facts = self._trial.facts(self._plain_backward_s)
        self._meet()
        self._recorder.begin(facts, self._clock.start())
        self._trial.method.resume()
        for event in (evaluation, *tested):
            self._recorder.show(event)
        return self._evaluator.verdict(evaluation)

    def _go_on(self, attempt: int, saved: SavedTrial) -> None:
        """Be where the checkpoint was taken, and let the clock go on from there."""
        clock_s = restore_trial(saved, self._trial, self._feed, self._progress)
        facts = Resume(
            pid=os.getpid(),
            attempt=attempt,
            step=self._progress.steps,
            samples=self._progress.samples,
            clock_s=clock_s,
            plain_backward_s=self._plain_backward_s,
            tcp=tcp_settings(),
        )
        self._meet()
        self._recorder.begin(facts, self._clock.start(clock_s, self._progress.control_bytes))
        self._trial.method.resume()

    def _meet(self) -> None:
        """Everybody ready, nothing in flight, and the parent has read its counters."""
        self._control.barrier()
        self._control.withdraw_stop()  # what the warm-up may have asked for
        self._channel.phase("training")
        self._control.barrier()

    def _train(self, stepper: Stepper, stop: Stop | None) -> Stop:
        config, progress = self._trial.config, self._progress
        while stop is None:
            result = stepper.step(progress.steps + 1, progress.samples, self._time_is_up())
            evaluations_before = progress.samples // config.evaluate.every_samples
            progress.steps += 1
            stop = self._control.published_stop(progress.steps)
            if stop is None and progress.samples >= config.limit.samples:
                stop = Stop("done", "samples")
            result.ledger.lap("other_s")
            progress.step_end_s = self._clock.now_s()
            self._record(result)
            due = progress.samples // config.evaluate.every_samples > evaluations_before
            if stop is not None and stop.status == "diverged":
                break
            if due or stop is not None:
                stop = self._evaluate(last=stop is not None) or stop
        return stop

    def _time_is_up(self) -> Stop | None:
        """The time limit is rank 0's to call, so that clocks that differ by microseconds cannot disagree."""
        limit_s = self._trial.config.limit.time_s
        if limit_s is None or self._control.rank != 0 or self._clock.now_s() < limit_s:
            return None
        return Stop("done", "time")

    def _record(self, result: StepResult) -> None:
        self._progress.ledger_check.add(result.ledger.error_s, result.ledger.duration_s)
        self._progress.payload_bytes += result.exchange.payload_bytes
        step = Step(
            step=self._progress.steps,
            samples=self._progress.samples,
            clock_s=self._clock.now_s(),
            mono_s=result.begin_mono_s,
            ready_mono_s=result.exchange.ready_mono_s,
            loss=finite(result.loss) if self._trial.shapes is None else None,
            lr=finite(result.lr),
            payload_bytes=result.exchange.payload_bytes,
            duration_s=round(result.ledger.duration_s, 9),
            ledger=LedgerParts(**{part: round(time_s, 9) for part, time_s in result.ledger.parts.items()}),
            **({} if result.exchange.chosen is None else {"chosen": result.exchange.chosen}),
        )
        self._recorder.writer.write(step)

    def _evaluate(self, *, last: bool) -> Stop | None:
        """Evaluate off the clock, and take a checkpoint where training goes on and it is time for one.

        Returns why training ends here, None where it does not.
        """
        self._progress.payload_bytes += self._trial.method.drain()
        self._control.meet(self._clock)  # on the clock: all clocks stop at the same moment, whoever was last
        waited_s = self._clock.now_s() - self._progress.step_end_s
        with self._clock.held():
            clock_s = self._clock.now_s()
            self._progress.control_bytes = self._clock.tallied
            event = self._evaluator.score("validation", clock_s).model_copy(update={"waited_s": waited_s})
            self._recorder.show(event)
            self._recorder.writer.flush()
            # Nobody can ask between the barriers.
            stop = self._evaluator.verdict(event) or self._control.published_stop(None)
            looks_at_test = self._evaluator.looks_at_test(event)
            if stop is None and not last and looks_at_test:  # at the end it is looked at anyway
                self._recorder.show(self._evaluator.score("test", clock_s))
            if stop is None and not last and self._checkpoints is not None:
                save = partial(save_trial, self._trial, self._feed, self._progress, clock_s)
                self._checkpoints.take_if_due(self._progress, clock_s, save)
            if stop is None and not last and self._between is not None:
                self._between(clock_s)
            self._control.barrier()  # and go on together
        self._trial.method.resume()
        return stop

    def _finish(self, stop: Stop) -> None:
        """Let the parent read its counters, evaluate on the test split, write the end."""
        self._progress.payload_bytes += self._trial.method.drain()
        clock_s = self._clock.now_s()
        self._control.barrier()
        self._channel.phase("drained")
        if stop.status == "done":
            self._recorder.show(self._evaluator.score("test", clock_s))
        self._channel.phase("ending")
        self._recorder.end(
            End(
                status=stop.status,
                reason=stop.reason,
                step=self._progress.steps,
                samples=self._progress.samples,
                clock_s=clock_s,
                payload_bytes=self._progress.payload_bytes,
                control_bytes=None if self._control.interface is None else self._clock.tallied,
                replica_sha256=fingerprint(self._trial.model) if self._trial.shapes is None else None,
                evaluation_s=self._progress.evaluation_s,
                ledger_error=finite(self._progress.ledger_check.error),
                ledger_error_worst_step=finite(self._progress.ledger_check.worst_step),
            )
        )
