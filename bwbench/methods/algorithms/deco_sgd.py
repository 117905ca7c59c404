"""DeCo-SGD's idea: the largest entries of each gradient, some steps late; how many and how late is chosen by the link.

What the link does is measured beside the training. Once a window all ranks tell one another, over the link, and all
choose by the same function of the same numbers (``deco_choice.py``).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bwbench.base import emulated_time
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport, assign
from bwbench.methods.algorithms.buckets import GradientBuffers, RunningLocally
from bwbench.methods.algorithms.communicator import Communicator
from bwbench.methods.algorithms.deco_choice import (
    UNKNOWN_S,
    DecoSetting,
    DecoSgdConfig,
    Flown,
    WindowMeasured,
    choose,
    rate_bps,
    slowest,
)
from bwbench.methods.buffers import moved_like, on_host
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.scatter_gather import AllGather
from bwbench.methods.collectives.telling import tell_all
from bwbench.methods.collectives.transport import Round
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, Shape
from bwbench.methods.compression.error_feedback import PLAIN, ErrorFeedback
from bwbench.methods.compression.sparse import TopK, TopKConfig, entries_at, most_index_bytes
from bwbench.methods.deferred import torch
from bwbench.methods.devices import device_of
from bwbench.methods.memory import State, part
from bwbench.methods.phases import Phase
from bwbench.methods.traffic import Traffic
from bwbench.records.schema import Chosen

REHEARSALS = 3  # of telling, on an idle link: the shortest is the latency
TELL_TAG = 1 << 20  # beyond the tags of exchanges
TELL_BYTES = 3 * 8  # rate, latency, computing


class DecoSgd(AbstractAlgorithm):
    """Delayed top-k with error feedback, after Lu et al. 2025 (DeCo-SGD), on each rank i with a staleness T::

        p_i = g_i(t) + e_i          D_i(t) = top-k(p_i)          e_i = p_i - D_i(t)
        x   = step with the mean of D_i(t - T)

    So a message has T steps to arrive in, and exchanges follow one another without waiting. Where T grows, as many
    steps have nothing to step with; where it falls, several means fall due together and are added up. The first steps
    have none.

    How ratio and staleness are chosen is ours (``choose``): those with which the same progress is predicted to take
    the shortest time. The paper keeps the time of a step at that of computing, and minimises the factor of its theorem.
    ``compression`` says how the values of the entries are written: as fp32, or in fewer bits; the residual is that of
    both.
    """

    Config = DecoSgdConfig
    options: DecoSgdConfig
    virtual = True
    preferred_collective = "all-gather"
    copies = 7.0  # parameters, gradients, what was not sent of them, and up to four means that are late
    keeps_residual = True

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """All-gather alone."""
        if issubclass(collective, AllGather):
            return None
        return "its entries are encoded before they leave, and go to all others unmerged, which is all-gather"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Codecs that write every value that they are given."""
        if codec.linear or codec.keeps_residual or codec.carries:
            return "it chooses the entries itself; name what writes their values: none, fp16, int8, int4 …"
        return None

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One exchange a step, at the ratio that training begins with, and what is told once a window.

        A ratio that is chosen later sends more, or less.
        """
        top_k = self.top_k(make_codec(), self.options.first.ratio)
        traffic = collective.traffic(num_nodes, top_k.payloads(sum(map(math.prod, parameter_shapes))))
        tellings = (num_nodes - 1) / self.options.window if self.options.adapts else 0.0  # of each rank
        told = TELL_BYTES * tellings
        return replace(
            traffic,
            payload_bytes_per_rank=tuple(size + told for size in traffic.payload_bytes_per_rank),
            received_bytes_per_rank=tuple(size + told for size in traffic.received_bytes_per_rank),
            in_background=self.options.latest > 0,
            messages=traffic.messages + num_nodes * tellings,
        )

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """One kind of steps where nothing is chosen."""
        return () if self.options.adapts else (Phase("training", overlap=self.options.latest),)

    def depends_on_link(self) -> str | None:
        """What is sent, and how late it is stepped with."""
        if self.options.adapts:
            return "how much is sent and how late it is used follow from the link; give ratio and staleness as numbers"
        return None

    def as_searched(self) -> DecoSgdConfig:
        """With what training begins with: a search has no link to choose by."""
        first = self.options.first
        return DecoSgdConfig(ratio=first.ratio, staleness=first.staleness) if self.options.adapts else self.options

    def attach(self, context: Context) -> AbstractRunning:
        """Put the gradients into one flat buffer."""
        return RunningDecoSgd(context, self)

    def top_k(self, values: AbstractCodec, ratio: float) -> TopK:
        """Top-k whose values are written by the codec that was asked for, error feedback around it left out."""
        found = TopK(TopKConfig(ratio=ratio))
        found.inner = values.codec if isinstance(values, ErrorFeedback) else values
        return found


@dataclass(eq=False)
class Flight:
    """A gradient on its way, or arrived and not stepped with yet.

    Attributes:
        step: in which it was computed.
        mean: fp32 in host memory; the mean over all ranks once it is there.
        job: number of its exchange; None where it came from a checkpoint.
    """

    step: int
    mean: torch.Tensor
    job: int | None = None


@dataclass
class _Telling:
    """What a window has measured, on its way to all: ``said`` by every member, [members, 3], once its job is done."""

    due_step: int
    own: torch.Tensor
    said: torch.Tensor | None = None
    job: int = -1


class RunningDecoSgd(RunningLocally):
    """One rank of ``deco-sgd``.

    Gradients are encoded where training waits for them, in their order, and exchanged in threads, as many at a time as
    there are steps of staleness. In a user's loop gradients leave in the update, which is where they are unscaled and
    clipped by then.

    Attributes:
        setting: what is sent now, and how late; the same on all ranks.
        latency_s: what an exchange of next to nothing takes; None before it was measured.
    """

    _steps_key = "step"

    def __init__(self, context: Context, method: DecoSgd) -> None:
        super().__init__(context)
        self._options = options = method.options
        everything = assign([parameter.numel() for parameter in self._parameters], math.inf)
        self._gradients = GradientBuffers(self._parameters, everything)
        (self._flat,) = self._gradients.flat
        self.bucket_bytes = [self._flat.nbytes]
        self.setting = options.first
        self.latency_s: float | None = None
        shapes = [tuple(self._parameters[index].shape) for index in everything[0]]
        made = context.codec_of(shapes, 0)
        self._top_k = method.top_k(made, self.setting.ratio)
        self._codec = ErrorFeedback(self._top_k, made.how if isinstance(made, ErrorFeedback) else PLAIN)
        self._codec.prepare(shapes, context.members.place)
        self._codecs = [self._codec]
        self._room_bytes = room_bytes(self._top_k, self._flat.numel(), options.ratios)
        # A thread for each exchange that may be under way, and one that tells.
        num_threads = 0 if context.collective.takes_turns else options.latest + 2
        self._communicator = Communicator(context.collective.meter, num_threads, device_of(self._flat))
        self._flights: list[Flight] = []
        self._flown: deque[Flown] = deque()  # since the last window; threads append
        self._computed_s: list[float] = []  # in the same steps, waiting left out
        self._resumed_s: float | None = None  # when the wait before ended
        self._telling: _Telling | None = None
        self._late_report: ExchangeReport | None = None

    @property
    def averages_gradients(self) -> bool:
        """Always, if those of some steps ago."""
        return True

    def finish(self) -> ExchangeReport:
        """Send this step's gradient, wait for the one that is due, and put that in its place."""
        return super().finish() if self._late else self._exchange()

    def update(self) -> None:
        """The optimizer's step."""
        if self._late:
            self._late_report = self._exchange()
        super().update()
        self._num_steps += 1

    def after_update(self) -> ExchangeReport | None:
        """What was sent in the update."""
        report, self._late_report = self._late_report, None
        return report

    def agreement_step(self, step: int) -> int:
        """The step in which the gradients of ``step`` have been waited for at the latest."""
        return step + self._options.latest

    def rehearse(self, plain_backward_s: float) -> None:
        """Measure the latency, while nothing else is on its way."""
        self.drain()
        if not self._measures:
            return
        for _ in range(REHEARSALS):
            self._context.control.barrier()
            telling = _Telling(0, torch.zeros(TELL_BYTES // 8, dtype=torch.float64))
            self._communicator.wait([self._communicator.submit(partial(self._tell, telling))])

    def drain(self) -> int:
        """Wait until everything has arrived. It is stepped with when it is due, as if nobody had waited."""
        self._resumed_s = None
        return self._communicator.wait().payload_bytes

    def reset(self) -> None:
        """Nothing has been sent yet. What is known of the link's latency stays known."""
        self._forget()
        self._set(self._options.first)
        super().reset()

    def state_dict(self) -> State:
        """Steps, residual, what was chosen, and the means that are not stepped with yet."""
        state = super().state_dict() | {
            "setting": torch.tensor([self.setting.ratio, self.setting.staleness], dtype=torch.float64)
        }
        for flight in self._flights:
            state[f"flight.{flight.step}"] = flight.mean.clone()
        return state

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave; what was measured for the next choice is measured anew."""
        super().load_state_dict(state)
        self._forget()
        ratio, staleness = state["setting"].tolist()
        self._set(DecoSetting(ratio, int(staleness)))
        means = part(state, "flight.")
        self._flights = [Flight(step, means[str(step)].clone()) for step in sorted(map(int, means))]

    def close(self) -> None:
        """End the threads."""
        self._communicator.close()

    @property
    def _late(self) -> bool:
        return self._context.user_loop is not None

    @property
    def _measures(self) -> bool:
        return self._options.adapts and self._context.members.size > 1

    def _forget(self) -> None:
        self._flights, self._computed_s = [], []
        self._flown.clear()
        self._resumed_s = self._telling = self._late_report = None

    def _set(self, setting: DecoSetting) -> None:
        self.setting = setting
        self._top_k.options = self._top_k.options.model_copy(update={"ratio": setting.ratio})

    def _exchange(self) -> ExchangeReport:
        ready_s = emulated_time.monotonic()
        step = self._num_steps + 1
        for index in self._gradients.views:
            self._gradients.keep(index)
        self._leave(step)
        encoded_s = emulated_time.monotonic()
        if self._resumed_s is not None:
            self._computed_s.append(encoded_s - self._resumed_s)
        due = [flight for flight in self._flights if step - flight.step >= self.setting.staleness]
        told = self._telling if self._telling is not None and self._telling.due_step <= step else None
        jobs = [flight.job for flight in due if flight.job is not None]
        report = self._communicator.wait([*jobs, told.job] if told is not None else jobs)
        self._flights = [flight for flight in self._flights if flight not in due]
        with emulated_time.work_on_vectors():
            self._flat.zero_()
            for flight in due:
                self._flat.add_(moved_like(flight.mean, self._flat))
        chosen = None if told is None else self._choose(told)
        if self._measures and step % self._options.window == 0:
            self._begin_telling(step)
        self._resumed_s = emulated_time.monotonic()
        codec_s = report.codec_s + (encoded_s - ready_s if self._context.members.size > 1 else 0.0)
        return replace(report, ready_mono_s=ready_s, codec_s=codec_s, chosen=chosen)

    def _leave(self, step: int) -> None:
        """Encode this step's gradient and hand it over. Alone it stays as it is, and is late all the same."""
        gradient, flight = on_host(self._flat), Flight(step, torch.empty(0))
        if self._context.members.size == 1:
            flight.mean = gradient.clone()
        else:
            with self._context.collective.meter.codec():
                payload = self._codec.encode(gradient)
            flight.mean = torch.empty_like(gradient)
            flight.job = self._communicator.submit(partial(self._fly, flight, payload))
        self._flights.append(flight)

    def _fly(self, flight: Flight, payload: torch.Tensor) -> None:
        """One exchange. Those that may be under way together have tags of their own."""
        begun_s = emulated_time.monotonic()
        round_ = Round(flight.step % (self._options.latest + 1), self._context.members)
        self._context.collective.average(flight.mean, EncodedBefore(self._top_k, payload, self._room_bytes), round_)
        sent_bytes = (self._context.members.size - 1) * payload.numel()
        self._flown.append(Flown(begun_s, emulated_time.monotonic(), sent_bytes))

    def _begin_telling(self, step: int) -> None:
        """Tell all what this window was like. It is listened to as late as a gradient of this step is used."""
        flown = [self._flown.popleft() for _ in range(len(self._flown))]  # what is appended meanwhile stays
        computed_s, self._computed_s = self._computed_s, []
        known_s = self.latency_s  # by this very telling at the earliest where nobody has rehearsed
        rate = rate_bps(flown, 0.0 if known_s is None else known_s)
        compute_s = statistics.median(computed_s) if computed_s else 0.0
        numbers = torch.tensor([rate, UNKNOWN_S if known_s is None else known_s, compute_s], dtype=torch.float64)
        self._telling = _Telling(step + max(1, self.setting.staleness), numbers)
        self._telling.job = self._communicator.submit(partial(self._tell, self._telling))

    def _tell(self, telling: _Telling) -> None:
        begun_s = emulated_time.monotonic()
        members, collective = self._context.members, self._context.collective
        collective.meter.sent((members.size - 1) * TELL_BYTES)
        telling.said = tell_all(collective.transport.group, members, telling.own, TELL_TAG).wait()
        took_s = emulated_time.monotonic() - begun_s
        # Behind what is on its way a message takes longer: the shortest is the latency. One that has grown since then
        # makes exchanges longer, and the link is taken for a slower one.
        self.latency_s = took_s if self.latency_s is None else min(self.latency_s, took_s)

    def _choose(self, told: _Telling) -> Chosen | None:
        assert told.said is not None
        self._telling = None
        measured = slowest([WindowMeasured(*numbers) for numbers in told.said.tolist()])
        if measured is None:
            return None
        chosen = choose(self._options, measured, self.setting, self._bytes_at)
        self._set(DecoSetting(chosen.ratio, chosen.staleness))
        return chosen

    def _bytes_at(self, ratio: float) -> int:
        """What a rank sends in an exchange."""
        entries = entries_at(ratio, self._flat.numel())
        return (self._context.members.size - 1) * sparse_bytes(self._top_k, entries, self._flat.numel())


class EncodedBefore(AbstractCodec):
    """Hands over a payload that is there already, and decodes as the codec that made it: safe for several threads."""

    sums_on_ring = False

    def __init__(self, codec: TopK, payload: torch.Tensor, room_bytes: int) -> None:
        super().__init__(codec.options)
        self._codec, self._payload, self._room_bytes = codec, payload, room_bytes

    def payload_bytes(self, num_elements: int) -> int:
        """Of this payload."""
        return self._payload.numel()

    def max_payload_bytes(self, num_elements: int) -> int:
        """Of those that others may send."""
        return self._room_bytes

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The payload, whatever ``x`` is."""
        return self._payload

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """As the codec does."""
        return self._codec.decode(payload, num_elements)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """As the codec does."""
        self._codec.decode_add(payload, total)


def sparse_bytes(top_k: TopK, entries: int, num_elements: int) -> int:
    """No payload of so many entries is larger, and dense it is not larger than that of all. Pure."""
    values = top_k.value_codec.max_payload_bytes(entries) + most_index_bytes(entries, num_elements)
    return min(top_k.payload_bytes(0) + values, top_k.max_payload_bytes(num_elements))


def room_bytes(top_k: TopK, num_elements: int, ratios: Iterable[float]) -> int:
    """Room for a payload at any of these ratios. Pure."""
    return max(sparse_bytes(top_k, entries_at(ratio, num_elements), num_elements) for ratio in ratios)
