"""claims.yaml: every number that a text may quote, which way it is said to point, and what it comes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bwbench.base.errors import ConfigError, Problem

Unit = Literal["ratio", "s", "bit/s", "bytes", "samples", "share", "points", "number", "h", "scale", "words"]


@dataclass(frozen=True)
class Value:
    """A number from records, with what must be said beside it.

    Attributes:
        value: None where it is known only to lie between ``low`` and ``high``, or where ``words`` stand for it.
        low, high: 95 % interval; None where there is none, or where it is open on that side.
        num: repeats, pairs, cells or probes that it rests on.
        bound: ``>`` where it is at least ``value``, ``<`` where at most.
        side: 1 where the interval lies above "no difference", -1 where below, 0 where it cannot be told. Of a
            crossover: 1 where the arm is faster below it, -1 where above.
        words: for values that are no numbers: a name, or why there is none.
        composed: whether composed cells are among those it rests on.
        num_censored: those of the repeats that did not reach the target.
        first_crossing: whether a time or a number of samples among them is that of a first crossing alone.
        cells: ids of the cells it rests on, for whoever wants to look.
        all_told: of a crossover outside of what was measured: at each measured bandwidth the arms are told apart.
        num_timed: of the time of a step, where it was put together: timing runs that it rests on, whatever ``num`` is.
        beside: of the fastest: the arm with the next mean time, which ``value`` is the ratio to.
    """

    unit: Unit
    value: float | None
    num: int
    low: float | None = None
    high: float | None = None
    bound: str = ""
    side: int = 0
    words: str = ""
    composed: bool = False
    num_censored: int = 0
    first_crossing: bool = False
    cells: tuple[str, ...] = ()
    beside: str = ""
    num_timed: int | None = None
    all_told: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether at least one end of an interval is known."""
        return self.low is not None or self.high is not None


Kind = Literal[
    "ratio",
    "crossover",
    "shift",
    "closed form",
    "difference",
    "value",
    "fastest",
    "config",
    "cells",
    "machine hours",
    "composed error",
    "link error",
    "round-trip error",
    "given",
]
Quantity = Literal[
    "time", "step time", "samples", "wire bytes", "wire bytes per step", "final", "test", "samples a second"
]  # fmt: skip
RATE: Quantity = "samples a second"  # whose ratio is that of the arm over the reference
Expectation = Literal["none", "above 1", "below 1", "positive", "negative", "faster below", "faster above"]

