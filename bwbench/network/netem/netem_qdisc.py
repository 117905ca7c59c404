"""One netem qdisc as a value: what the kernel can be told, in its own units, and in the words of ``tc``. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from bwbench.base.plain_data import JsonObject
from bwbench.network.link.chance import Distribution, GilbertElliott

MAX_LIMIT_PACKETS = 2**32 - 1
# The kernel draws a delay from a deviation of 32 bits, in nanoseconds, and cuts a longer one (tabledist, sch_netem.c).
MAX_JITTER_S = 2.147


@dataclass(frozen=True)
class NetemQdisc:
    """One netem qdisc. All fields are sent every time: one left out would keep its old value.

    Attributes:
        limit_packets: how many packets it holds, of whatever size; one more is dropped.
        rate_bytes_per_s: serialisation of whole Ethernet frames; 0 is no rate. With a rate no packet overtakes another.
        delay_us: mean delay of a packet.
        jitter_us: standard deviation of the delay; never below a delay of 0.
        distribution: of the delay.
        loss: probability with which a packet is dropped on arrival, independently of the others.
        burst: instead of ``loss``: the chain that drops packets on arrival.
        seed: of its random numbers; None lets the kernel choose (as kernels before 6.6 always do).
    """

    limit_packets: int
    rate_bytes_per_s: int = 0
    delay_us: int = 0
    jitter_us: int = 0
    distribution: Distribution = "normal"
    loss: float = 0.0
    burst: GilbertElliott | None = None
    seed: int | None = None

    @property
    def is_random(self) -> bool:
        """Whether chance has a part in what it does."""
        return bool(self.jitter_us or self.loss or self.burst)

    @property
    def mean_loss(self) -> float:
        """Share of the packets that it drops by chance."""
        return self.burst.mean_loss if self.burst else self.loss

    def to_json(self) -> JsonObject:
        """The fields by name, without a chain or a seed where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def words(self) -> tuple[Any, ...]:
        """What the kernel is told, as it is rounded there, for comparison.

        Without the distribution, which the kernel tells nobody, and the seed, which older ones do not take.
        """
        chain = self.burst
        burst = chain and (chain.good_to_bad, chain.bad_to_good, 1 - chain.loss_in_bad, chain.loss_in_good)
        return (
            self.limit_packets,
            self.rate_bytes_per_s,
            self.delay_us,
            self.jitter_us,
            as_u32(self.loss),
            burst and tuple(map(as_u32, burst)),
        )


def as_u32(probability: float) -> int:
    """A probability as netem has it: a share of 2^32 - 1."""
    return round(probability * (2**32 - 1))


def netem_arguments(qdisc: NetemQdisc) -> str:
    """What follows the word ``netem`` on tc's command line."""
    words = [f"limit {qdisc.limit_packets}"]
    if qdisc.jitter_us:
        words.append(_delay(qdisc))
    elif qdisc.delay_us:
        words.append(f"delay {qdisc.delay_us}us")
    if qdisc.burst:
        chain = qdisc.burst
        steps = (chain.good_to_bad, chain.bad_to_good, chain.loss_in_bad, chain.loss_in_good)
        words.append("loss gemodel " + " ".join(map(_percent, steps)))  # p r 1-h 1-k
    elif qdisc.loss:
        words.append(f"loss random {_percent(qdisc.loss)}")
    if qdisc.rate_bytes_per_s:
        words.append(f"rate {8 * qdisc.rate_bytes_per_s}bit")
    return " ".join(words)


def _delay(qdisc: NetemQdisc) -> str:
    if qdisc.distribution == "uniform":  # without a table the kernel draws from delay - jitter to delay + jitter
        return f"delay {qdisc.delay_us}us {round(qdisc.jitter_us * math.sqrt(3))}us"
    # tc takes a distribution only together with a delay: a microsecond stands for none.
    return f"delay {qdisc.delay_us or 1}us {qdisc.jitter_us}us distribution {qdisc.distribution}"


def _percent(probability: float) -> str:
    return f"{100 * probability:.10g}%"
