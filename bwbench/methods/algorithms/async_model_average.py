"""Asynchronous model averaging: training never waits; a thread averages the weights now and then meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.base.units import PositiveDuration
from bwbench.methods.algorithms.background_averaging import VOTE_BYTES, BackgroundAveraging
from bwbench.methods.algorithms.base import Context, ExchangeReport
from bwbench.methods.algorithms.buckets import ParameterBuffers, assign, bucket_payloads, trainable
from bwbench.methods.algorithms.exchange import BucketExchange
from bwbench.methods.algorithms.finite import GradientWatch
from bwbench.methods.algorithms.gradient_exchange import AbstractGradientExchange
from bwbench.methods.algorithms.memory import remember, remembered
from bwbench.methods.algorithms.weight_codec import weight_codec_refusal
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec, Shape
from bwbench.methods.compression.none import NoCompression
from bwbench.methods.traffic import Traffic

if TYPE_CHECKING:
    import torch

GUESSED_STEP_S = 0.1  # for the estimate alone: bytes go by time here, and nobody knows yet how long a step takes


class AsyncModelAverageConfig(ComponentConfig):
    """Options of ``async``.

    Attributes:
        sync_interval_s: from the begin of one averaging to the begin of the next; the next one follows at once where
            the link needs longer than that.
        warmup_steps: optimizer steps at the begin in which gradients are averaged in fp32 instead, by the same
            collective, as ``every-step`` does.
    """

    sync_interval_s: PositiveDuration = Field(0.5, alias="sync_interval")
    warmup_steps: int = Field(0, ge=0)


class AsyncModelAverage(AbstractGradientExchange):
    """Every ``sync_interval`` the mean of all weights is formed and added as a difference, mean minus snapshot.

    After Bagua's async model average (Gan et al. 2021). What a rank learns while the mean is on its way is kept. A
    difference is added right after an optimizer step, so that forward and backward pass of a step see one set of
    weights. Bagua locks the weights from the forward pass to the end of the backward pass only: there a difference may
    come in while the optimizer changes them.
    """

    Config = AsyncModelAverageConfig
    options: AsyncModelAverageConfig
    replicas_equal = "never"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that keep weights nearly as they are."""
        return weight_codec_refusal(codec())

    def traffic(
        self,
        parameter_shapes: Sequence[Shape],
        num_nodes: int,
        collective: AbstractCollective,
        make_codec: Callable[[], AbstractCodec],
    ) -> Traffic:
        """One vote and one exchange of all weights an interval, after the warm-up: a guess for a step of 100 ms.

        Bytes go by time and not by steps. A step that takes longer sends more, one that takes less sends less; never
        more than the link carries, because rounds follow one another.
        """
        traffic = collective.traffic(num_nodes, bucket_payloads(parameter_shapes, None, make_codec))
        votes = (num_nodes - 1.0) * VOTE_BYTES
        traffic = replace(
            traffic,
            payload_bytes_per_rank=tuple(size + votes for size in traffic.payload_bytes_per_rank),
            received_bytes_per_rank=tuple(size + votes for size in traffic.received_bytes_per_rank),
            rounds=traffic.rounds + 1,
            in_background=True,
        )
        return traffic.scaled(min(1.0, GUESSED_STEP_S / self.options.sync_interval_s))

    def depends_on_link(self) -> str | None:
        """How many rounds there are to a step, and how old their results."""
        return "how often and how late weights are averaged depends on the link, and with it the accuracy"

    def attach(self, context: Context) -> None:
        """Put weights and gradients into flat buffers. Raises ConfigError where the codec is none for weights."""
        self._optimizer = context.optimizer
        self._context, self._collective = context, context.collective
        self._exchange = BucketExchange(replace(context, make_codec=NoCompression), None)  # of the warm-up
        parameters = trainable(context.model)
        self._weights = ParameterBuffers(parameters, assign([p.numel() for p in parameters], None))
        self._codecs = [context.codec_of(shapes, number) for number, shapes in enumerate(self._weights.shapes)]
        for codec in self._codecs:
            if (reason := weight_codec_refusal(codec)) is not None:
                raise ConfigError(f"weights cannot be sent with this compression: {reason}")
        interval_s = self.options.sync_interval_s
        self._background = BackgroundAveraging(self._weights.flat, self._codecs, self._collective, interval_s)
        self._watch = GradientWatch(context.model, self._exchange.buffers, context.control)
        self._num_steps = 0
        self._running = False

    @property
    def bucket_bytes(self) -> list[int]:
        """Sizes of the buckets of weights."""
        return self._weights.bucket_bytes

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are sent while warming up only."""
        return super().micro_step(last and self._warming_up)

    def check_gradients(self) -> None:
        """One pass over them; while warming up they are looked at before they leave."""
        if not self._warming_up:
            self._watch.check_all()

    def finish(self) -> ExchangeReport:
        """Waits while warming up only. Counts what has been sent in the background since the last step."""
        if self._warming_up:
            return super().finish()
        self._background.check()
        sent = self._collective.meter.take().payload_bytes
        return ExchangeReport(ready_mono_s=time.monotonic(), payload_bytes=sent)

    def update(self) -> None:
        """The optimizer's step, then the differences that have arrived.

        Raises RuntimeError where averaging in the background has failed, e.g. because a peer is gone.
        """
        self._background.check()
        with self._background.lock:
            super().update()
            self._background.apply()
        self._num_steps += 1
        if self._running and self._num_steps == self.options.warmup_steps:
            self._background.resume()

    def agreement_step(self, step: int) -> int | None:
        """No step waits for anybody."""
        return None

    def rehearse(self) -> None:
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
        self._exchange.reset()
        remember({}, self._codecs, self._collective)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The number of steps, and what codecs and collective remember."""
        import torch

        return {"num_steps": torch.tensor(self._num_steps), **remembered(self._codecs, self._collective)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._num_steps = int(state["num_steps"])
        memory = {key: value for key, value in state.items() if key != "num_steps"}
        remember(memory, self._codecs, self._collective)

    def close(self) -> None:
        """End the threads."""
        self._background.close()
        self._exchange.close()

    @property
    def _warming_up(self) -> bool:
        return self._num_steps < self.options.warmup_steps

    def _hold(self) -> None:
        """All ranks call it after the same step, so that none waits here for one that still warms up."""
        self._running = False
        self._background.hold()
