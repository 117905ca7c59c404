"""Step times of a composed run by a run of the same cell with another seed, of which only the record is there.

All seeds of a cell share its timing runs, so a further seed needs no link: the clock of the recorded curve says what
the steps until each evaluation take. It is that of the timing runs to the last bit where a step sends the same bytes
whatever the seed; where it does not, the difference of the bytes is added as ``compose.py`` adds it. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bwbench.records.schema import Composed, CurvePoint, Kind
from bwbench.results.analysis.compose import EXPOSED_SHARE
from bwbench.results.analysis.composition import NotComposableError, Spread, Trained, ratio


@dataclass(frozen=True)
class TimesOfSeed:
    """``StepTimes`` of ``trained`` by what is recorded of another seed.

    Attributes:
        recorded: of a run to the same limit, evaluated after the same steps.
        seconds_per_byte: as of ``compose``.
    """

    trained: Trained
    recorded: Composed
    seconds_per_byte: float = 0.0

    @cached_property
    def clocks(self) -> Sequence[float]:
        """Behind each step; between evaluations as if all steps took the same time.

        Raises NotComposableError where the recorded run was evaluated after other steps.
        """
        known = {0: 0.0} | {mine.step: clock_s for mine, clock_s in self._evaluations}
        clocks, steps = [0.0], sorted(known)
        for begin, end in zip(steps, steps[1:], strict=False):
            step_s = (known[end] - known[begin]) / (end - begin)
            clocks += [known[begin] + step_s * (step - begin) for step in range(begin + 1, end)] + [known[end]]
        if len(clocks) != len(self.trained.steps) + 1:
            raise NotComposableError("the published seed's last evaluation is not behind the last step")
        return clocks

    def kinds(self, counted: int) -> tuple[Kind, ...]:
        """With the recorded means; a kind that the recorded run came to later has the mean that is left for it."""
        numbers = Counter(step.kind for step in self.trained.walked[:counted])
        numbers["evaluation"] = sum(1 for step in self.trained.evaluated if step <= counted)
        known = {kind.name: kind for kind in self.recorded.kinds}
        left_s = self.clocks[counted] - sum(n * known[name].mean_s for name, n in numbers.items() if name in known)
        unknown = sum(n for name, n in numbers.items() if name not in known)
        usual = max(numbers, key=lambda name: numbers[name])
        found = []
        for name, number in numbers.items():
            one = known.get(name)
            found.append(
                Kind(
                    name=name,
                    num_steps=number,
                    num_timed=one.num_timed if one else 0,
                    mean_s=one.mean_s if one else left_s / unknown,
                    deviation_s=one.deviation_s if one else 0.0,
                    drift_s=left_s if not unknown and name == usual else 0.0,
                )
            )
        return tuple(found)

    def spread(self, counted: int) -> Spread:
        """The recorded one, as a share of the time."""
        until_s = self.recorded.time_to_target_s or self.recorded.training_clock_s
        low_high, now_s = self.recorded.interval_s, self.clocks[counted]
        interval_s = (low_high[0] * now_s / until_s, low_high[1] * now_s / until_s) if low_high and until_s else None
        return Spread(interval_s, self.recorded.within_share, self.recorded.between_share)

    def max_payload_ratio(self, counted: int) -> float:
        """The recorded one, times that of what both seeds sent between two evaluations."""
        recorded, found, before = self.recorded.max_payload_ratio, 1.0, (0, 0)
        for mine, theirs in self._pairs(counted):
            if mine.payload_bytes is None or theirs.payload_bytes is None:
                continue
            found = max(found, ratio(mine.payload_bytes - before[0], theirs.payload_bytes - before[1]))
            before = (mine.payload_bytes, theirs.payload_bytes)
        return found * (math.inf if recorded is None else recorded)

    @property
    def _evaluations(self) -> list[tuple[CurvePoint, float]]:
        """Each evaluation of this seed, and the clock behind it."""
        ledger = self.recorded.ledger
        parts_s = ledger.mean_s if ledger else {}
        waiting_s = sum(parts_s.get(part, 0.0) for part in ("peers_s", "link_s", "exposed_s"))
        waits = ledger is not None and waiting_s > EXPOSED_SHARE * ledger.step_mean_s
        found = []
        for mine, theirs in self._pairs(len(self.trained.steps)):
            drift_s = 0.0
            if waits and mine.payload_bytes is not None and theirs.payload_bytes is not None:
                more = mine.payload_bytes - theirs.payload_bytes
                drift_s = max(-waiting_s * mine.step, self.seconds_per_byte * more)
            found.append((mine, theirs.clock_s + drift_s))
        return found

    def _pairs(self, counted: int) -> list[tuple[CurvePoint, CurvePoint]]:
        by_step = {point.step: point for point in self.recorded.curve}
        mine = [point for point in self.trained.curve if 0 < point.step <= counted]
        if missing := [point.step for point in mine if point.step not in by_step]:
            raise NotComposableError(f"the published seed was not evaluated after step {missing[0]}")
        return [(point, by_step[point.step]) for point in mine]
