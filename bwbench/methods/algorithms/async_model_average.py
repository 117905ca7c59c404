"""Asynchronous model averaging: training never waits; a thread averages the weights now and then meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from pydantic import Field

from bwbench.base import emulated_time
from bwbench.base.units import PositiveDuration
from bwbench.methods.algorithms.algorithm import (
    AbstractAlgorithm,
    AbstractRunning,
    BucketsConfig,
    Context,
    ExchangeReport,
    assign,
)
from bwbench.methods.algorithms.buckets import BucketExchange, ParameterBuffers, check_gradients, trainable
from bwbench.methods.algorithms.decentralized import weight_codec_refusal, weight_codecs
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.telling import tell_all
from bwbench.methods.collectives.transport import Members, Round
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, NoCompression, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.devices import DONE, Mark, device_of
from bwbench.methods.memory import State, remember, remembered
from bwbench.methods.traffic import Traffic

VOTE_TAG = 1 << 20  # beyond the tags of buckets
VOTE_BYTES = 8
LIVENESS_CHECK_S = 1.0  # how often a waiting thread looks whether the other one still lives; a result wakes it at once
CLOSE_S = 1.0  # how long ``close`` waits; a thread that hangs in a message ends with the process
GUESSED_STEP_S = 0.1  # for the estimate alone: bytes go by time here, and nobody knows yet how long a step takes


class AsyncModelAverageConfig(BucketsConfig):
    """Options of ``async``, beside the size of its buckets.

    Attributes:
        sync_interval_s: from the begin of one averaging to the begin of the next; the next one follows at once where
            the link needs longer than that.
        warmup_steps: optimizer steps at the begin in which gradients are averaged in fp32 instead, by the same
            collective, as ``every-step`` does.
    """

    sync_interval_s: PositiveDuration = Field(0.5, alias="sync_interval")
    warmup_steps: int = Field(0, ge=0)


class AsyncModelAverage(AbstractAlgorithm):
    """Every ``sync_interval`` the mean of all weights is formed and added as a difference, mean minus snapshot.

    After Bagua's async model average (Gan et al. 2021). What a rank learns while the mean is on its way is kept. A
    difference is added right after an optimizer step, so that forward and backward pass of a step see one set of
    weights. Bagua locks the weights from the forward pass to the end of the backward pass only: there a difference may
    come in while the optimizer changes them.
    """

    Config = AsyncModelAverageConfig
    copies = 5.0  # parameters, gradients, parameters that leave, their mean, and what is to be added
    options: AsyncModelAverageConfig
    replicas_equal = "never"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that keep weights nearly as they are."""
        return weight_codec_refusal(codec())

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One vote and one exchange of all weights an interval, after the warm-up: a guess for a step of 100 ms.

        Bytes go by time and not by steps. A step that takes longer sends more, one that takes less sends less; never
        more than the link carries, because rounds follow one another.
        """
        traffic = super().traffic(parameter_shapes, num_nodes, collective, make_codec)
        votes = (num_nodes - 1.0) * VOTE_BYTES
        traffic = replace(
            traffic,
            payload_bytes_per_rank=tuple(size + votes for size in traffic.payload_bytes_per_rank),
            received_bytes_per_rank=tuple(size + votes for size in traffic.received_bytes_per_rank),
            rounds=traffic.rounds + 1,
            in_background=True,
            messages=traffic.messages + num_nodes * (num_nodes - 1) if traffic.messages else 0.0,
        )
        return traffic.scaled(min(1.0, GUESSED_STEP_S / self.options.sync_interval_s))

    def depends_on_link(self) -> str | None:
        """How many rounds there are to a step, and how old their results."""
        return "how often and how late weights are averaged depends on the link, and with it the accuracy"

    def attach(self, context: Context) -> AbstractRunning:
        """Put weights and gradients into flat buffers. Raises ConfigError where the codec is none for weights."""
        return RunningAsync(context, self.options)


class RunningAsync(BucketExchange):
    """One rank of ``async``: an exchange of gradients while warming up, averaging of weights beside it from then on."""

    def __init__(self, context: Context, options: AsyncModelAverageConfig) -> None:
        super().__init__(replace(context, make_codec=NoCompression), options.bucket_bytes)
        self._collective = context.collective
        self._warmup_steps = options.warmup_steps
        parameters = trainable(context.model)
        buckets = assign([p.numel() for p in parameters], options.bucket_bytes, context.shrink)
        self._weights = ParameterBuffers(parameters, buckets)
        self.bucket_bytes = [flat.nbytes for flat in self._weights.flat]
        self._weight_codecs = weight_codecs(context, self._weights, weight_codec_refusal)
        self._background = BackgroundAveraging(
            self._weights.flat, self._weight_codecs, self._collective, context.members, options.sync_interval_s
        )
        self._running = False

    @property
    def averages_gradients(self) -> bool:
        """While warming up."""
        return self._warming_up

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """Gradients are sent while warming up only."""
        return super().micro_step(last=last and self._warming_up)

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """One pass over them; while warming up they are looked at before they leave."""
        if self._warming_up:
            super().gradients_ready(backward_began_mono_s)
        else:
            check_gradients(self._context, self.buffers, range(len(self.buffers.flat)), sent=False)

    def finish(self) -> ExchangeReport:
        """Waits while warming up only. Counts what has been sent in the background since the last step."""
        if self._warming_up:
            return super().finish()
        self._background.check()
        sent = self._collective.meter.take().payload_bytes
        return ExchangeReport(ready_mono_s=emulated_time.monotonic(), payload_bytes=sent)

    def update(self) -> None:
        """The optimizer's step, then the differences that have arrived.

        Raises RuntimeError where averaging in the background has failed, e.g. because a peer is gone.
        """
        self._background.check()
        with self._background.weights_held():
            super().update()
            self._background.apply()
        self._num_steps += 1
        if self._running and self._num_steps == self._warmup_steps:
            self._background.resume()

    def agreement_step(self, step: int) -> int | None:
        """No step waits for anybody."""
        return None

    def rehearse(self, plain_backward_s: float) -> None:
        """Average once without using the result."""
        was_running = self._running
        self._hold()
        self._background.rehearse()
        if was_running:
            self.resume()

    def drain(self) -> int:
        """End averaging on all ranks, with all differences added; returns the bytes of the rounds since the last step.

        Other ranks may go on training alone until they drain, too.
        """
        self._hold()
        return self._collective.meter.take().payload_bytes

    def resume(self) -> None:
        """Average again from now on, or from the end of the warm-up."""
        self._running = True
        if not self._warming_up:
            self._background.resume()

    def reset(self) -> None:
        """Warm up anew, drop differences that have not been added."""
        self._num_steps = 0
        self._background.forget()
        self._context.forget([*self._codecs, *self._weight_codecs])

    def state_dict(self) -> State:
        """The number of steps, and what codecs and collective remember."""
        return {"num_steps": torch.tensor(self._num_steps), **remembered(self._weight_codecs, self._collective)}

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self._num_steps = int(state["num_steps"])
        remember(state, self._weight_codecs, self._collective)

    def close(self) -> None:
        """End the threads."""
        self._background.close()
        super().close()

    @property
    def _warming_up(self) -> bool:
        return self._num_steps < self._warmup_steps

    def _hold(self) -> None:
        """All ranks call it after the same step, so that none waits here for one that still warms up."""
        self._running = False
        self._background.hold()


class BackgroundAveraging:
    """Rounds in which all ranks average a copy of their weights, one after the other, in a daemon thread.

    What a round finds is a difference, mean minus copy, that ``apply`` adds to the weights. A copy taken before the
    differences of earlier rounds were applied holds them already, so that none counts twice and the mean of
    (weights + what is still to be applied) over all ranks changes by training alone.

    Stretches between ``resume`` and ``hold`` are counted, and all ranks have the same ones. Before each round all
    ranks vote; as soon as one votes hold, all end the stretch there, the others too, which then go on training alone
    until their own ``hold``. Every rank votes at least once in every stretch, so that no vote and no exchange is ever
    left to a rank alone.

    Args:
        weights: what the optimizer changes, fp32 vectors. Change them inside of ``weights_held`` only.
        interval_s: from the begin of one round to the begin of the next, at least.
    """

    def __init__(
        self,
        weights: Sequence[torch.Tensor],
        codecs: Sequence[AbstractCodec],
        collective: AbstractCollective,
        members: Members,
        interval_s: float,
    ) -> None:
        self._weights, self._codecs, self._collective = weights, codecs, collective
        self._members, self._interval_s = members, interval_s
        self._rounds = [Round(number, members) for number in range(len(weights))]
        self._pending = [torch.zeros_like(flat) for flat in weights]  # found, not applied yet
        self._found = False
        self._copies = [torch.zeros_like(flat) for flat in weights]
        self._means = [torch.zeros_like(flat) for flat in weights]
        self._device = device_of(weights[0])
        self._lock = threading.Lock()  # weights and pending differences
        self._touched: Mark = DONE  # behind what the last one to hold them has told the device
        self._changed = threading.Condition()  # what follows
        self._begun = self._ended = self._asked_to_end = 0  # numbers of stretches
        self._closed = False
        self._error: BaseException | None = None
        self.rounds = 0
        self._thread = threading.Thread(target=self._work, name="bwbench-averaging", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Begin a stretch; nothing changes where one is open.

        It begins behind whatever this thread has told the device so far: weights may have been loaded since the last
        one.
        """
        with self.weights_held():
            pass
        with self._changed:
            self._begun = self._asked_to_end + 1
            self._changed.notify_all()

    def hold(self) -> None:
        """End the stretch: returns once nothing is on its way, with all differences applied.

        That may take until every other rank has called it too, or has come to its next vote. Raises RuntimeError where
        the thread has failed.
        """
        with self._changed:
            self._asked_to_end = self._begun
            self._changed.notify_all()
            while self._ended < self._begun:
                self.check()
                if not self._thread.is_alive():
                    raise RuntimeError("the averaging thread has ended")
                self._changed.wait(LIVENESS_CHECK_S)  # each of its own waits is limited by the group's timeout
        self.check()
        with self.weights_held():
            self.apply()

    def check(self) -> None:
        """Raise RuntimeError where the thread has failed."""
        if self._error is not None:
            raise RuntimeError(f"averaging in the background failed: {self._error}") from self._error

    @contextmanager
    def weights_held(self) -> Iterator[None]:
        """Nobody else touches weights and pending differences inside; on a device neither before nor after."""
        with self._lock:
            self._touched.wait()
            yield
            self._touched = self._device.mark()

    def apply(self) -> None:
        """Add to the weights what has been found since the last call. Call it inside of ``weights_held``."""
        if not self._found:
            return
        self._found = False
        for flat, difference in zip(self._weights, self._pending, strict=True):
            flat.add_(difference)
            difference.zero_()

    def forget(self) -> None:
        """Drop what has not been applied. Only while held."""
        with self.weights_held():
            for difference in self._pending:
                difference.zero_()
        self._found = False
        self.rounds = 0

    def rehearse(self) -> None:
        """One round without its result; only while held, on all ranks."""
        self._vote(True)
        self._average_copies()

    def close(self) -> None:
        """End the thread, at once where it is idle. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._begun > self._ended)
                    if self._closed:
                        return
                with self._device.beside(DONE):
                    self._stretch()
                with self._changed:
                    self._ended += 1
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _stretch(self) -> None:
        """Rounds until one rank votes hold."""
        next_s = emulated_time.monotonic() + self._interval_s
        while True:
            with self._changed:
                told_to_end = self._changed.wait_for(
                    self._told_to_end, emulated_time.machine_s(max(0.0, next_s - emulated_time.monotonic()))
                )
            next_s = emulated_time.monotonic() + self._interval_s
            if not self._vote(not told_to_end):
                return
            self._average_copies()
            with self.weights_held(), emulated_time.work_on_vectors():
                for pending, mean, own in zip(self._pending, self._means, self._copies, strict=True):
                    pending.add_(mean.sub_(own))
                self._found = True
            self.rounds += 1

    def _told_to_end(self) -> bool:
        return self._closed or self._asked_to_end > self._ended

    def _average_copies(self) -> None:
        with self.weights_held(), emulated_time.work_on_vectors():
            for copy, flat, pending in zip(self._copies, self._weights, self._pending, strict=True):
                copy.copy_(flat).add_(pending)
        for bucket, (mean, copy) in enumerate(zip(self._means, self._copies, strict=True)):
            with emulated_time.work_on_vectors():
                mean.copy_(copy)
            self._collective.average(mean, self._codecs[bucket], self._rounds[bucket])

    def _vote(self, go: bool) -> bool:  # noqa: FBT001 (the vote itself)
        """Whether every rank votes to go on: N-1 messages of 8 bytes from each."""
        if self._members.size == 1:
            return go
        self._collective.meter.sent((self._members.size - 1) * VOTE_BYTES)
        group = self._collective.transport.group
        return bool(tell_all(group, self._members, torch.tensor([int(go)]), VOTE_TAG).wait().all())
