"""When which part of the parameters is exchanged: a function of the step number, so that ranks cannot disagree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoundSchedule:
    """Rounds of every part, in steps that are numbered from 1.

    Which rounds have begun after a step follows from its number alone. All ranks begin the same rounds in the same
    order, whatever their speed: nobody can wait for a round that a peer has not begun and will not begin.

    Attributes:
        period: steps from one round of a part to its next.
        offsets: of each part; it begins a round after every step that leaves this remainder, counted from ``warm_up``.
        overlap: steps from the begin of a round to the step after which its result is applied, at most ``period``;
            None for as soon as it is there, which is ``period`` steps later at the latest.
        warm_up: no round begins in the first steps, this many.
    """

    period: int
    offsets: tuple[int, ...] = (0,)
    overlap: int | None = 0
    warm_up: int = 0

    def begins(self, part: int, step: int) -> bool:
        """Whether a round of ``part`` begins after ``step``."""
        counted = step - self.warm_up
        return counted > 0 and (counted - self.offsets[part]) % self.period == 0

    def due(self, begun_step: int, step: int) -> bool:
        """Whether the result of a round that began after ``begun_step`` has to be applied after ``step``."""
        return step - begun_step >= self.longest

    @property
    def longest(self) -> int:
        """Steps from the begin of a round to the last step in which its result may be applied."""
        return self.period if self.overlap is None else self.overlap

    def agreement_step(self, step: int) -> int:
        """The first step that a rank completes only after all others have begun ``step``.

        That is the one in which the next round that begins, of any part, has been applied.
        """
        if step <= self.warm_up:  # gradients are averaged in these
            return step
        counted = step - self.warm_up
        next_begin = min(counted + (offset - counted) % self.period for offset in self.offsets)
        return self.warm_up + next_begin + self.longest
