"""Claims as prose may cite them: evaluated, judged, and each said with its interval somewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bwbench.results.section.content import Lines
from bwbench.results.text import Number, Phrase, phrase, significant
from paper.program.claim import COMPARISONS, RATE, Claim, Value
from paper.program.claim_words import bare_text, judge
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError, Records
from paper.program.closed_form import measured_beside
from paper.program.crossings import Crossing
from paper.program.evaluate import evaluate
from paper.program.evidence import Row
from paper.program.ratios import ratio_lines
from paper.program.spoken import name_of, spoken_text, spoken_with_interval, with_names

_WITH_INTERVAL = (*COMPARISONS, "value")
UNKNOWN: Phrase = phrase("??")


@dataclass
class Quotes:
    """What prose asks for. Problems are collected, so that a build says all of them at once.

    Attributes:
        names: what a sentence calls an arm, by its label; one that is not among them keeps its label.
        problems: one message each.
        used: names of the claims that were cited.
        marks: of the claims whose interval and n prose leaves to the table of evidence, each with its row's number.
        has_evidence: whether that table is there.
    """

    claims: Mapping[str, Claim]
    records: Records
    names: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    marks: dict[str, int] = field(default_factory=dict)
    has_evidence: bool = False
    _values: dict[str, Value | None] = field(default_factory=dict)
    _bare: set[str] = field(default_factory=set)

    def bare(self, name: str) -> Phrase:
        """The number alone. Its interval has to stand elsewhere; its direction has to be declared."""
        claim, value = self._look_up(name)
        if claim is None or value is None:
            return UNKNOWN
        self._bare.add(name)
        self._check_declared(claim)
        return bare_text(claim, value)

    def marked(self, name: str) -> tuple[Phrase, int | None]:
        """The number, and the row of its evidence; its direction has to be declared."""
        claim, value = self._look_up(name)
        if claim is None or value is None:
            return UNKNOWN, None
        self._check_declared(claim)
        return bare_text(claim, value), self._mark(name)

    def verdict(self, name: str, *, interval: bool = False, mark: bool = True) -> tuple[Phrase, int | None]:
        """A predicate that follows from the number, whatever it is, and the row of its evidence.

        Args:
            interval: with its interval in brackets.
            mark: with the row; without it the same claim has to be cited elsewhere.
        """
        claim, value = self._look_up(name)
        if claim is None or value is None:
            return UNKNOWN, None
        if claim.kind not in COMPARISONS:
            self._problem(
                f"claim {name!r} compares nothing: {{{{ verdict('{name}') }}}} has nothing to say; cite it by claim()"
            )
            return UNKNOWN, None
        spoken = spoken_with_interval if interval else spoken_text
        words = spoken(*with_names(claim, value, self.names))
        if mark:
            return words, self._mark(name)
        self._bare.add(name)
        return words, None

    def experiment_of(self, name: str) -> str:
        """Whose records a claim is about; empty, and a problem, where none of that name is declared."""
        claim = self.claims.get(name)
        if claim is None:
            self._look_up(name)
        return "" if claim is None else claim.experiment

    def evidence(self) -> list[Row]:
        """A row for each mark, in their order."""
        self.has_evidence = True
        of_marks = [(number, self.claims[name], self._values[name]) for name, number in self.marks.items()]
        return [
            Row(number, claim, value, self.bound(claim, value), self._on_two_hosts(claim, value))
            for number, claim, value in of_marks
            if value is not None
        ]

    def pair(self, name: str) -> Lines:
        """The two arms of a ratio, one below the other, and the row of its evidence."""
        claim = self.claims[name]
        named = (name_of(one, claim.experiment, self.names) for one in (claim.arm, claim.over))
        arm, over = (name.removeprefix("the ") for name in named)
        return [phrase(f"{arm} e{self._mark(name)}"), phrase(f"over {over}")]

    def cell(self, name: str) -> Lines:
        """The number of a claim with its mark, its interval below it, in parentheses where nothing is told; a name that
        is no claim's is what stands there."""
        claim, value = (self.claims[name], self.value(name)) if name in self.claims else (None, None)
        if claim is None or value is None:
            return [phrase(name)]
        if claim.kind == "given":
            return [bare_text(claim, value)]
        untold = claim.kind in ("ratio", "shift") and value.side == 0
        before, after = ("(", ")") if untold else ("", "")
        return ratio_lines(claim, value, before, f"{after} e{self._mark(name)}")

    def mark(self, name: str) -> int | None:
        """The row of a claim's evidence, for a table that shows its value; None where its records are missing."""
        return self._mark(name) if self._look_up(name)[1] is not None else None

    def is_host_bound(self, name: str) -> bool:
        """Whether the machine, and not the link alone, decides what a step of one of a claim's cells takes."""
        claim, value = self._look_up(name)
        return claim is not None and value is not None and self.bound(claim, value)

    def value(self, name: str) -> Value | None:
        """The value itself, for conditions in prose; None where its records are missing."""
        return self._look_up(name)[1]

    def crossings(self) -> list[Crossing]:
        """The closed forms that are declared and known, with the crossovers that they are of."""
        forms = [claim for claim in self.claims.values() if claim.kind == "closed form"]
        known = [(claim, value) for claim in forms if (value := self.value(claim.name)) is not None]
        return [Crossing(claim, value, measured_beside(claim, self.records)) for claim, value in known]

    def above(self) -> Phrase:
        """How many crossovers lie below their closed form: ``20 of 21``. An interval would be no test of it, for both
        have the noise of the same trainings."""
        pairs = [(one.form.value, one.measured.value) for one in self.crossings()]
        known = [form > measured for form, measured in pairs if form and measured]
        return phrase(Number("closed form above", str(sum(known))), " of ", Number("closed form of", str(len(known))))

    def farthest(self, but: str = "") -> Phrase:
        """How many times as large as its crossover, or as small, the closed form is that lies farthest from one.

        Args:
            but: of all arms but this one.
        """
        pairs = [(one.form.value, one.measured.value) for one in self.crossings() if one.claim.arm != but]
        most = max(abs(math.log(form / measured)) for form, measured in pairs if form and measured)
        key = f"closed form farthest {but}".strip()
        return phrase(Number(key, significant(math.exp(most), apart_from=1.0)))

    def judge_all(self) -> None:
        """Judge every claim whose experiment has records, cited or not, and say which numbers lack an interval."""
        for name, claim in sorted(self.claims.items()):
            there = claim.kind == "given" or claim.experiment in self.records.experiments or name in self.used
            value = self._evaluated(claim) if there else None
            message = judge(claim, value) if value is not None else None
            if message is not None:
                self._problem(message)
        if self.marks and not self.has_evidence:
            self._problem("claims are cited, but no section has their intervals: {{ evidence() }} is missing")
        for name in sorted(self._bare - self.marks.keys()):
            if self.claims[name].kind in _WITH_INTERVAL:
                self._problem(
                    f"claim {name!r} is quoted without its interval and n; cite it once as {{{{ claim('{name}') }}}}"
                )

    def bound(self, claim: Claim, value: Value) -> bool:
        """Whether a cell of a value is host-bound, where a step's time is in it; a crossover leaves such cells out."""
        if claim.kind not in ("ratio", "fastest", "value") or claim.of not in ("time", "step time", RATE):
            return False
        cells = (folder for folder in self.records.of(claim.experiment) if folder.cell.id in value.cells)
        return any(map(self.records.is_host_bound, cells))

    def _on_two_hosts(self, claim: Claim, value: Value) -> bool:
        """Whether the times that it is of were taken on machines with unlike processors."""
        if claim.kind not in ("ratio", "fastest", "crossover") or claim.of not in ("time", "step time", RATE):
            return False
        cells = (folder for folder in self.records.of(claim.experiment) if folder.cell.id in value.cells)
        return len({one.environment.cpu for one in cells if one.environment and one.environment.cpu}) > 1

    def _mark(self, name: str) -> int:
        return self.marks.setdefault(name, len(self.marks) + 1)

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
