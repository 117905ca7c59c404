"""Student's t for any degrees of freedom, whole or not: Welch's are not. No scipy: bwbench does without.

Through the regularized incomplete beta function, by its continued fraction (Numerical Recipes, 6.4; DLMF 8.17.22).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

CONFIDENCE = 0.95
_NORMAL_FROM = 1e7  # degrees of freedom from which t is the normal distribution to seven digits
_TINY = 1e-300


@lru_cache(maxsize=65536)
def student_t(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half-width of the two-sided interval in standard errors: 4.303 for 2 degrees of freedom at 95 %.

    Args:
        freedom: degrees of freedom, above 0; infinity gives the normal distribution.
        confidence: between 0 and 1. A one-sided limit at 95 % is the two-sided one at 90 %.
    """
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    if freedom > _NORMAL_FROM:
        return normal
    low, high = normal, math.inf  # tails are never lighter than the normal ones
    guess = normal * (1 + (normal**2 + 1) / (4 * freedom))  # Abramowitz & Stegun 26.7.5, the first term
    for _ in range(200):  # Newton's steps on the logarithm, where tails are straight; halving outside of the bracket
        excess = within(guess, freedom) - confidence
        low, high = (low, guess) if excess > 0 else (guess, high)
        step = guess * math.exp(min(2.0, -excess / (2 * _density(guess, freedom) * guess)))
        following = step if low < step < high else 2 * guess if math.isinf(high) else (low + high) / 2
        if abs(following - guess) <= 1e-11 * guess:
            return following
        guess = following
    return guess


def within(t: float, freedom: float) -> float:
    """P(\\|T\\| <= t) with ``freedom`` degrees of freedom."""
    if freedom > _NORMAL_FROM:
        return math.erf(t / math.sqrt(2))
    square = t * t
    if square < freedom:  # each side where its fraction converges, and where no digits cancel
        return _beta_share(square / (freedom + square), 0.5, freedom / 2)
    return 1 - _beta_share(freedom / (freedom + square), freedom / 2, 0.5)


def _density(t: float, freedom: float) -> float:
    logarithm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(logarithm - (freedom + 1) / 2 * math.log1p(t * t / freedom))


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(logarithm) * _fraction(x, a, b) / a
    return 1 - math.exp(logarithm) * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _apart_from_0(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _apart_from_0(1 + term * d)
            c = _apart_from_0(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return found


def _apart_from_0(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def together(count: int, confidence: float = CONFIDENCE) -> float:
    """Confidence of each of ``count`` intervals that makes all of them hold at once with ``confidence`` (Bonferroni).

    No assumption on what they have in common: arms that are compared with the same baseline share its error.
    """
    return 1 - (1 - confidence) / max(1, count)
