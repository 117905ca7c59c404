"""A claim's value in words: the number alone, and with its interval and n.

And what has to be said where the number does not support the claim.
"""

from __future__ import annotations

import math

from bwbench.base.units import MEMORY
from bwbench.results.figures.captions import seconds
from bwbench.results.text import Number, Phrase, bandwidth, fixed, percent, phrase, plain, significant, span
from paper.program.claim import COMPARISONS, Claim, Value

_POINTS = 100.0
_BYTE_DIGITS = 3
_CROSSOVER_DIGITS = 2  # of bandwidths and of S/(B·T), as number_text writes them
_SIDES = {"above 1": 1, "positive": 1, "faster below": 1, "below 1": -1, "negative": -1, "faster above": -1}
_OPPOSITE = {
    "above 1": "below 1",
    "below 1": "above 1",
    "positive": "negative",
    "negative": "positive",
    "faster below": "faster above",
    "faster above": "faster below",
}


def number_text(value: Value, number: float) -> str:
    """A number of the value's unit, as people read it."""
    match value.unit:
        case "ratio":
            return significant(number, apart_from=1.0)
        case "points":
            return f"{fixed(_POINTS * number, 2, apart_from=0.0)} percentage points"
        case "share":
            return percent(number, 3)
        case "s":
            return seconds(number)
        case "bit/s":
            return bandwidth(number)
        case "bytes":
            return MEMORY.show(number, _BYTE_DIGITS)
        case "samples":
            return f"{float(f'{number:.3g}'):.0f}"
        case "h":
            return f"{significant(number, 2)} h"
        case "scale":
            return significant(number, 2)
    return f"{number:.0f}" if number.is_integer() else significant(number)


def bare_text(claim: Claim, value: Value) -> Phrase:
    """The number alone."""
    if value.value is None:
        return (
            phrase(Number(claim.name, value.words))
            if value.unit == "words"
            else phrase(value.words or "an unknown bandwidth")
        )
    bound = f"{value.bound} " if value.bound else ""
    return phrase(Number(claim.name, f"{bound}{number_text(value, value.value)}"))


def full_text(claim: Claim, value: Value) -> Phrase:
    """The number with interval, n, and a mark where it is composed."""
    return phrase(bare_text(claim, value), " ", basis_text(claim, value))


def basis_text(claim: Claim, value: Value) -> Phrase:
    """In brackets: interval and n; what they rest on."""
    parts: list[Phrase] = []
    if value.has_interval:
        parts.append(phrase("95 % interval ", ends_text(claim, value)))
    elif value.bound:
        parts.append(phrase("bound"))
    elif claim.kind in ("ratio", "difference", "crossover", "shift", "closed form", "fastest", "value"):
        parts.append(phrase("no interval"))
    parts.append(phrase("n = ", Number(f"{claim.name} n", str(value.num))))
    if value.num_censored:
        parts.append(phrase(Number(f"{claim.name} censored", str(value.num_censored)), " not reached"))
    if value.composed:
        parts.append(phrase("composed"))
    if value.first_crossing:
        parts.append(phrase("first crossings"))
    text: Phrase = phrase("(")
    for index, part in enumerate(parts):
        text = phrase(text, ", " if index else "", part)
    return phrase(text, ")")


def ends_text(claim: Claim, value: Value) -> Phrase:
    """The interval alone: ``1.50 to 2.50``; open on one side: ``above 1.50``."""
    low = None if value.low is None else end_text(value, value.low, down=True)
    high = None if value.high is None else end_text(value, value.high, down=False)
    if low is not None and high is not None:
        first, second = span(low, high).split(" to ", 1)
        return phrase(Number(f"{claim.name} low", first), " to ", Number(f"{claim.name} high", second))
    if low is not None:
        return phrase("above ", Number(f"{claim.name} low", low))
    return phrase("below ", Number(f"{claim.name} high", high or ""))


def end_text(value: Value, end: float, *, down: bool) -> str:
    """An end of an interval as a number; of a crossover rounded outwards: apart below 286 is apart below 280."""
    if value.unit in ("bit/s", "scale") and end > 0.0:
        unit = 10.0 ** (math.floor(math.log10(end)) + 1 - _CROSSOVER_DIGITS)
        steps = round(end / unit, 6)  # 13 is 13.000000000000002 of its units
        end = unit * (math.floor(steps) if down else math.ceil(steps))
    return number_text(value, end)


def judge(claim: Claim, value: Value) -> str | None:
    """What is wrong, as a message that says what to do; None where the number supports the claim."""
    if claim.kind not in COMPARISONS:
        return None
    found = f"claim {claim.name!r} ({about(claim)}) is now {plain(full_text(claim, value))}"
    if not claim.distinguishable:
        if value.side == 0:
            return None
        return (
            f"{found}: that can be told from no difference, but it says `distinguishable: false`; rewrite what is said"
        )
    wanted = _SIDES.get(claim.expect)
    if wanted is None or value.side == wanted:
        return None
    if value.side == 0:
        return (
            f"{found}: the interval does not support `expect: {claim.expect}`; say that they cannot be told apart and "
            "declare `distinguishable: false`, or add repeats"
        )
    return (
        f"{found}: its direction has changed from `expect: {claim.expect}`; rewrite what is said of it, then declare "
        f"`expect: {_OPPOSITE[claim.expect]}`"
    )


def about(claim: Claim) -> str:
    """A claim in half a sentence: ``ratio, ring-fp16 over ddp, link.bandwidth 10 Mbit/s, bandwidth-cnn``."""
    arms = f"{claim.arm} over {claim.over}" if claim.over else claim.arm
    settings = [f"{key} {value}" for key, value in claim.where.items()]
    other = [f"over {key} {value}" for key, value in claim.over_where.items()]
    return ", ".join(part for part in (claim.kind, arms, *settings, *other, claim.experiment) if part)