TO_TARGET = ("ratio", "crossover", "shift", "closed form", "fastest", "value")
COMPARISONS = ("ratio", "difference", "crossover", "shift", "fastest")
_DIRECTIONS: dict[str, tuple[str, ...]] = {
    "ratio": ("none", "above 1", "below 1"),
    "difference": ("none", "positive", "negative"),
    "crossover": ("none", "faster below", "faster above"),
    "shift": ("none", "above 1", "below 1"),
    "fastest": ("none", "above 1"),
}
_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Claim(BaseModel):
    """One number with its provenance.

    Attributes:
        experiment: whose cells; ``given`` alone has none, the sums over machines may have ``all``.
        arm, over: names as records have them; ``over`` is the reference of a ratio, a difference, a crossover.
        where: dotted keys of the configuration that the cells must have; ``link.preset`` takes the name of a preset. An
            empty value takes away what defaults say.
        over_where: what is different for the reference.
        than: of ``shift``: in what the other crossover differs, as fields of a claim.
        against: what prose calls the reference; ``over`` where there is nothing.
        of: the quantity that is compared or quoted; ``samples a second`` of cells without a target.
        key: of ``config``: the dotted key whose value is quoted.
        part: of errors: ``median``, ``95 %`` or ``most``, of composed times also ``inside``, those inside their
            interval; of ``cells``: ``composed``, ``host-bound``, ``seeds``, ``arms``, those that race, or ``arrived``,
            those of them that reach ``target`` in half of their repeats or more; of a crossover ``bandwidth``,
            ``scale``, its S/(B·T), or ``inverse``, where the time of a step is a + b/B between two links.
        arms: of ``fastest``: among these; all but ``no-communication`` where there are none.
        target: of the metric of the cells' target; another one than theirs is asked of their curves. Nothing but
            ``TO_TARGET`` and ``part: arrived`` depend on it, so that it may stand among the defaults of an experiment.
        expect: the direction that the prose takes for granted. ``none``: the prose words itself.
        distinguishable: False says that the interval holds "no difference", and that the prose says so.
        value, source: of ``given``: a number that no record holds, and who says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    experiment: str = ""
    arm: str = ""
    over: str = ""
    where: dict[str, Any] = Field(default_factory=dict)
    over_where: dict[str, Any] = Field(default_factory=dict)
    than: dict[str, Any] = Field(default_factory=dict)
    against: str = ""
    of: Quantity = "time"
    key: str = ""
    part: str = ""
    arms: tuple[str, ...] = ()
    target: float | None = None
    expect: Expectation = "none"
    distinguishable: bool = True
    value: str = ""
    source: str = ""

    @property
    def asked_target(self) -> float | None:
        """``target``, where its value depends on it."""
        return self.target if self.kind in TO_TARGET or self.part == "arrived" else None

    @model_validator(mode="after")
    def _whole(self) -> Claim:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a claim; use letters, digits and hyphens: ring-at-ten")
        needed = {
            "ratio": ("experiment", "arm"),
            "difference": ("experiment", "arm", "over"),
            "crossover": ("experiment", "arm", "over"),
            "shift": ("experiment", "arm", "over", "than", "against"),
            "closed form": ("experiment", "arm", "over"),
            "value": ("experiment", "arm"),
            "config": ("experiment", "key"),
            "given": ("value", "source"),
        }.get(self.kind, ("experiment",))
        missing = [field for field in needed if not getattr(self, field)]
        if missing:
            raise ValueError(f"a claim of kind {self.kind!r} needs {' and '.join(missing)}")
        allowed = _DIRECTIONS.get(self.kind, ("none",))
        if self.expect not in allowed:
            raise ValueError(f"expect: {self.expect!r} is nothing for a {self.kind}; allowed: {', '.join(allowed)}")
        if not self.distinguishable and (self.kind not in COMPARISONS or self.expect != "none"):
            raise ValueError("distinguishable: false goes with a comparison and without a direction under expect")
        if self.kind == "ratio" and not (self.over or self.over_where):
            raise ValueError("a ratio needs another arm (over) or another setting (over_where)")
        return self

    @property
    def crossovers(self) -> tuple[Claim, Claim]:
        """Of ``shift``: both crossovers, in S/(B·T)."""
        fields = {**self.model_dump(exclude={"than"}), "kind": "crossover", "part": "scale", "expect": "none"}
        return Claim.model_validate(fields), Claim.model_validate({**fields, **self.than})

    @property
    def reference_where(self) -> dict[str, Any]:
        """What the cells of the reference must have."""
        return {key: value for key, value in {**self.where, **self.over_where}.items() if value is not None}


def load_claims(path: Path) -> dict[str, Claim]:
    """The claims of a file by name; raises ConfigError with all that is wrong in it.

    The file maps experiments to claims by name; ``defaults`` among them go to each. Those below ``given`` need no
    records.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(Problem(f"not readable: {error}", str(path))) from None
    groups = content if isinstance(content, Mapping) else {}
    claims: dict[str, Claim] = {}
    problems: list[Problem] = []
    for experiment, group in groups.items():
        if not isinstance(group, Mapping):
            problems.append(Problem(f"{experiment}: expected claims by name below it", str(path)))
            continue
        defaults = group.get("defaults") or {}
        for name, fields in group.items():
            if name == "defaults":
                continue
            if name in claims:
                problems.append(Problem(f"claim {name!r} is there twice", str(path)))
            try:
                claims[name] = _claim(str(experiment), str(name), defaults, fields)
            except (ValidationError, ValueError) as error:
                problems.append(Problem(f"claim {name!r}: {_first_words(error)}", str(path)))
    if problems:
        raise ConfigError(problems)
    return claims


def _claim(experiment: str, name: str, defaults: Mapping[str, Any], fields: object) -> Claim:
    if not isinstance(fields, Mapping):
        raise ValueError("expected a mapping such as {kind: ratio, arm: ring, over: ddp}")
    where = {**(defaults.get("where") or {}), **(fields.get("where") or {})}
    where = {key: value for key, value in where.items() if value is not None}
    about = {"kind": "given"} if experiment == "given" else {"experiment": experiment}
    return Claim.model_validate({**about, **defaults, **fields, "where": where, "name": name})


def _first_words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc']))} {e['msg']}".strip() for e in error.errors())
    return str(error)
