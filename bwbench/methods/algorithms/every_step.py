"""Average the gradients in every optimizer step: synchronous data parallelism, and the size of its buckets.

Small buckets leave early in the backward pass and pay the latency of a whole exchange each; large ones pay it once and
leave late. Which is better depends on the link and on how long a backward pass takes, both of which are known once the
warm-up has measured one: the exchange of every bucket is then played through, for several sizes. Bagua tunes the size
by trying (Gan et al. 2021); on a slow link a trial would take minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.units import MemoryOrAuto
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, AbstractRunning, Context, assign, bucket_payloads
from bwbench.methods.algorithms.buckets import BucketExchange
from bwbench.methods.algorithms.communicator import NUM_THREADS
from bwbench.methods.algorithms.ddp_exchange import DdpExchange, hook_payloads
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import MakeCodec, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.memory import State
from bwbench.methods.traffic import Traffic, transfer_time_s, waiting_time_s
from bwbench.network.link import Link

CANDIDATES_BYTES = tuple(64 * 1024 * 4**power for power in range(7))  # 64 kB to 256 MB
SOFTWARE_S = 1e-3  # of one exchange, beside what the link takes: threads, messages, codec calls
_BUCKET = "bucket_bytes"  # key in the state dict


class EveryStepConfig(ComponentConfig):
    """Options of ``every-step``.

    Attributes:
        bucket_bytes: size of a bucket of gradients, as fp32. None takes torch's own sizes: 1 MiB for the first, 25 MiB
            for the others. Small buckets begin to be sent earlier in the backward pass; each one costs the latency of
            a whole exchange. ``auto`` chooses by the link and by the backward pass that the warm-up has measured, the
            same size on all nodes; torch's own sizes where no link is known, and inside torch's DDP.
    """

    bucket_bytes: MemoryOrAuto | None = Field(None, alias="bucket")


class EveryStep(AbstractAlgorithm):
    """All replicas take the same step, with the mean of all gradients.

    Buckets are exchanged while the backward pass is still running. With micro-steps (``accumulate``) the gradients of
    all of them are added up first and exchanged once.
    """

    Config = EveryStepConfig
    mean_of = "gradients"
    steps_alike = True
    virtual = True
    tells_rate = True
    copies = 2.0  # torch's DDP: gradients, and the buckets that they are copied to
    options: EveryStepConfig

    @property
    def bucket_bytes(self) -> float | None:
        """None for ``auto`` too, which begins with torch's own."""
        return None if self.options.bucket_bytes == "auto" else self.options.bucket_bytes

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One exchange of every bucket."""
        if collective.wraps_model:
            payloads = hook_payloads(parameter_shapes, self.bucket_bytes, make_codec())
        else:
            payloads = bucket_payloads(parameter_shapes, self.bucket_bytes, make_codec)
        return collective.traffic(num_nodes, payloads)

    def takes_gradients_as_sent(self, collective: AbstractCollective) -> bool:
        """With all collectives but torch's own, which copies gradients itself."""
        return not collective.wraps_model

    def depends_on_link(self) -> str | None:
        """Buckets that are chosen by the link: codecs work on buckets."""
        if self.options.bucket_bytes == "auto":
            return "bucket: auto cuts the gradients by the link's speed; give a size"
        return None

    def attach(self, context: Context) -> AbstractRunning:
        """Wrap the model (torch's DDP) or hook into its gradients (all others)."""
        size = self.bucket_bytes
        if context.collective.wraps_model:
            return DdpExchange(context, size)
        return TunedExchange(context) if self.options.bucket_bytes == "auto" else BucketExchange(context, size)


class TunedExchange(BucketExchange):
    """``bucket: auto``: begins with torch's own sizes, and chooses when it is told what a backward pass takes."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, None)
        self._chosen_bytes: float | None = None

    def rehearse(self, plain_backward_s: float) -> None:
        """Choose the size of the buckets, the same on all nodes, and make them anew; nothing where no link is known."""
        link = self._context.collective.link
        if link is None or not link.shaped:
            return
        mean_s = torch.tensor([plain_backward_s])
        self._context.control.average(mean_s)  # so that all choose alike
        elements = [parameter.numel() for parameter in self.buffers.parameters]
        shrink = self._context.shrink
        self._choose(best_bucket_bytes(elements, float(mean_s), link, self._traffic_of_bucket, shrink))

    def state_dict(self) -> State:
        """The residuals, and the size of the buckets that they belong to where it was chosen."""
        chosen = {} if self._chosen_bytes is None else {_BUCKET: torch.tensor(self._chosen_bytes, dtype=torch.float64)}
        return super().state_dict() | chosen

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave; another size that was measured since then is given up."""
        if _BUCKET in state:
            self._choose(float(state[_BUCKET]))
        super().load_state_dict(state)

    def _choose(self, bucket_bytes: float) -> None:
        self.close()
        self._lay_out(bucket_bytes)
        self._chosen_bytes = bucket_bytes

    def _traffic_of_bucket(self, elements: int) -> Traffic:
        codec, collective = self._context.make_codec(), self._context.collective
        codec.prepare([(elements,)])
        return collective.traffic(self._context.members.size, codec.payloads(elements))


def best_bucket_bytes(
    parameter_elements: Sequence[int],
    backward_s: float,
    link: Link,
    traffic_of_bucket: Callable[[int], Traffic],
    shrink: float = 1.0,
) -> int:
    """The candidate with which the last bucket is averaged first; the largest of equals. Pure.

    Args:
        parameter_elements: elements of each parameter, in the model's order.
        backward_s: a backward pass without communication.
        link: the shaped link that the buckets cross; of one in slow motion the one that was asked, whose time that is.
        traffic_of_bucket: what the exchange of a bucket of so many elements moves.
        shrink: parameters and the link's rates have been divided by it; candidates are of the whole model.
    """
    ends = {
        size: end_of_exchange_s(parameter_elements, size, backward_s, link.asked, traffic_of_bucket, shrink)
        for size in CANDIDATES_BYTES
    }
    shortest_s = min(ends.values())
    best: int = max(size for size, end_s in ends.items() if math.isclose(end_s, shortest_s, rel_tol=1e-3))
    return best


def end_of_exchange_s(
    parameter_elements: Sequence[int],
    bucket_bytes: float,
    backward_s: float,
    link: Link,
    traffic_of_bucket: Callable[[int], Traffic],
    shrink: float = 1.0,
) -> float:
    """Seconds from the begin of the backward pass to the last average, in buckets of ``bucket_bytes`` / ``shrink``.

    Gradients are taken to appear at an even pace, last parameter first. Buckets share the link one after the other;
    the latencies of as many as there are threads overlap.
    """
    assigned = assign(parameter_elements, bucket_bytes, shrink)
    buckets = [sum(parameter_elements[i] for i in bucket) for bucket in assigned]
    total, ready, now_s = max(1, sum(buckets)), 0, 0.0
    lanes = min(NUM_THREADS, len(buckets)) or 1
    for elements in buckets:
        ready += elements
        traffic = traffic_of_bucket(elements)
        latency_s = waiting_time_s(link, traffic)
        sending_s = transfer_time_s(link, traffic) - latency_s
        now_s = max(now_s, backward_s * ready / total) + sending_s + (latency_s + SOFTWARE_S) / lanes
    return now_s
