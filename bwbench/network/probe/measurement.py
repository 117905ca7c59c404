"""What the probe found, beside what was asked; and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from bwbench.base.plain_data import JsonObject
from bwbench.network.link import Link

RTT_SLACK_S = 1e-3  # what a busy machine adds to a round trip at most; below 20 ms this is more than 5 %
LOSS_SLACK = 2e-3  # a frame or two lost by the machine and not by the link
LOSS_Z = 3.5  # of the interval around the measured loss: one false alarm in 2000 pairs
Verdict = Literal["ok", "out-of-tolerance"]


@dataclass(frozen=True)
class PairMeasurement:
    """One neighbour pair. ``asked_*`` is None where nothing was asked, ``achieved_*`` where nothing came through.

    Attributes:
        asked_bps: the slower rate of Ethernet frames on the way, or the PHY rate of the sender on a shared air.
        asked_goodput_bps: UDP payload per second that this leaves to the pair while all nodes send.
        asked_rtt_s: both latencies and the serialisation of the probe's own frames.
        loss_frames: frames on which ``achieved_loss`` rests.
        rate_frames: frames on which ``achieved_goodput_bps`` rests.
        asked_jitter_s: standard deviation of the one-way delay.
        asked_burst: mean number of frames lost in a row; chance varies more with bursts than with single frames.
    """

    src: int
    dst: int
    asked_bps: float | None = None
    asked_goodput_bps: float | None = None
    achieved_goodput_bps: float = 0.0
    asked_rtt_s: float | None = None
    achieved_rtt_s: float | None = None
    asked_loss: float = 0.0
    achieved_loss: float | None = None
    loss_frames: int = 0
    rate_frames: int = 0
    asked_jitter_s: float = 0.0
    asked_burst: float = 1.0

    @property
    def goodput_error(self) -> float | None:
        """Relative error of the goodput."""
        return self.achieved_goodput_bps / self.asked_goodput_bps - 1 if self.asked_goodput_bps else None

    @property
    def rtt_error_s(self) -> float | None:
        """Error of the round-trip time."""
        if self.asked_rtt_s is None or self.achieved_rtt_s is None:
            return None
        return self.achieved_rtt_s - self.asked_rtt_s


@dataclass(frozen=True)
class LinkMeasurement:
    """All pairs with the verdict.

    Attributes:
        reasons: a line for each thing out of tolerance.
        alone: on a shared air, the goodput of one pair alone, (asked, achieved) in bit/s.
    """

    backend: str
    pairs: tuple[PairMeasurement, ...]
    verdict: Verdict
    reasons: tuple[str, ...]
    tolerance: float
    alone: tuple[float, float] | None = None

    def to_json(self) -> JsonObject:
        """As ``bwbench link verify --json`` prints it."""
        return {
            "backend": self.backend,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "tolerance": self.tolerance,
            "pairs": [asdict(pair) for pair in self.pairs],
            "alone_asked_goodput_bps": self.alone[0] if self.alone else None,
            "alone_achieved_goodput_bps": self.alone[1] if self.alone else None,
        }


def judge(
    backend: str,
    link: Link,
    pairs: Sequence[PairMeasurement],
    tolerance: float,
    alone: tuple[float, float] | None = None,
) -> LinkMeasurement:
    """Compare what was achieved with what was asked; an unshaped link is always ok.

    Args:
        tolerance: relative, of the goodput and of the round-trip time. The latter is allowed ``RTT_SLACK_S`` in any
            case, and the jitter that was asked for; the former what chance makes of the loss that was asked for. Loss
        must lie within the binomial interval of the measured one.
    """
    reasons = [reason for pair in pairs for reason in _reasons(pair, tolerance)] if link.shaped else []
    if alone is not None and abs(alone[1] / alone[0] - 1) > tolerance:
        reasons.append(
            f"one pair alone: goodput is {alone[1] / 1e6:.3f} Mbit/s instead of {alone[0] / 1e6:.3f} Mbit/s "
            f"({alone[1] / alone[0] - 1:+.1%}, allowed {tolerance:.1%})"
        )
    verdict: Verdict = "out-of-tolerance" if reasons else "ok"
    return LinkMeasurement(backend, tuple(pairs), verdict, tuple(reasons), tolerance, alone)


def _reasons(pair: PairMeasurement, tolerance: float) -> list[str]:
    reasons = []
    who = f"node {pair.src} to node {pair.dst}"
    asked_s, error = pair.asked_rtt_s or 0.0, pair.goodput_error
    allowed_s = max(tolerance * asked_s, RTT_SLACK_S) + pair.asked_jitter_s
    dependence = 2 * pair.asked_burst - 1  # so many frames say as much as one that is lost by itself
    if pair.asked_loss and pair.rate_frames:
        tolerance += LOSS_Z * math.sqrt(pair.asked_loss / (1 - pair.asked_loss) * dependence / pair.rate_frames)
    if error is not None and abs(error) > tolerance:
        reasons.append(
            f"{who}: goodput is {pair.achieved_goodput_bps / 1e6:.3f} Mbit/s instead of "
            f"{(pair.asked_goodput_bps or 0) / 1e6:.3f} Mbit/s ({error:+.1%}, allowed {tolerance:.1%})"
        )
    if pair.achieved_rtt_s is None:
        reasons.append(f"{who}: no answer to any ping")
    elif abs(pair.achieved_rtt_s - asked_s) > allowed_s:
        reasons.append(
            f"{who}: round trip is {pair.achieved_rtt_s * 1e3:.2f} ms instead of {asked_s * 1e3:.2f} ms "
            f"(allowed {allowed_s * 1e3:.2f} ms more or less)"
        )
    if pair.achieved_loss is not None:
        low, high = loss_interval(pair.achieved_loss, pair.loss_frames / dependence)
        if not low - LOSS_SLACK <= pair.asked_loss <= high + LOSS_SLACK:
            reasons.append(
                f"{who}: loss is {pair.achieved_loss:.2%} of {pair.loss_frames} frames instead of {pair.asked_loss:.2%}"
            )
    return reasons


def loss_interval(share: float, trials: float, z: float = LOSS_Z) -> tuple[float, float]:
    """Wilson's interval for a probability of which ``share`` was seen in ``trials``."""
    if trials == 0:
        return 0.0, 1.0
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
