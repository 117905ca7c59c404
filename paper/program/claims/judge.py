"""Whether a claim's number still supports what is said of it."""

from __future__ import annotations

from paper.program.claims.spec import COMPARISONS, Claim
from paper.program.claims.value import Value
from paper.program.claims.words import full_text, plain

_SIDES = {"above 1": 1, "positive": 1, "faster below": 1, "below 1": -1, "negative": -1, "faster above": -1}
_OPPOSITE = {
    "above 1": "below 1",
    "below 1": "above 1",
    "positive": "negative",
    "negative": "positive",
    "faster below": "faster above",
    "faster above": "faster below",
}


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
