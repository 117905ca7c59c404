"""Claims as prose may cite them: evaluated, judged, and each said with its interval somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bwbench.results.text import Phrase, phrase
from paper.program.claim import COMPARISONS, Claim, Value
from paper.program.claim_words import bare_text, full_text, judge, verdict_text
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError, Records
from paper.program.evaluate import evaluate

_WITH_INTERVAL = (*COMPARISONS, "value")
UNKNOWN: Phrase = phrase("??")


@dataclass
class Quotes:
    """What prose asks for. Problems are collected, so that a build says all of them at once.

    Attributes:
        problems: one message each.
        used: names of the claims that were cited.
    """

    claims: Mapping[str, Claim]
    records: Records
    problems: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    _values: dict[str, Value | None] = field(default_factory=dict)
    _bare: set[str] = field(default_factory=set)
    _full: set[str] = field(default_factory=set)

    def bare(self, name: str) -> Phrase:
        """The number alone. Its interval has to stand elsewhere; its direction has to be declared."""
        claim, value = self._look_up(name)
        if claim is None or value is None:
            return UNKNOWN
        self._bare.add(name)
        self._check_declared(claim)
        return bare_text(claim, value)

    def full(self, name: str) -> Phrase:
        """The number with interval and n; its direction has to be declared."""
        claim, value = self._look_up(name)
        if claim is None or value is None:
            return UNKNOWN
        self._full.add(name)
        self._check_declared(claim)
        return full_text(claim, value)

    def verdict(self, name: str) -> Phrase:
        """A predicate that follows from the number, whatever it is."""
        claim, value = self._look_up(name)
        if claim is None or value is None:
            return UNKNOWN
        self._full.add(name)
        if claim.kind not in COMPARISONS:
            self._problem(
                f"claim {name!r} compares nothing: {{{{ verdict('{name}') }}}} has nothing to say; cite it by claim()"
            )
        return verdict_text(claim, value)

    def value(self, name: str) -> Value | None:
        """The value itself, for conditions in prose; None where its records are missing."""
        return self._look_up(name)[1]

    def judge_all(self) -> None:
        """Judge every claim whose experiment has records, cited or not, and say which numbers lack an interval."""
        for name, claim in sorted(self.claims.items()):
            there = claim.kind == "given" or claim.experiment in self.records.experiments or name in self.used
            value = self._evaluated(claim) if there else None
            message = judge(claim, value) if value is not None else None
            if message is not None:
                self._problem(message)
        for name in sorted(self._bare - self._full):
            if self.claims[name].kind in _WITH_INTERVAL:
                self._problem(
                    f"claim {name!r} is quoted without its interval and n; cite it once as {{{{ claim('{name}') }}}}"
                )

    def _look_up(self, name: str) -> tuple[Claim | None, Value | None]:
        claim = self.claims.get(name)
        if claim is None:
            self._problem(f"no claim {name!r} is declared; add it to the file of claims")
            return None, None
        self.used.add(name)
        return claim, self._evaluated(claim)

    def _evaluated(self, claim: Claim) -> Value | None:
        if claim.name not in self._values:
            try:
                self._values[claim.name] = evaluate(claim, self.records)
            except (MissingRecordsError, AmbiguousClaimError) as error:
                self._values[claim.name] = None
                self._problem(str(error))
        return self._values[claim.name]

    def _check_declared(self, claim: Claim) -> None:
        if claim.kind in COMPARISONS and claim.expect == "none" and claim.distinguishable:
            self._problem(
                f"claim {claim.name!r} is quoted as a number, but its direction is not declared: give it `expect:`, or "
                f"`distinguishable: false`, or let it word itself: {{{{ verdict('{claim.name}') }}}}"
            )

    def _problem(self, message: str) -> None:
        if message not in self.problems:
            self.problems.append(message)
