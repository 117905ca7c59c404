"""What a step takes beyond computing and sending as predicted, fitted to few measurements. Pure.

A step is taken to last ``base + extra + factor * sending``. Extra is software between both, or overlap where it is
negative; the factor is what the link's model leaves out, such as retransmissions. Both start from what is believed
without any measurement and move as far as measurements speak for it: one finished cell on a slow link says much about
the factor and little about the extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOISE = 0.03  # of a measured step, as a share
EXTRA_SD = 0.5  # of the computing: of a small model, software between takes about as long
FACTOR_SD = 0.3
LEAST_SHARE = 0.2  # of the prediction without corrections: a step never gets shorter than that


@dataclass(frozen=True)
class Fit:
    """What is believed of a method's steps.

    Attributes:
        extra: seconds of a step in units of its computing.
        factor: times the sending as predicted.
    """

    extra: float = 0.0
    factor: float = 1.0

    def step_s(self, base_s: float, sending_s: float) -> float:
        """A step, or many together, for which ``base_s`` of computing and ``sending_s`` of sending are predicted."""
        return max(LEAST_SHARE * (base_s + sending_s), (1 + self.extra) * base_s + self.factor * sending_s)


@dataclass(frozen=True)
class Measured:
    """Seconds of a step, or of many together: computing and sending as predicted, and what they really took."""

    base_s: float
    sending_s: float
    step_s: float


def fitted(measured: Sequence[Measured], before: Fit) -> Fit:
    """The belief after ``measured``: least squares on the relative error, held back by the belief before.

    That is the mean of the posterior of a Bayesian linear regression with Gaussian noise and prior.
    """
    xx, xy, yy = EXTRA_SD**-2, 0.0, FACTOR_SD**-2
    right_x = right_y = 0.0
    for one in measured:
        x, y = one.base_s / one.step_s / NOISE, one.sending_s / one.step_s / NOISE
        missing = 1 / NOISE - (1 + before.extra) * x - before.factor * y
        xx, xy, yy = xx + x * x, xy + x * y, yy + y * y
        right_x, right_y = right_x + x * missing, right_y + y * missing
    determinant = xx * yy - xy * xy
    extra = (right_x * yy - right_y * xy) / determinant
    factor = (right_y * xx - right_x * xy) / determinant
    return Fit(before.extra + extra, before.factor + factor)
