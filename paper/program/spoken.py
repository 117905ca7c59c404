"""A comparison as a sentence that can be read aloud: a predicate for the arm, with one number at most.

Its interval, n and record stand in the table of evidence (``evidence.py``), under the mark behind the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from bwbench.results.analysis.statistics import ONE_REPEAT
from bwbench.results.text import Number, Phrase, phrase
from paper.program.claim import RATE, Claim, Value
from paper.program.claim_words import bare_text, end_text, ends_text, number_text

_MOST_NAMED = 4  # arms in a sentence; the table names all
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
MARGIN, MARGIN_TEXT = 1.1, "10 %"  # a ratio whose interval lies within it is one of equals
_ALIKE = {
    "step time": "makes steps as fast as",
    "samples": "needs as many samples as",
    "wire bytes": "needs as many bytes as",
    "wire bytes per step": "needs as many bytes in a step as",
    RATE: "makes as many samples a second as",
}
_JUST = 1.025  # a ratio whose nearer end is below that
_VAGUE = 2.5  # a crossover whose ends differ by more is a range
_NEEDED = {"samples": "samples", "wire bytes": "bytes", "wire bytes per step": "bytes in a step"}


def spoken_text(claim: Claim, value: Value) -> Phrase:
    """What follows from the number, whichever way it has come out.

    ``is 1.85 times as fast as ddp``, ``takes 1.5 times as long as ddp``, ``cannot be told from ddp in time to target``.
    """
    said = _predicate(claim, value)
    return phrase(said, ", if only just") if _is_close(claim, value) else said


def spoken_with_interval(claim: Claim, value: Value) -> Phrase:
    """The same with its interval in brackets, where the sentence has not said it and one number is meant."""
    said, (_, told) = spoken_text(claim, value), as_said(claim, value)
    if (claim.kind in ("fastest", "difference") and value.side == 0) or claim.kind in ("crossover", "shift"):
        return said  # the number is that of two of them, or the ends stand in the sentence
    return phrase(said, " (", ends_text(claim, told), ")") if told.has_interval else said


def _predicate(claim: Claim, value: Value) -> Phrase:
    over = reference_name(claim)
    if claim.kind == "crossover":
        return _crossover(claim, value, over)
    if claim.kind == "shift":
        return _shift(claim, value)
    if claim.kind == "fastest":
        return _fastest(claim, value)
    if value.side == 0 and _is_alike(claim, value):
        return phrase(
            f"{_ALIKE.get(claim.of, 'is as fast as')} {over} to within ", Number(f"{claim.name} margin", MARGIN_TEXT)
        )
    if value.side == 0 and value.bound and not value.has_interval:
        return phrase(_one_sided(value, over))
    if value.side == 0:
        untold = phrase(_untold(value, over), f" in {_quantity(claim)}")
        if claim.kind != "difference" or not value.has_interval:
            return untold
        return phrase(untold, " (", ends_text(claim, value), ")")  # how much may be lost is what is asked of accuracy
    if claim.kind == "difference":
        return _difference(claim, value, over)
    amount = _amount(*as_said(claim, value))
    if claim.of == RATE:
        return phrase("makes ", amount, f" times as many samples a second as {over}")
    if claim.of == "time":
        words = ("is ", "times as fast as") if value.side > 0 else ("takes ", "times as long as")
    elif claim.of == "step time":
        words = ("makes steps ", "times as fast as") if value.side > 0 else ("needs ", "times as long for a step as")
    else:
        what = _NEEDED.get(claim.of, claim.of)
        if value.side > 0:
            return phrase(f"needs fewer {what} than {over}, by a factor of ", amount)
        words = ("needs ", f"times the {what} of")
    return phrase(words[0], amount, f" {words[1]} {over}")


def name_of(arm: str, experiment: str, names: Mapping[str, str]) -> str:
    """What a sentence calls an arm: the name that it has in an experiment (``EXPERIMENT/ARM``), or anywhere."""
    return names.get(f"{experiment}/{arm}", names.get(arm, arm))


def with_names(claim: Claim, value: Value, names: Mapping[str, str]) -> tuple[Claim, Value]:
    """Both with the arms that a sentence would name called by these names."""
    said = claim.model_copy(update={"over": name_of(claim.over, claim.experiment, names)})
    if claim.kind != "fastest":
        return said, value
    words = (name_of(arm, claim.experiment, names) for arm in value.words.split("|"))
    return said, replace(value, words="|".join(words))


def as_said(claim: Claim, value: Value) -> tuple[str, Value]:
    """The key of the number and the value, turned over where a sentence says "as long" in place of "as fast"."""
    if claim.kind != "ratio" or value.side >= 0 or value.value is None or claim.of == RATE:
        return claim.name, value
    low, high = (None if end is None else 1 / end for end in (value.high, value.low))
    bound = {">": "<", "<": ">"}.get(value.bound, "")
    return f"{claim.name} inverse", replace(value, value=1 / value.value, low=low, high=high, bound=bound)


def reference_name(claim: Claim) -> str:
    """What a sentence calls the reference."""
    return claim.against or claim.over or "the other setting"


def named(names: list[str]) -> str:
    """``a, b and c``; more than a sentence holds are counted: ``seven other arms``."""
    if len(names) > _MOST_NAMED:
        return f"{_COUNTS[len(names)] if len(names) < len(_COUNTS) else len(names)} other arms"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _amount(key: str, value: Value) -> Phrase:
    words = {">": "at least ", "<": "at most "}.get(value.bound, "")
    return phrase(words, Number(key, number_text(value, value.value or 0.0)))


def _quantity(claim: Claim) -> str:
    if claim.kind == "difference":
        return "its final metric"
    needed = {what: f"the {words} it needs" for what, words in _NEEDED.items()}
    return {"time": "time to target", "step time": "the time of a step", **needed}.get(claim.of, claim.of)


def _is_alike(claim: Claim, value: Value) -> bool:
    """Whether all that the interval of a ratio holds is next to "no difference"."""
    known = claim.kind == "ratio" and value.num > 1 and value.low is not None and value.high is not None
    assumed = value.num_timed == 1  # an interval that nothing was measured for
    return known and not assumed and MARGIN * (value.low or 0.0) >= 1.0 and (value.high or math.inf) <= MARGIN


def _is_close(claim: Claim, value: Value) -> bool:
    """Whether the interval of a ratio just leaves out "no difference": of so many that are read one by one, some do."""
    nearest = {1: value.low, -1: value.high and 1 / value.high}.get(value.side)
    has_width = value.low != value.high  # bytes hardly have
    return claim.kind == "ratio" and has_width and nearest is not None and nearest < _JUST


def _one_sided(value: Value, over: str) -> str:
    """Of one of two arms too few repeats arrive for an estimate, which is not the same as that they are alike."""
    late = "too few of whose repeats arrive" if value.bound == ">" else "since too few of its repeats arrive"
    return f"cannot be set beside {over}, {late} in time"


def _untold(value: Value, over: str) -> str:
    """What an interval that holds "no difference" says; of one repeat, which has none, nothing is said."""
    return f"cannot be told from {over}" if value.num > 1 else f"may differ from {over} by chance ({ONE_REPEAT})"


def _difference(claim: Claim, value: Value, over: str) -> Phrase:
    size = Number(f"{claim.name} size", number_text(value, abs(value.value or 0.0)))
    by = phrase(size, " ") if value.unit == "points" else phrase()
    less = phrase() if value.unit == "points" else phrase(", by ", size)
    return phrase("ends ", by, f"{'higher' if value.side > 0 else 'lower'} than {over}", less)


def _fastest(claim: Claim, value: Value) -> Phrase:
    first, *others = value.words.split("|")
    if value.side > 0:
        ahead = phrase(f"{first} is faster than every other arm, ", bare_text(claim, value))
        return phrase(ahead, f" times as fast as {others[0]}")
    if value.num == 1:
        return phrase(f"{first} has the shortest time, but {ONE_REPEAT}")
    return phrase(f"{first} has the shortest mean time, and {named(others)} may be as fast")


def _crossover(claim: Claim, value: Value, over: str) -> Phrase:
    if value.unit == "words":
        why = "is given, since its cells are host-bound" if "host-bound" in value.words else "can be told"
        return phrase(f"has no crossover with {over} that {why}")
    in_scale = value.unit == "scale"  # S/(B·T) falls where the bandwidth rises
    if value.value is None and value.words and (value.side == 0 or not value.has_interval):
        return phrase(f"crosses {over} outside of what was measured, if at all")
    if value.all_told:
        above = value.words.startswith("above")
        return phrase(f"is {'faster' if (value.side > 0) == above else 'slower'} than {over} on all measured links")
    if value.low is None or value.high is None:
        return _one_end(claim, value, over)
    at = phrase("a value in between") if value.value is None else bare_text(claim, value)
    larger, smaller = ("where it is larger", "where it is smaller") if in_scale else ("below", "above")
    which = {1: f", and is faster {larger}", -1: f", and is faster {smaller}", 0: ""}[value.side]
    ends = ends_text(claim, value)
    if value.high > _VAGUE * value.low:  # a point would say more than is known
        return phrase(f"crosses {over} somewhere ", "where S/(B·T) is " if in_scale else "from ", ends, which)
    return phrase(f"crosses {over} ", "where S/(B·T) is " if in_scale else "at ", at, " (", ends, ")", which)


def _shift(claim: Claim, value: Value) -> Phrase:
    """Where an arm crosses its reference, beside where another crossover lies."""
    if value.value is None or not value.has_interval:
        return phrase(f"cannot be set beside that of {claim.against}")
    if value.side == 0:
        return phrase(f"cannot be told from that of {claim.against} (", ends_text(claim, value), " times)")
    return phrase("is ", bare_text(claim, value), f" times that of {claim.against} (", ends_text(claim, value), ")")


def _one_end(claim: Claim, value: Value, over: str) -> Phrase:
    """On one side of the one end that is known the arms are told apart, on the other side they are not."""
    end = value.high if value.low is None else value.low
    if end is None or value.side == 0:
        return phrase(f"crosses {over} in the mean at ", bare_text(claim, value))
    number = Number(f"{claim.name} end", end_text(value, end, down=value.high is None))
    if value.unit == "scale":
        on_slow = value.low is None  # told apart where S/(B·T) is larger than the end
        where, elsewhere = ("above", "below") if on_slow else ("below", "above")
        before, behind = f" where S/(B·T) is {where} ", f", and cannot be told from it {elsewhere}"
    else:
        on_slow = value.low is not None
        where, elsewhere = ("below", "above") if on_slow else ("above", "below")
        before, behind = f" {where} ", f", and cannot be told from it {elsewhere}"
    return phrase(f"is {'faster' if (value.side > 0) == on_slow else 'slower'} than {over}{before}", number, behind)
