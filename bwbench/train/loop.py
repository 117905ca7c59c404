"""The training loop: warm up off the clock, step on it, evaluate off it, end together."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from bwbench.records.environment import tcp_settings
from bwbench.train.channel import Channel
from bwbench.train.control import Stop
from bwbench.train.evaluate import evaluate, meets
from bwbench.train.feed import TensorSamples
from bwbench.train.ledger import LedgerCheck
from bwbench.train.pacer import Pacer
from bwbench.train.recorder import Recorder
from bwbench.train.replica import Snapshot, fingerprint
from bwbench.train.step import Stepper, StepResult
from bwbench.train.trial import Trial

WARM_UP_STEPS = 2  # whole ones, communication included: torch's DDP rebuilds its buckets after the first


class TrainingLoop:
    """Runs one trial on one rank. All ranks do the same things in the same order."""

    def __init__(self, trial: Trial, recorder: Recorder, channel: Channel) -> None:
        self._trial, self._recorder, self._channel = trial, recorder, channel
        self._clock, self._control = trial.clock, trial.groups.control
        self._global_batch = trial.config.global_batch
        self._num_steps = 0
        self._step_end_s = 0.0  # on the training clock
        self._payload_bytes = 0
        self._evaluation_s = 0.0
        self._ledger_check = LedgerCheck()

    @property
    def _samples(self) -> int:
        return self._num_steps * self._global_batch

    def run(self) -> None:
        """Train until the target, a limit or divergence; everything is recorded when this returns."""
        self._channel.phase("ready")
        self._warm_up()
        first = self._evaluation("validation", self._trial.validation, clock_s=0.0)
        pacer = Pacer(self._trial.config.compute.step_time_s)
        pacer.observe(self._trial.algorithm.plain_backward_s)
        stepper = Stepper(self._trial, self._trial.make_feed(), pacer)
        self._start()
        self._recorder.evaluation(first)
        stop = self._train(stepper, self._verdict(first))
        with self._clock.held():
            self._finish(stop)
        self._trial.algorithm.close()

    def _warm_up(self) -> None:
        """Whole steps and the measurement that overlap is judged by, then everything as it was before."""
        trial = self._trial
        before = Snapshot.take(trial.model, trial.optimizer)
        stepper = Stepper(trial, trial.make_feed(), Pacer(None))
        trial.algorithm.resume()
        for number in range(1, WARM_UP_STEPS + 1):
            stepper.step(number, samples=0)
        stepper.measure_plain_backward()
        trial.algorithm.rehearse()
        trial.algorithm.drain()
        before.restore(trial.model, trial.optimizer)
        trial.algorithm.reset()

    def _start(self) -> None:
        """Everybody ready, nothing in flight, the parent has read its counters: set all clocks to zero."""
        facts = self._facts()
        self._control.barrier()
        self._control.withdraw_stop()  # what the warm-up may have asked for
        self._channel.phase("training")
        self._control.barrier()
        self._recorder.start(facts, self._clock.start())
        self._trial.algorithm.resume()

    def _train(self, stepper: Stepper, stop: Stop | None) -> Stop:
        config = self._trial.config
        while stop is None:
            result = stepper.step(self._num_steps + 1, self._samples, self._time_is_up())
            evaluations_before = self._samples // config.evaluate.every_samples
            self._num_steps += 1
            stop = self._control.published_stop(self._num_steps)
            if stop is None and self._samples >= config.limit.samples:
                stop = Stop("done", "samples")
            result.ledger.lap("other_s")
            self._step_end_s = self._clock.now_s()
            self._record(result)
            due = self._samples // config.evaluate.every_samples > evaluations_before
            if stop is not None and stop.status == "diverged":
                break
            if due or stop is not None:
                stop = self._evaluate() or stop
        return stop

    def _time_is_up(self) -> Stop | None:
        """The time limit is rank 0's to call, so that clocks that differ by microseconds cannot disagree."""
        limit_s = self._trial.config.limit.time_s
        if limit_s is None or self._control.rank != 0 or self._clock.now_s() < limit_s:
            return None
        return Stop("done", "time")

    def _record(self, result: StepResult) -> None:
        self._ledger_check.add(result.ledger)
        self._payload_bytes += result.exchange.payload_bytes
        facts = {
            "step": self._num_steps,
            "samples": self._samples,
            "clock_s": self._clock.now_s(),
            "mono_s": result.begin_mono_s,
            "ready_mono_s": result.exchange.ready_mono_s,
            "loss": result.loss,
            "lr": result.lr,
            "payload_bytes": result.exchange.payload_bytes,
        }
        self._recorder.step(facts, result.ledger)

    def _evaluate(self) -> Stop | None:
        """Evaluate off the clock; returns why training ends here, None where it does not."""
        self._payload_bytes += self._trial.algorithm.drain()
        self._control.barrier()  # on the clock: all clocks stop at the same moment, whoever was last
        waited_s = self._clock.now_s() - self._step_end_s
        with self._clock.held():
            event = self._evaluation("validation", self._trial.validation, self._clock.now_s())
            event["waited_s"] = waited_s
            self._recorder.evaluation(event)
            self._recorder.write()
            asked_for = self._control.published_stop(None)  # nobody can ask between the barriers
            self._control.barrier()  # and go on together
        self._trial.algorithm.resume()
        return self._verdict(event) or asked_for

    def _evaluation(self, split: str, samples: TensorSamples, clock_s: float) -> dict[str, Any]:
        begin_mono_s = time.monotonic()
        share = samples.share(self._control.rank, self._control.size)
        found = evaluate(self._trial.model, share)
        local = {metric: found[metric] for metric in self._trial.metrics}
        mean = self._control.mean(local, weight=len(share))
        duration_s = time.monotonic() - begin_mono_s
        self._evaluation_s += duration_s
        target = self._trial.config.target
        return {
            "split": split,
            "step": self._num_steps,
            "samples": self._samples,
            "clock_s": clock_s,
            "local": local,
            "mean": mean,
            "target_met": target is not None and meets(target.metric, mean[target.metric], target.value),
            "duration_s": duration_s,
        }

    def _verdict(self, evaluation: dict[str, Any]) -> Stop | None:
        """What follows from an evaluation: the same on all ranks, because all have the same means."""
        bad = [metric for metric, value in evaluation["mean"].items() if not math.isfinite(value)]
        if bad:
            return Stop("diverged", f"the {bad[0]} of the validation split is not finite after {self._samples} samples")
        if evaluation["target_met"] and self._trial.config.stop == "target":
            return Stop("done", "target")
        return None

    def _finish(self, stop: Stop) -> None:
        """Let the parent read its counters, evaluate on the test split once, write the end."""
        self._payload_bytes += self._trial.algorithm.drain()
        clock_s = self._clock.now_s()
        self._control.barrier()
        self._channel.phase("drained")
        if stop.status == "done":
            self._recorder.evaluation(self._evaluation("test", self._trial.test, clock_s))
        self._channel.phase("ending")
        self._recorder.end(
            {
                "status": stop.status,
                "reason": stop.reason,
                "step": self._num_steps,
                "samples": self._samples,
                "clock_s": clock_s,
                "payload_bytes": self._payload_bytes,
                "replica_sha256": fingerprint(self._trial.model),
                "evaluation_s": self._evaluation_s,
                "ledger_error": self._ledger_check.error,
                "ledger_error_worst_step": self._ledger_check.worst_step,
            }
        )

    def _facts(self) -> dict[str, Any]:
        trial = self._trial
        return {
            "rank": self._control.rank,
            "world_size": self._control.size,
            "num_parameters": trial.num_parameters,
            "gradient_bytes": 4 * trial.num_parameters,
            "global_batch": self._global_batch,
            "num_train": trial.num_train,
            "num_validation": len(trial.validation),
            "num_test": len(trial.test),
            "bucket_bytes": trial.algorithm.bucket_bytes,
            "threads": trial.config.compute.threads,
            "torch_version": torch.__version__,
            "overlap_estimated": trial.algorithm.overlap_estimated,
            "plain_backward_s": trial.algorithm.plain_backward_s,
            "tcp": tcp_settings(),
        }
